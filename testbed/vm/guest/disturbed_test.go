package guest

import (
	"fmt"
	"os"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rdmatrace/rdmatrace/testbed/outcome"
)

// disturbed traces a polling client that something holds up, from before its
// first work request to its end.
func disturbed(t *testing.T, disturb func(t *testing.T, client int)) *traced {
	t.Helper()
	inGuest(t)
	return disturbedPair(t, "ib_send_lat -x 0 -F -n 100", disturb)
}

func disturbedPair(t *testing.T, argv string, disturb func(t *testing.T, client int)) *traced {
	t.Helper()
	p := startPair(t, argv)
	disturb(t, p.client.Process.Pid)
	return p.traced(t)
}

// both sums a cause over sends and receives, with who was behind it.
func (r *report) both(name string) (ns int64, who []string) {
	for _, causes := range []map[string]outcome.Cause{r.Causes, r.Received.Causes} {
		ns += causes[name].TotalNS
		for _, w := range causes[name].Who {
			who = append(who, w.Name)
		}
	}
	return ns, who
}

// TestRealtimeHog: a client that a task of higher priority takes off its CPU is
// preempted by that task.
func TestRealtimeHog(t *testing.T) {
	hog := command("chrt", "-f", "10", "sh", "-c", "while :; do i=0; while [ $i -lt 3000 ]; do i=$((i+1)); done; sleep 0.01; done")
	got := disturbed(t, func(t *testing.T, client int) {
		hog.start(t)
		waitFor(t, "the hog to be what it will be", func() bool {
			hog.running(t)
			comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", hog.Process.Pid))
			return err == nil && string(comm) == "sh\n"
		})
		var one unix.CPUSet
		one.Set(1)
		for _, pid := range []int{client, hog.Process.Pid} {
			if err := unix.SchedSetaffinity(pid, &one); err != nil {
				t.Fatal(err)
			}
		}
	})
	name := fmt.Sprintf("sh (pid %d)", hog.Process.Pid)
	preempted, who := got.both("scheduling.preempted")
	throttled, _ := got.both("scheduling.throttled")
	if preempted == 0 || !slices.Contains(who, name) || throttled != 0 {
		t.Errorf("preempted %d ns by %q, throttled %d ns; the hog is %s", preempted, who, throttled, name)
	}
	feature("task of higher priority", "preempted by it")
}
