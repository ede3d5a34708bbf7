package guest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

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
	inGuest(t)
	// By the clock, however slow the CPU: what else is to run there, as rdmatrace begins, has its turns.
	hog := command(binary(t, "vm-duty"), "10000", "30000")
	got := disturbed(t, func(t *testing.T, client int) {
		hog.start(t)
		waitFor(t, "the hog to begin", func() bool {
			hog.running(t)
			return strings.HasPrefix(hog.output.String(), ready)
		})
		for _, pid := range []int{client, hog.Process.Pid} {
			bind(t, pid, busyCPU)
		}
	})
	name := fmt.Sprintf("vm-duty (pid %d)", hog.Process.Pid)
	preempted, who := got.both("scheduling.preempted")
	throttled, _ := got.both("scheduling.throttled")
	if preempted == 0 || !slices.Contains(who, name) || throttled != 0 {
		t.Errorf("preempted %d ns by %q, throttled %d ns; the hog is %s", preempted, who, throttled, name)
	}
	feature("task of higher priority", "preempted by it")
}
