package tracer

import (
	"os"
	"os/exec"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

func TestAvoidCPUs(t *testing.T) {
	var before unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		t.Fatal(err)
	}
	if before.Count() < 2 {
		t.Skip("one CPU leaves no choice")
	}
	cpu := someCPUs(t, 1)[0]
	bound := exec.Command("taskset", "-c", strconv.Itoa(cpu), "sleep", "1000")
	free := exec.Command("sleep", "1000")
	for _, cmd := range []*exec.Cmd{bound, free} {
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}()
		waitFor(t, "the program to run", func() bool { return commOf(cmd.Process.Pid) == "sleep" })
	}
	var o ownCPUs
	if err := o.avoid([]int{free.Process.Pid}, 1); err != nil || o.moved {
		t.Errorf("moved %v, %v, for a process that may run anywhere", o.moved, err)
	}
	if err := o.avoid([]int{bound.Process.Pid}, before.Count()); err != nil || o.moved {
		t.Errorf("moved %v, %v, though too few CPUs are left", o.moved, err)
	}
	if err := o.avoid([]int{free.Process.Pid, bound.Process.Pid}, 1); err != nil || !o.moved {
		t.Fatalf("moved %v, %v", o.moved, err)
	}
	for _, tid := range threadsOf(os.Getpid()) {
		var set unix.CPUSet
		if err := unix.SchedGetaffinity(tid, &set); err == nil && set.IsSet(cpu) {
			t.Errorf("thread %d may still run on CPU %d", tid, cpu)
		}
	}
	if err := o.restore(); err != nil {
		t.Fatal(err)
	}
	for _, tid := range threadsOf(os.Getpid()) {
		var set unix.CPUSet
		if err := unix.SchedGetaffinity(tid, &set); err == nil && set != before {
			t.Errorf("thread %d was not given its CPUs back", tid)
		}
	}
}
