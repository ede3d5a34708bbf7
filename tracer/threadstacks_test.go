package tracer

import (
	"os"
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
	s, probe := openSampler(2, locate.Host{}, func(cpu int) (int, error) { return -1, unix.EACCES })
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
	if _, probe := openSampler(2, locate.Host{}, func(cpu int) (int, error) { return -1, unix.ENODEV }); probe.Error != "" {
		t.Errorf("CPUs that are off: %s", probe.Error)
	}
}
