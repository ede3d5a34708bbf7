package tracer

import (
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rdmatrace/rdmatrace/bpf"
	"github.com/rdmatrace/rdmatrace/event"
	"github.com/rdmatrace/rdmatrace/tracer/locate"
	"github.com/rdmatrace/rdmatrace/tracer/unwind"
)

// TestThreadStacks: equal stacks have one id whatever the programs call them; of
// many, those within a function are one, and beyond a limit there are none.
func TestThreadStacks(t *testing.T) {
	s, err := newStackKeeper(&sites{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	pid := uint32(os.Getpid())
	s.watch(int(pid))
	ts := s.threads
	take := func(raw uint64, ip uint64) uint64 {
		ts.take(&stackRecord{id: raw, time: 1, site: bpf.RdmaSiteKey{Pid: pid}, snapshot: unwind.Snapshot{IP: ip}})
		e := event.Event{Kind: event.KindSample, Sample: event.Sample{Stack: raw}}
		ts.resolve(&e)
		return e.Sample.Stack
	}
	// In no file, so that nothing calls it.
	const nowhere = 1 << 52
	first := take(1, nowhere)
	if first == 0 || take(2, nowhere) != first || take(3, nowhere+1) == first {
		t.Error("stacks are not told apart by what they are")
	}
	for i := range uint64(exactStacks) {
		take(10+i, nowhere+i)
	}
	begin := function(t, s, pid)
	if a, b := take(4, begin+1), take(5, begin+2); a == 0 || a != b {
		t.Errorf("two places in a function are %#x and %#x", a, b)
	}
	for i := range uint64(threadStacksMost) {
		take(1e6+i, 2*nowhere+i)
	}
	if got := take(6, 3*nowhere); got != 0 || ts.note() == "" {
		t.Errorf("beyond the limit there is %#x, and the note %q", got, ts.note())
	}
	for i := range uint64(idsMost) {
		ts.ids[1e9+i] = 1
	}
	if take(7, nowhere) != first || len(ts.ids) != 1 {
		t.Errorf("%d of the programs' ids are known", len(ts.ids))
	}
	if got := len(s.list()); got != threadStacksMost {
		t.Errorf("%d stacks in the context", got)
	}
}

// function is where one begins that call frame information tells of: in the vdso, as
// programs in Go have none.
func function(t *testing.T, s *stackKeeper, pid uint32) uint64 {
	t.Helper()
	space := s.store.Space(pid)
	for _, r := range space.Regions() {
		for at := r.Start; r.Path == "[vdso]" && at < r.End; at += 8 {
			if begin, ok := s.unwinder.Function(space, at); ok {
				return begin
			}
		}
	}
	t.Fatal("no function in the vdso")
	return 0
}

// TestSamplerRefused: where the kernel refuses the clocks, it is said, and no more.
func TestSamplerRefused(t *testing.T) {
	s, probe := openSampler(clocksOf(2), locate.Host{}, func(clock) (int, error) { return -1, unix.EACCES })
	note := tracepointNote(probe)
	if !strings.Contains(note, "not sampled") || !strings.Contains(note, "permission denied") {
		t.Error(note)
	}
	if err := s.run(true); err != nil {
		t.Error(err)
	}
	if err := s.close(); err != nil {
		t.Error(err)
	}
	for _, none := range []unix.Errno{unix.ENODEV, unix.ESRCH} {
		if _, probe := openSampler(clocksOf(2), locate.Host{}, func(clock) (int, error) { return -1, none }); probe.Error != "" {
			t.Errorf("CPUs that are off, threads that have ended: %s", probe.Error)
		}
	}
	first, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	s, probe = openSampler(clocksOf(2), locate.Host{}, func(c clock) (int, error) {
		if c.cpu > 0 {
			return -1, unix.EMFILE
		}
		return first, nil
	})
	if probe.Error == "" || len(s.clocks) != 0 || fdOpen(first) {
		t.Errorf("one of two clocks could not be had: %v, %q", s.clocks, probe.Error)
	}
}

// TestClocksFor: threads have clocks, also those that are started meanwhile, and CPUs if
// they are too many.
func TestClocksFor(t *testing.T) {
	started := []int{10, 11}
	threads := func(pid int) ([]int, error) {
		switch pid {
		case 1:
			defer func() {
				if len(started) < 4 {
					started = append(started, 10+len(started))
				}
			}()
			return slices.Clone(started), nil
		case 2:
			return nil, unix.ESRCH
		}
		many := make([]int, clocksMost)
		for i := range many {
			many[i] = 1000 + i
		}
		return many, nil
	}
	if got, want := clocksFor([]int{1, 2}, 4, 3, threads), []clock{{10, -1}, {11, -1}, {12, -1}, {13, -1}}; !slices.Equal(got, want) {
		t.Errorf("%v, not %v", got, want)
	}
	if got, want := clocksFor([]int{1, 3}, clocksMost, 3, threads), []clock{{-1, 0}, {-1, 1}, {-1, 2}}; !slices.Equal(got, want) {
		t.Errorf("%v, not %v", got, want)
	}
}

func fdOpen(fd int) bool {
	_, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
	return err == nil
}

// TestUnwindingHangs: while a file of the target cannot be read, the reader goes on
// without stacks, and has them again afterwards.
func TestUnwindingHangs(t *testing.T) {
	s, err := newStackKeeper(&sites{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	ts := s.threads
	hang := make(chan struct{})
	ts.unwind = func(rec *stackRecord) *threadStack {
		<-hang
		return &threadStack{rec: rec, unwound: unwound{addrs: []uint64{rec.snapshot.IP}}}
	}
	for id := range uint64(1000) {
		ts.take(&stackRecord{id: 1 + id, snapshot: unwind.Snapshot{IP: 1}})
	}
	if ts.of(1) != 0 || ts.of(1000) != 0 || ts.left != 1000 || ts.note() == "" {
		t.Errorf("%#x, %#x; %d left out", ts.of(1), ts.of(1000), ts.left)
	}
	close(hang)
	for id := uint64(2000); ts.busy; id++ {
		ts.take(&stackRecord{id: id, snapshot: unwind.Snapshot{IP: 1}})
	}
	ts.take(&stackRecord{id: 9000, snapshot: unwind.Snapshot{IP: 1}})
	if ts.of(1) == 0 || ts.of(9000) != ts.of(1) {
		t.Errorf("afterwards %#x and %#x", ts.of(1), ts.of(9000))
	}
}
