package guest

import (
	"bufio"
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rdmatrace/rdmatrace/testbed/outcome"
	"github.com/rdmatrace/rdmatrace/testbed/witness"
)

// competitor runs a task of higher priority for a third of the time on the
// client's CPU: run queues hold the client for as long as that task says it had
// the CPU meanwhile, and name it. It does not count what it takes to come and go:
// up to turnNS of 10 ms, on an emulated CPU.
func competitor(t *testing.T, argv string) {
	rival := command(binary(t, "vm-duty"), "10000", "30000")
	j := judged(t, argv, func() *process {
		rival.start(t)
		bind(t, rival.Process.Pid, busyCPU)
		waitFor(t, "the competitor to begin", func() bool {
			rival.running(t)
			return strings.HasPrefix(rival.output.String(), ready)
		})
		return rival
	})
	t.Cleanup(func() { keepText(t, ".turns", rival.output.String()) })
	busy := turns(t, rival.output.String())
	met := 0 // turns that held the client up, as each recorder saw it
	expected, stood := j.here(func(r *witness.Recording, s *stretch) uint64 {
		ns, n := s.heldUp(r, busy)
		met += n
		return ns
	})
	met /= len(places)
	name := fmt.Sprintf("vm-duty (pid %d)", rival.Process.Pid)
	queued, preempted := j.by("scheduling.runqueue", name), j.by("scheduling.preempted", name)
	off := float64(queued+preempted) - expected
	t.Logf("%d turns, %d met; runqueue %d ns and preempted %d ns by %s, %.0f ns by its own account: %+.1f %%",
		len(busy), met, queued, preempted, name, expected, 100*off/expected)
	if queued == 0 || math.Abs(off) > 0.02*expected+turnNS*float64(met)+stood {
		t.Errorf("charged to %s are %d ns and %d ns; it says %.0f ns", name, queued, preempted, expected)
	}
	feature("competing task of a third of a CPU", "charged as much as it took, by name")
}

// heldUp is for how long a thread waited for its CPU while others had it, ns, and how
// often.
func (s *stretch) heldUp(r *witness.Recording, others [][2]uint64) (ns uint64, n int) {
	for _, w := range r.Waits(s.tid, s.begin, s.end) {
		for _, o := range others {
			if begin, end := max(o[0], w.Begin), min(o[1], w.End); begin < end {
				ns += end - begin
				n++
			}
		}
	}
	return ns, n
}

// ready is what the competitor says first.
const ready = "ready\n"

// turnNS is how long a turn may take beside what the competitor says.
const turnNS = 1_000_000

// turns are when it computed.
func turns(t *testing.T, said string) (out [][2]uint64) {
	t.Helper()
	for line := range strings.Lines(strings.TrimPrefix(said, ready)) {
		var turn [2]uint64
		if _, err := fmt.Sscan(line, &turn[0], &turn[1]); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		out = append(out, turn)
	}
	return out
}

// by is what of a cause, over sends and receives, was charged to somebody.
func (r *report) by(cause, name string) (ns int64) {
	for _, c := range []map[string]outcome.Cause{r.Causes, r.Received.Causes} {
		for _, w := range c[cause].Who {
			if w.Name == name {
				ns += w.TotalNS
			}
		}
	}
	return ns
}

// takeInterrupts has a CPU handle all interrupts of a network device.
func takeInterrupts(t *testing.T, device string, cpu int) {
	t.Helper()
	virtio, err := os.Readlink("/sys/class/net/" + device + "/device")
	if err != nil {
		t.Fatal(err)
	}
	table, err := os.ReadFile("/proc/interrupts")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for s := bufio.NewScanner(bytes.NewReader(table)); s.Scan(); {
		if !strings.Contains(s.Text(), " "+filepath.Base(virtio)+"-") {
			continue
		}
		line, _, _ := strings.Cut(strings.TrimSpace(s.Text()), ":")
		affinity := "/proc/irq/" + line + "/smp_affinity_list"
		was, err := os.ReadFile(affinity)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(affinity, fmt.Appendln(nil, cpu), 0); err != nil {
			t.Logf("%s: %v", s.Text(), err) // that of the configuration stays where it is
			continue
		}
		t.Cleanup(func() { // the next test finds what this one found
			if err := os.WriteFile(affinity, was, 0); err != nil {
				t.Error(err)
			}
		})
		n++
	}
	if n == 0 {
		t.Fatalf("no interrupt of %s could be moved", device)
	}
}
