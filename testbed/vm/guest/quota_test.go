package guest

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"

	"github.com/rdmatrace/rdmatrace/event"
)

// confine puts processes into a new cgroup with a limit of CPU time, "us us" of each.
func confine(t *testing.T, dir, limit string, pids ...int) {
	t.Helper()
	put := func(file, value string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(value), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	put("/sys/fs/cgroup/cgroup.subtree_control", "+cpu")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	put(filepath.Join(dir, "cpu.max"), limit)
	for _, pid := range pids {
		put(filepath.Join(dir, "cgroup.procs"), strconv.Itoa(pid))
	}
}

// throttledFor is for how long CPUs of a cgroup were kept from running it so far, ns.
func throttledFor(t *testing.T, dir string) (ns int64) {
	t.Helper()
	stat, err := os.ReadFile(filepath.Join(dir, "cpu.stat"))
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(stat), "throttled_usec ")
	if _, err := fmt.Sscan(after, &ns); err != nil {
		t.Fatalf("%v: %s", err, stat)
	}
	return ns * 1000
}

// TestQuota: a client that its cgroup's quota takes off the CPU is throttled,
// as long at most as the kernel says.
func TestQuota(t *testing.T) {
	const dir = "/sys/fs/cgroup/quota"
	got := disturbed(t, func(t *testing.T, client int) { confine(t, dir, "20000 100000", client) })
	kernel := throttledFor(t, dir)
	if kernel == 0 {
		t.Fatal("nothing was throttled")
	}
	sends := got.Causes["scheduling.throttled"].TotalNS
	received := got.Received.Causes["scheduling.throttled"].TotalNS
	preempted, _ := got.both("scheduling.preempted")
	if most := max(sends, received); most > kernel || sends+received <= preempted {
		t.Errorf("throttled: sends %d ns, receives %d ns; the kernel says %d ns; preempted %d ns", sends, received, kernel, preempted)
	}
	feature("cgroup quota", "throttled")
}

// TestQuotaOfOthers: a client that sleeps until its completions come hardly uses its
// cgroup's quota up, but another task of the group does, on the same CPU. It is woken
// while the group may not run, or that happens while it waits: throttled, for as long at
// most as the kernel says.
func TestQuotaOfOthers(t *testing.T) {
	const dir = "/sys/fs/cgroup/others"
	got := beside(t, "ibv_rc_pingpong -e -g 0 -n 50", dir, "20000 100000")
	kernel := throttledFor(t, dir)
	sends := got.Causes["scheduling.throttled"].TotalNS
	received := got.Received.Causes["scheduling.throttled"].TotalNS
	queued, _ := got.both("scheduling.runqueue")
	preempted, _ := got.both("scheduling.preempted")
	t.Logf("throttled: sends %d ns, receives %d ns; the kernel says %d ns; runqueue %d ns, preempted %d ns", sends, received, kernel, queued, preempted)
	if most := max(sends, received); most > kernel {
		t.Errorf("throttled: sends %d ns, receives %d ns; the kernel says %d ns", sends, received, kernel)
	}
	// Of 100 ms the group has 20 of the CPU, which it shares with that task.
	if sends+received < queued+preempted {
		t.Errorf("throttled %d ns; runqueue %d ns, preempted %d ns", sends+received, queued, preempted)
	}
	begins, ends := quotaTold(t, got.events)
	if throttlesTasks(t) { // a task runs on until it would return to user mode, and leaves its CPU there
		begins = switchedThrottled(got.events)
	}
	if begins == 0 {
		t.Errorf("no thread was seen to be throttled while it waited, %d not to be any more", ends)
	}
	feature("cgroup quota used up by others while it waits", "throttled")
}

// throttlesTasks says whether the kernel throttles each task by itself, as since 6.18,
// and not all of a group on a CPU at once.
func throttlesTasks(t *testing.T) bool {
	t.Helper()
	spec, err := btf.LoadKernelSpec()
	if err != nil {
		t.Fatal(err)
	}
	var task *btf.Struct
	if err := spec.TypeByName("task_struct", &task); err != nil {
		t.Fatal(err)
	}
	return slices.ContainsFunc(task.Members, func(m btf.Member) bool { return m.Name == "throttled" })
}

// switchedThrottled counts the switches by which a thread left its CPU by its quota.
func switchedThrottled(events []event.Event) (n int) {
	for i := range events {
		if e := &events[i]; e.Kind == event.KindSwitch && e.Flags&event.SwitchThrottled != 0 {
			n++
		}
	}
	return n
}

// quotaTold counts the records of quotas, each of which must tell of a change: what the
// switch that a wait began with says is not told again.
func quotaTold(t *testing.T, events []event.Event) (begins, ends int) {
	t.Helper()
	events = slices.Clone(events)
	slices.SortStableFunc(events, func(a, b event.Event) int { return cmp.Compare(a.Time, b.Time) })
	throttled := map[uint32]bool{} // threads that wait
	for i := range events {
		switch e := &events[i]; e.Kind {
		case event.KindSwitch:
			delete(throttled, e.Sched.NextTID)
			if e.Sched.PrevState == 0 && e.Sched.PrevTID != 0 {
				throttled[e.Sched.PrevTID] = e.Flags&event.SwitchThrottled != 0
			}
		case event.KindQuota:
			begin := e.Flags == event.QuotaBegin
			if throttled[e.TID] == begin {
				t.Errorf("thread %d at %d: throttled %v, which was told before", e.TID, e.Time, begin)
			}
			throttled[e.TID] = begin
			if begin {
				begins++
			} else {
				ends++
			}
		}
	}
	return begins, ends
}

// TestQuotaNotUsedUp: with a quota that is never used up, waiting for the CPU that
// another task of the group has is what it is without.
func TestQuotaNotUsedUp(t *testing.T) {
	const dir = "/sys/fs/cgroup/ample"
	got := beside(t, "ibv_rc_pingpong -e -g 0 -n 50", dir, "1000000 100000")
	kernel := throttledFor(t, dir)
	throttled, _ := got.both("scheduling.throttled")
	queued, _ := got.both("scheduling.runqueue")
	if kernel != 0 || throttled != 0 || queued == 0 {
		t.Errorf("throttled %d ns, the kernel says %d ns; runqueue %d ns", throttled, kernel, queued)
	}
	feature("cgroup quota not used up", "runqueue")
}

// TestQuotaOfRealtime: the quota that others use up does not stop a client that is
// scheduled by a realtime priority.
func TestQuotaOfRealtime(t *testing.T) {
	const dir = "/sys/fs/cgroup/realtime"
	got := beside(t, "chrt -f 10 ibv_rc_pingpong -e -g 0 -n 200", dir, "1000 100000")
	if throttledFor(t, dir) == 0 {
		t.Fatal("nothing was throttled")
	}
	told := 0
	for i := range got.events {
		e := &got.events[i]
		if e.Kind == event.KindQuota || e.Kind == event.KindSwitch && e.Flags&event.SwitchThrottled != 0 {
			told++
		}
	}
	if throttled, _ := got.both("scheduling.throttled"); told != 0 || throttled != 0 {
		t.Errorf("throttled %d ns; its quota is told of %d times", throttled, told)
	}
	feature("cgroup quota of a realtime thread", "not throttled")
}

// beside traces a client that sleeps until its completions come, on a CPU with a task of
// its cgroup that never rests.
func beside(t *testing.T, argv, dir, limit string) *traced {
	t.Helper()
	inGuest(t)
	busy := command("sh", "-c", "while :; do :; done")
	return disturbedPair(t, argv, func(t *testing.T, client int) {
		busy.start(t)
		var one unix.CPUSet
		one.Set(1)
		for _, pid := range []int{client, busy.Process.Pid} {
			if err := unix.SchedSetaffinity(pid, &one); err != nil {
				t.Fatal(err)
			}
		}
		confine(t, dir, limit, client, busy.Process.Pid)
	})
}
