package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/rdmatrace/rdmatrace/attribution"
	"github.com/rdmatrace/rdmatrace/internal/testenv"
)

// held is for how long a work request waited for its reaper to run, so that it
// is no matter of what is usual, ns.
const held = 1_000_000

// heldUp reports whether the truth log's completion was reaped that late.
func (w *measuredWR) heldUp() bool { return w.waited() > held }

// heldBy reports whether it waited for its reaper by what took ns: all of it, but
// for interrupts, what it takes to poll with cold caches, and what is said not to be sure.
func (w *measuredWR) heldBy(ns int64) bool {
	const cold = 20_000
	unsure := min(w.doubt(), w.in(attribution.Undecided))
	return ns+w.of(attribution.IRQOnTop, "")+unsure+cold >= w.waited()*95/100
}

// by is the scheduling time that a culprit, whose name begins so, is charged with, ns.
func (w *measuredWR) by(who string) (ns int64) {
	for c := attribution.Runqueue; c <= attribution.Throttled; c++ {
		ns += w.of(c, who)
	}
	return ns
}

// waiting is what those waited for their reaper that something holds of, 0 of others.
func waiting(holds func(w *measuredWR) bool) func(w *measuredWR) int64 {
	return func(w *measuredWR) int64 {
		if !holds(w) {
			return 0
		}
		return w.waited()
	}
}

// cpuTime is how long a process has run, ns (Documentation/scheduler/sched-stats.rst).
func cpuTime(t *testing.T, pid int) int64 {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/schedstat", pid))
	if err != nil {
		t.Fatal(err)
	}
	ns, err := strconv.ParseInt(strings.Fields(string(b))[0], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return ns
}

// blamed is what the report charges to a cause and a culprit, whose name begins so.
func (r *report) blamed(cause attribution.Cause, who string) (ns int64) {
	for _, c := range r.Causes[cause.FullName()].Who {
		if strings.HasPrefix(c.Name, who) {
			ns += c.TotalNS
		}
	}
	return ns
}

// withHog traces a poller of some niceness with a hog on its CPU, and without one,
// and demands what every hog's report has: its name, its time, and scheduling as
// the class of what is held up.
func withHog(t *trial, m matrix, job string, nice int, cause attribution.Cause) *seen {
	t.Helper()
	d := spinning(t.T, "LAT_NS=4000")
	p := d.job(t.T, job)
	if err := syscall.Setpriority(syscall.PRIO_PROCESS, p.Process.Pid, nice); err != nil {
		t.Fatal(err)
	}
	calm := traceFor(t.T, p.Process.Pid, 1000)
	hog := oracleHog(t.T)
	who := fmt.Sprintf("%s (pid %d)", hogName, hog)
	begin := cpuTime(t.T, hog)
	tr := attach(t.T, p.Process.Pid)
	attached := cpuTime(t.T, hog)
	tr.sees(t.T, 500)
	waitFor(t.T, "the hog to have had many turns", func() bool { return cpuTime(t.T, hog) > attached+300_000_000 })
	ending := cpuTime(t.T, hog)
	hogged := tr.stop(t.T)
	end := cpuTime(t.T, hog)
	p.running(t.T)
	p.stop()
	queues := d.truth(t.T)
	before, s := see(t, calm, queues), see(t, hogged, queues)
	for name, c := range before.Causes {
		for _, w := range c.Who {
			if strings.HasPrefix(w.Name, hogName) {
				t.Errorf("%s took %d ns by %s before it was there", w.Name, w.TotalNS, name)
			}
		}
	}
	// Not all of the hog's time is charged: some of it passes while the request
	// is on the wire, or where the program has none in flight. None is invented.
	got := s.blamed(cause, who)
	t.Logf("%s by %s: %d ms, it ran for %d to %d ms", cause, who, got/1e6, (ending-attached)/1e6, (end-begin)/1e6)
	t.within(got >= (ending-attached)/2 && got <= end-begin, "the hog's time is charged to "+cause.String()+", and no more",
		"%d ns, it ran for %d to %d: %+v", got, ending-attached, end-begin, s.Causes[cause.FullName()])
	if wholeOracle() && cause == attribution.Preempted { // where the poller gives way, the hog has a turn in front of nearly each
		sameElsewhere(t, before, s, (*measuredWR).heldUp)
	}
	late := stamped(t, where(s.wrs, (*measuredWR).heldUp), 10)
	// A machine that stands still just before the hog's turn makes some of them
	// late for that as well: 3 of 106 have been seen.
	t.atLeast(0.95, late, "of the scheduling class", func(w *measuredWR) bool { return w.heldBy(w.in(attribution.Scheduling)) })
	if cause != attribution.Runqueue { // others than the hog may do what they like
		t.atLeast(0.95, late, cause.String()+", as far as it was the hog", func(w *measuredWR) bool { return w.of(cause, hogName) >= w.by(hogName)*9/10 })
	}
	m.fill(s, cause, waiting((*measuredWR).heldUp))
	return s
}

func preempted(t *trial, m matrix) {
	s := withHog(t, m, "oracle-poller", 0, attribution.Preempted)
	if c := s.Causes[attribution.Yielded.FullName()]; c.TotalNS != 0 {
		t.Errorf("it never yields: %+v", c)
	}
}

func yielded(t *trial, m matrix) {
	withHog(t, m, "oracle-poller wait=yield", 0, attribution.Yielded)
}

// wokenLate: it sleeps until its event and is woken in time, but the hog goes on.
// It may also be preempted before it sleeps, or after it was woken.
func wokenLate(t *trial, m matrix) {
	s := withHog(t, m, "oracle-poller wait=event", 19, attribution.Runqueue)
	late := stamped(t, where(s.wrs, (*measuredWR).heldUp), 10)
	t.atLeast(0.95, late, "woken or preempted", func(w *measuredWR) bool {
		return w.heldBy(w.of(attribution.Runqueue, "") + w.of(attribution.Preempted, ""))
	})
	t.atLeast(0.5, late, "woken", func(w *measuredWR) bool { return w.heldBy(w.of(attribution.Runqueue, "")) })
}

// throttled: the job's cgroup may use a tenth of a CPU.
func throttled(t *trial, m matrix) {
	d := spinning(t.T, "LAT_NS=4000")
	p := d.job(t.T, "oracle-poller")
	calm := traceFor(t.T, p.Process.Pid, 2000)
	limit(t.T, p.Process.Pid, 2_000, 20_000)
	tr := attach(t.T, p.Process.Pid)
	tr.sees(t.T, 8000)
	got := tr.stop(t.T)
	p.running(t.T)
	p.stop()
	queues := d.truth(t.T)
	before, s := see(t, calm, queues), see(t, got, queues)
	// What waits longer than a hog of the machine holds it up, but for the quota's sake.
	long := func(w *measuredWR) bool { return w.waited() > 10_000_000 }
	sameElsewhere(t, before, s, long)
	late := stamped(t, where(s.wrs, long), 20)
	t.atLeast(0.99, late, "of the scheduling class", func(w *measuredWR) bool { return w.heldBy(w.in(attribution.Scheduling)) })
	t.atLeast(0.95, late, "throttled", func(w *measuredWR) bool { return w.of(attribution.Throttled, "") >= w.waited()/2 })
	m.fill(s, attribution.Throttled, waiting(long))
}

// limit puts a process into a cgroup of its own that may run for quota of each
// period, both in microseconds, by whichever version of cgroups has the CPU controller.
func limit(t *testing.T, pid int, quota, period int) {
	t.Helper()
	name := fmt.Sprintf("rdmatrace-oracle-%d", pid)
	if dir, ok := cgroup2(t); ok {
		group := cgroupDir(t, filepath.Join(dir, name), filepath.Join(dir, "cgroup.procs"))
		write(t, filepath.Join(group, "cpu.max"), fmt.Sprintf("%d %d", quota, period))
		write(t, filepath.Join(group, "cgroup.procs"), fmt.Sprint(pid))
		return
	}
	for _, dir := range []string{"/sys/fs/cgroup/cpu", "/sys/fs/cgroup/cpu,cpuacct"} {
		if _, err := os.Stat(filepath.Join(dir, "cpu.cfs_quota_us")); err == nil {
			group := cgroupDir(t, filepath.Join(dir, name), filepath.Join(dir, "cgroup.procs"))
			write(t, filepath.Join(group, "cpu.cfs_period_us"), fmt.Sprint(period))
			write(t, filepath.Join(group, "cpu.cfs_quota_us"), fmt.Sprint(quota))
			write(t, filepath.Join(group, "cgroup.procs"), fmt.Sprint(pid))
			return
		}
	}
	testenv.Missing(t, "no CPU quota: neither does /sys/fs/cgroup have the cpu controller of cgroup v2, nor is there a cgroup v1 with cpu.cfs_quota_us")
}

// cgroup2 is the root of a cgroup v2 hierarchy that hands its CPU controller down.
func cgroup2(t *testing.T) (string, bool) {
	t.Helper()
	const dir = "/sys/fs/cgroup"
	b, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if err != nil || !strings.Contains(" "+strings.TrimSpace(string(b))+" ", " cpu ") {
		return "", false
	}
	if err := os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+cpu"), 0); err != nil {
		testenv.Missing(t, "no CPU quota: enable the cpu controller in %s: %v", dir, err)
	}
	return dir, true
}

// cgroupDir makes a cgroup and removes it at the end, when who is still in it
// goes to the parent's.
func cgroupDir(t *testing.T, dir, parent string) string {
	t.Helper()
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		b, _ := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		for _, pid := range strings.Fields(string(b)) {
			_ = os.WriteFile(parent, []byte(pid), 0)
		}
		waitFor(t, "the cgroup to go", func() bool { return os.Remove(dir) == nil })
	})
	return dir
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0); err != nil {
		t.Fatal(err)
	}
}
