package guest

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
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

// TestQuota: a client that its cgroup's quota takes off the CPU is throttled,
// as long at most as the kernel says.
func TestQuota(t *testing.T) {
	dir := "/sys/fs/cgroup/quota"
	got := disturbed(t, func(t *testing.T, client int) {
		for _, f := range []struct{ file, value string }{
			{"/sys/fs/cgroup/cgroup.subtree_control", "+cpu"},
			{dir, ""},
			{filepath.Join(dir, "cpu.max"), "20000 100000"},
			{filepath.Join(dir, "cgroup.procs"), strconv.Itoa(client)},
		} {
			err := os.WriteFile(f.file, []byte(f.value), 0o644)
			if f.value == "" {
				err = os.Mkdir(f.file, 0o755)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	})
	stat, err := os.ReadFile(filepath.Join(dir, "cpu.stat"))
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(stat), "throttled_usec ")
	var kernel int64
	if _, err := fmt.Sscan(after, &kernel); err != nil || kernel == 0 {
		t.Fatalf("nothing was throttled: %v\n%s", err, stat)
	}
	kernel *= 1000
	sends := got.Causes["scheduling.throttled"].TotalNS
	received := got.Received.Causes["scheduling.throttled"].TotalNS
	preempted, _ := got.both("scheduling.preempted")
	if most := max(sends, received); most > kernel || sends+received <= preempted {
		t.Errorf("throttled: sends %d ns, receives %d ns; the kernel says %d ns; preempted %d ns", sends, received, kernel, preempted)
	}
	feature("cgroup quota", "throttled")
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
