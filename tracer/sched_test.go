package tracer

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rdmatrace/rdmatrace/event"
	"github.com/rdmatrace/rdmatrace/internal/testenv"
)

// busy builds the fixture that leaves its CPU in a known way.
func busy(t *testing.T) string {
	t.Helper()
	testenv.Root(t)
	if _, err := exec.LookPath("gcc"); err != nil {
		testenv.Missing(t, "needs gcc")
	}
	out := filepath.Join(t.TempDir(), "busy")
	run(t, nil, "gcc", "-O1", "-o", out, "testdata/busy.c")
	return out
}

// hog burns a CPU under that name until the test ends.
func hog(t *testing.T, cpu int, name string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	shell, err := os.ReadFile("/bin/sh")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, shell, 0o755); err != nil {
		t.Fatal(err)
	}
	p := start(t, "taskset", "-c", strconv.Itoa(cpu), path, "-c", "while :; do :; done")
	waitFor(t, "the hog to run", func() bool { return commOf(p.cmd.Process.Pid) == name })
}

// someCPUs are the first n that this process may use.
func someCPUs(t *testing.T, n int) (cpus []int) {
	t.Helper()
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		t.Fatal(err)
	}
	for cpu := 0; cpu < 1024 && len(cpus) < n; cpu++ {
		if set.IsSet(cpu) {
			cpus = append(cpus, cpu)
		}
	}
	if len(cpus) < n {
		testenv.Missing(t, "needs %d CPUs", n)
	}
	return cpus
}

// switchedOut are the switches away from a thread.
func (r *recording) switchedOut(tid int) []event.Event {
	var out []event.Event
	for _, e := range r.events {
		if e.Kind == event.KindSwitch && e.Sched.PrevTID == uint32(tid) {
			out = append(out, e)
		}
	}
	return out
}

// TestLeavingTheCPU has a target yield, be preempted and sleep: the records
// must tell which, and who ran instead.
func TestLeavingTheCPU(t *testing.T) {
	path := busy(t)
	const name = "the-hog"
	cpu := someCPUs(t, 1)[0]
	for _, c := range []struct {
		mode    string
		syscall int32
		asleep  bool
	}{
		{"yield", unix.SYS_SCHED_YIELD, false},
		{"spin", -1, false},
		{"sleep", unix.SYS_CLOCK_NANOSLEEP, true}, // glibc's nanosleep
	} {
		t.Run(c.mode, func(t *testing.T) {
			hog(t, cpu, name)
			all, matching, toHog := 0, 0, 0
			rec := recordBusy(t, []string{"taskset", "-c", strconv.Itoa(cpu), path, c.mode, "1000000"}, func(e *event.Event, pid int) bool {
				if e.Kind != event.KindSwitch || e.Sched.PrevTID != uint32(pid) || cstring(e.Sched.PrevComm[:]) != "busy" {
					return false
				}
				all++
				if e.Sched.Syscall == c.syscall && (e.Sched.PrevState != 0) == c.asleep {
					matching++
					if cstring(e.Sched.NextComm[:]) == name {
						toHog++
					}
				}
				return toHog >= 20
			})
			rec.lossless(t)
			if chained := rec.sane(t); chained == 0 && !c.asleep {
				t.Error("no switch was recorded while a target waited")
			}
			// It may be taken off in another way too: while it asks how often it was.
			if 2*matching < all {
				t.Errorf("%d of %d switches in system call %d", matching, all, c.syscall)
			}
			t.Logf("%d of %d switches match, %d to %s", matching, all, toHog, name)
		})
	}
}

// recordBusy traces a command until enough says so, and ends it.
func recordBusy(t *testing.T, argv []string, enough func(e *event.Event, pid int) bool) *recording {
	t.Helper()
	tr, err := New(t.Context(), Config{Command: argv})
	if err != nil {
		t.Fatal(err)
	}
	rec := &recording{}
	pid := tr.Command().PID()
	done := false
	err = tr.Run(t.Context(), func(e *event.Event) error {
		rec.events = append(rec.events, *e)
		if !done && enough(e, pid) {
			done = true
			return unix.Kill(pid, unix.SIGKILL)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	rec.context = tr.Context()
	if err := tr.Close(); err != nil {
		t.Error(err)
	}
	<-tr.Command().Done()
	return rec
}

// sane checks what holds of every recording: intervals that are proper, and
// switches of a CPU that follow each other while a target waits there. It
// returns how many of those there were.
func (r *recording) sane(t *testing.T) (chained int) {
	t.Helper()
	events := slices.Clone(r.events)
	slices.SortStableFunc(events, func(a, b event.Event) int { return cmp.Compare(a.Time, b.Time) })
	waits := map[uint32]*event.Event{} // by thread: the switch that left it runnable
	lastOn := map[uint16]event.Event{} // by CPU
	hidden := r.hidden()
	bound := false // taskset has done its work: threads stay on their CPU
	for i := range events {
		e := &events[i]
		switch e.Kind {
		case event.KindTask:
			bound = bound || e.Object.Task.Event == event.TaskExec && e.Object.Task.Comm == "busy"
		case event.KindInterrupt:
			if e.IRQ.Begin > e.Time || e.IRQ.Nested > e.Time-e.IRQ.Begin {
				t.Errorf("interrupt from %d to %d, %d nested", e.IRQ.Begin, e.Time, e.IRQ.Nested)
			}
		case event.KindWaking:
			if e.Sched.Interrupt != 0 && (e.Sched.InterruptBegin == 0 || e.Sched.InterruptBegin > e.Time) {
				t.Errorf("waking at %d in an interrupt of %d", e.Time, e.Sched.InterruptBegin)
			}
			if s := &e.Sched; s.Interrupt != 0 && (s.IdleSince > s.InterruptBegin || s.ChainBegin > s.InterruptBegin) {
				t.Errorf("an interrupt of %d, the chain begins at %d, its CPU idles from %d on", s.InterruptBegin, s.ChainBegin, s.IdleSince)
			}
		case event.KindMigration:
			if s := waits[e.TID]; s != nil {
				moved := *s
				moved.CPU = e.CPU
				waits[e.TID] = &moved
			}
			delete(lastOn, e.CPU) // its switches are recorded from now on
		case event.KindSwitch:
			if s := waitingOn(waits, e.CPU); s != nil {
				if before, ok := lastOn[e.CPU]; ok && before.Sched.NextTID != e.Sched.PrevTID && !hidden[before.Sched.NextTID] {
					t.Errorf("CPU %d while thread %d waits: %d (%s) ran from %d, but %d (%s) is switched out at %d",
						e.CPU, s.Sched.PrevTID, before.Sched.NextTID, cstring(before.Sched.NextComm[:]), before.Time,
						e.Sched.PrevTID, cstring(e.Sched.PrevComm[:]), e.Time)
				}
				chained++
			}
			delete(waits, e.Sched.NextTID)
			if bound && e.Flags&event.SwitchPrevTarget != 0 && e.Sched.PrevState == 0 {
				waits[e.Sched.PrevTID] = e
			}
			lastOn[e.CPU] = *e
		}
	}
	return chained
}

// hidden are threads that are never seen to leave a CPU. On some machines the
// kernel doesn't tell of its own agents' switches, to any tracer.
func (r *recording) hidden() map[uint32]bool {
	out := map[uint32]bool{}
	for _, e := range r.events {
		if e.Kind == event.KindSwitch {
			out[e.Sched.NextTID] = true
		}
	}
	for _, e := range r.events {
		if e.Kind == event.KindSwitch {
			delete(out, e.Sched.PrevTID)
		}
	}
	return out
}

func waitingOn(waits map[uint32]*event.Event, cpu uint16) *event.Event {
	for _, s := range waits {
		if s.CPU == cpu {
			return s
		}
	}
	return nil
}

// TestWaker has a target sleep: the timer interrupt wakes it.
func TestWaker(t *testing.T) {
	pid, rec := recordCommand(t, []string{busy(t), "sleep", "50"})
	byTimer, all := 0, 0
	for _, e := range rec.events {
		if e.Kind != event.KindWaking || e.Sched.NextTID != uint32(pid) {
			continue
		}
		all++
		if e.Sched.Interrupt == event.InterruptTimer {
			byTimer++
		}
	}
	if byTimer < 40 {
		t.Errorf("%d of %d wakings by the timer", byTimer, all)
	}
}

// TestThrottled gives a target a quota and has it use it up: the switches away from it
// say so, each alone.
func TestThrottled(t *testing.T) {
	path := busy(t)
	group := cpuGroup(t)
	pid, rec := recordCommand(t, []string{"sh", "-c", fmt.Sprintf("echo $$ >%s/cgroup.procs && exec %s spin 10", group, path)})
	flagged := 0
	said := map[uint64]bool{} // when
	for _, e := range rec.switchedOut(pid) {
		if e.Flags&event.SwitchThrottled != 0 {
			flagged++
			said[e.Time] = true
		}
	}
	for _, e := range rec.events {
		if e.Kind == event.KindQuota && e.TID == uint32(pid) && said[e.Time] {
			t.Errorf("of the switch at %d it is told once more that it was by the quota", e.Time)
		}
	}
	periods := throttledPeriods(t, group)
	t.Logf("%d switches by quota, %d throttled periods", flagged, periods)
	if flagged == 0 || flagged > periods {
		t.Errorf("%d switches by quota, the kernel throttled %d times", flagged, periods)
	}
}

// cpuGroup makes a group that may use a fifth of a CPU, in either version of cgroups.
func cpuGroup(t *testing.T) string {
	t.Helper()
	name := fmt.Sprintf("rdmatrace-test-%d", os.Getpid())
	v1 := filepath.Join("/sys/fs/cgroup/cpu", name)
	v2 := filepath.Join("/sys/fs/cgroup", name)
	group, settings := v1, [][2]string{{"cpu.cfs_period_us", "20000"}, {"cpu.cfs_quota_us", "4000"}}
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		group, settings = v2, [][2]string{{"cpu.max", "4000 20000"}}
		// Enabled already, or not ours to enable: the write of cpu.max tells.
		_ = os.WriteFile("/sys/fs/cgroup/cgroup.subtree_control", []byte("+cpu"), 0)
	}
	if err := os.Mkdir(group, 0o755); err != nil {
		testenv.Missing(t, "needs a cgroup with CPU quotas: %v", err)
	}
	t.Cleanup(func() {
		waitFor(t, "the cgroup to be empty", func() bool { return os.Remove(group) == nil })
	})
	for _, s := range settings {
		if err := os.WriteFile(filepath.Join(group, s[0]), []byte(s[1]), 0); err != nil {
			testenv.Missing(t, "needs a cgroup with CPU quotas: %v", err)
		}
	}
	return group
}

func throttledPeriods(t *testing.T, group string) int {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(group, "cpu.stat"))
	if err != nil {
		t.Fatal(err)
	}
	var name string
	var value int
	for rest := string(raw); ; {
		n, err := fmt.Sscanf(rest, "%s %d\n", &name, &value)
		if n != 2 || err != nil {
			t.Fatalf("no nr_throttled in %q", raw)
		}
		if name == "nr_throttled" {
			return value
		}
		rest = rest[slices.Index([]byte(rest), '\n')+1:]
	}
}
