package tracer

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rdmatrace/rdmatrace/event"
	"github.com/rdmatrace/rdmatrace/internal/testenv"
	"github.com/rdmatrace/rdmatrace/testbed/softmlx5/truth"
	"github.com/rdmatrace/rdmatrace/tracer/locate"
)

// lateProgram builds the program that loads its RDMA library late.
func lateProgram(t *testing.T) (program, library string) {
	t.Helper()
	dir := t.TempDir()
	program, library = filepath.Join(dir, "late"), filepath.Join(dir, "traffic.so")
	run(t, nil, "gcc", "-O1", "-o", program, "testdata/late.c", "-ldl")
	run(t, nil, "gcc", "-O1", "-shared", "-fPIC", "-o", library, "testdata/traffic.c", "-libverbs")
	return program, library
}

// TestLateLibrary traces commands that load their RDMA library in their
// middle: each is held until the probes are in, so nothing may be missing.
func TestLateLibrary(t *testing.T) {
	d := startDevice(t)
	program, library := lateProgram(t)
	pid, rec := recordCommand(t, onDevice(program, library, "300"))
	rows := d.stop()
	rec.lossless(t)
	rec.compare(t, rows, pid)
}

// TestChildren traces a command whose children do the work.
func TestChildren(t *testing.T) {
	d := startDevice(t)
	program, library := lateProgram(t)
	script := fmt.Sprintf("%s %s 200 & %s %s 300 & wait", program, library, program, library)
	_, rec := recordCommand(t, onDevice("sh", "-c", script))
	rec.lossless(t)
	posts := map[int]int{}
	for _, row := range d.stop() {
		if row.Kind == truth.Send {
			posts[row.PID]++
		}
	}
	if len(posts) != 2 {
		t.Fatalf("the device had traffic of %d processes", len(posts))
	}
	for pid, want := range posts {
		got := 0
		for _, e := range rec.events {
			if e.Kind == event.KindWR && e.PID == uint32(pid) && e.Flags&event.WRReceive == 0 {
				got++
			}
		}
		if got != want {
			t.Errorf("process %d: %d posts, the device executed %d", pid, got, want)
		}
	}
}

// TestOrphan traces a command that ends at once and leaves its work to a child.
func TestOrphan(t *testing.T) {
	testenv.Root(t)
	_, rec := recordCommand(t, []string{"sh", "-c", "sleep 0.2 & exit 0"})
	for _, e := range rec.events {
		if e.Kind == event.KindTask && e.Object.Task.Event == event.TaskExited && e.Object.Task.Comm == "sleep" {
			return
		}
	}
	t.Error("the trace ended before the child")
}

// TestLateInRunning attaches to a program that has no RDMA library yet, which
// cannot be held: it is seen some time after it begins.
func TestLateInRunning(t *testing.T) {
	startDevice(t)
	program, library := lateProgram(t)
	argv := onDevice(program, library, "100000000", "wait")
	p := &process{cmd: exec.Command(argv[0], argv[1:]...)}
	stdin, err := p.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.kill)
	waitFor(t, "the program to run", func() bool { return commOf(p.cmd.Process.Pid) == "late" })
	opened := func() {
		if _, err := stdin.Write([]byte("\n")); err != nil {
			t.Error(err)
		}
	}
	tr, err := New(t.Context(), Config{
		PIDs: []int{p.cmd.Process.Pid}, Host: locate.Host{WaitForVerbs: true}, Opened: opened,
	})
	if err != nil {
		t.Fatal(err)
	}
	runUntil(t, tr, traffic(1000))
	for _, n := range tr.Context().Notes {
		t.Logf("note: %s", n)
	}
	if err := tr.Close(); err != nil {
		t.Error(err)
	}
}

// traffic is enough once more than n posts and n completions were seen.
func traffic(n int) func(*event.Event) bool {
	posts, completions := 0, 0
	return func(e *event.Event) bool {
		switch e.Kind {
		case event.KindWR:
			posts++
		case event.KindCompletion:
			completions++
		}
		return posts > n && completions > n
	}
}

// TestStarting attaches to programs that are about to open their device: they
// load libraries and make queues before, between and after the looks at them.
func TestStarting(t *testing.T) {
	for _, library := range []string{"/libibverbs.", libmlx5} {
		t.Run(library, func(t *testing.T) {
			d := startDevice(t, slowLatency...)
			_, line := d.server("ib_write_lat", "-n", "5000000")
			client := start(t, onDevice(line...)...)
			pid := client.cmd.Process.Pid
			waitFor(t, "the client to load "+library, func() bool {
				return gone(pid) || commOf(pid) == "ib_write_lat" && len(codeOf(pid, library)) > 0
			})
			tr, err := New(t.Context(), Config{PIDs: []int{pid}, Host: locate.Host{WaitForVerbs: true}})
			if err != nil {
				t.Fatal(err)
			}
			runUntil(t, tr, traffic(100))
			if err := tr.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestPIDNamespace(t *testing.T) {
	if err := checkPIDNamespace("/proc/self/ns/pid"); err != nil {
		t.Error(err)
	}
	other := filepath.Join(t.TempDir(), "pid")
	if err := os.Symlink("pid:[4026532345]", other); err != nil {
		t.Fatal(err)
	}
	if err := checkPIDNamespace(other); err == nil {
		t.Error("another namespace was taken for the initial one")
	}
}

// TestFollowerIsBounded: neither what waits nor what is said of it grows without
// end.
func TestFollowerIsBounded(t *testing.T) {
	f := newFollower(&targets{}, nil, nil)
	for range maxPending + 10 {
		f.add(change{what: newQP})
	}
	for i := range 2 * maxNotes {
		f.say(fmt.Errorf("fault %d", i))
	}
	if len(f.pending) != maxPending || len(f.notes) != maxNotes {
		t.Errorf("%d changes wait, %d notes", len(f.pending), len(f.notes))
	}
}

// endingFinder looks at a process that ends right then.
type endingFinder struct {
	finder
	end func()
}

func (f endingFinder) Scan(ctx context.Context, opt locate.Options) (*locate.Snapshot, error) {
	s, err := f.finder.Scan(ctx, opt)
	f.end()
	return s, err
}

// TestOneOfTwoEnds: what is left of the processes given is traced.
func TestOneOfTwoEnds(t *testing.T) {
	d := startDevice(t)
	_, short := d.pingpong()
	_, long := d.pingpong()
	shortPID, longPID := short.cmd.Process.Pid, long.cmd.Process.Pid
	open := func(pid int) (finder, error) {
		p, err := locate.Open(pid)
		if err == nil && pid == shortPID {
			return endingFinder{p, short.kill}, nil
		}
		return p, err
	}
	tr, err := New(t.Context(), Config{PIDs: []int{shortPID, longPID}, find: open})
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	runUntil(t, tr, func(e *event.Event) bool {
		if e.Kind == event.KindCompletion && int(e.PID) == longPID {
			n++
		}
		return n > 100
	})
	notes := strings.Join(tr.Context().Notes, "\n")
	if err := tr.Close(); err != nil {
		t.Error(err)
	}
	if !strings.Contains(notes, "it ended while probes were placed") {
		t.Errorf("the notes don't tell: %s", notes)
	}
}

// stuckFinder looks for ever, until it is told to stop.
type stuckFinder struct{ finder }

func (stuckFinder) Refresh() (bool, error) { return false, nil }

func (stuckFinder) Scan(ctx context.Context, _ locate.Options) (*locate.Snapshot, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestSecondLookStops: the second look at a process ends with the context, too.
func TestSecondLookStops(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	tg := &target{finder: stuckFinder{}}
	if err := tg.lookAgain(ctx); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// TestFoundInTheWindow: what is found after the window ended is not told, what was
// found before is told once.
func TestFoundInTheWindow(t *testing.T) {
	f := &follower{}
	f.found = []event.Event{{Time: 30}, {Time: 10}, {Time: 21}}
	times := func(until uint64) (out []uint64) {
		for _, e := range f.takeFound(until) {
			out = append(out, e.Time)
		}
		return out
	}
	for _, c := range []struct {
		until uint64
		want  []uint64
	}{{9, nil}, {20, []uint64{10}}, {20, nil}, {30, []uint64{21, 30}}, {40, nil}} {
		if got := times(c.until); !slices.Equal(got, c.want) {
			t.Errorf("until %d: %d, want %d", c.until, got, c.want)
		}
	}
}
