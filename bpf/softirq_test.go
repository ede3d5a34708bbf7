package bpf

import (
	"runtime"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// likePreemptRT has kernel types as of PREEMPT_RT, where a task says that it handles
// softirqs: on the kernel that runs, the field is one that is never 0.
func likePreemptRT(t *testing.T) *btf.Spec {
	t.Helper()
	kernel, err := btf.LoadKernelSpec()
	if err != nil {
		t.Fatal(err)
	}
	kernel = kernel.Copy()
	var task *btf.Struct
	if err := kernel.TypeByName("task_struct", &task); err != nil {
		t.Fatal(err)
	}
	for _, m := range task.Members {
		if m.Name == "static_prio" {
			m.Name = "softirq_disable_cnt"
			task.Members = append(task.Members, m)
			return kernel
		}
	}
	t.Fatal("tasks have no static_prio")
	return nil
}

// TestSoftirqSwitchedOut: a softirq whose thread is switched out goes on when that
// comes back, with what others ran in between as nested time; those for which there
// is no room are counted, and are no interrupts nested too deep.
func TestSoftirqSwitchedOut(t *testing.T) {
	const vec = 3
	runtime.LockOSThread() // and never unlocked: the thread ends with the test
	here := unix.CPUSet{}
	here.Set(0)
	if err := unix.SchedSetaffinity(0, &here); err != nil {
		t.Fatal(err)
	}
	c := loadToRun(t, RdmaProgSoftirqEntry, RdmaProgSoftirqExit)
	spec, err := LoadRdma()
	if err != nil {
		t.Fatal(err)
	}
	spec.Programs = map[string]*ebpf.ProgramSpec{RdmaProgSchedSwitch: spec.Programs[RdmaProgSchedSwitch]}
	real, err := ebpf.NewCollectionWithOptions(spec, ebpf.CollectionOptions{
		Programs:        ebpf.ProgramOptions{KernelTypes: likePreemptRT(t)},
		MapReplacements: c.coll.Maps,
	})
	if err != nil {
		t.Fatalf("%+v", err)
	}
	defer real.Close()
	if err := c.coll.Variables[RdmaVarOpen].Set(uint8(1)); err != nil {
		t.Fatal(err)
	}
	l, err := link.AttachTracing(link.TracingOptions{Program: real.Programs[RdmaProgSchedSwitch]})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	cpu := func() (s RdmaCpuState) {
		if err := c.coll.Maps[RdmaMapCpus].Lookup(uint32(0), &s); err != nil {
			t.Fatal(err)
		}
		return s
	}
	var raised RdmaCpuState
	raised.Raised[vec].N = 1
	raised.Raised[vec].Link[0].Vec = 24
	if err := c.coll.Maps[RdmaMapCpus].Put(uint32(0), &raised); err != nil {
		t.Fatal(err)
	}
	c.run(RdmaProgSoftirqEntry, vec)
	begun := cpu()
	const away = 2 * time.Millisecond
	if err := unix.Nanosleep(&unix.Timespec{Nsec: int64(away)}, nil); err != nil { // others run
		t.Fatal(err)
	}
	back := cpu()
	if s, was := back.Interrupt[0], begun.Interrupt[0]; back.Depth != 1 || s.Begin != was.Begin || s.Vec != vec || s.Nested < uint64(away) {
		t.Errorf("it began as %+v and came back as %+v, %d deep", was, s, back.Depth)
	}
	if back.Led[0].Link[0].Vec != 24 || back.Led[0] != begun.Led[0] {
		t.Errorf("what led to it was %+v, and is %+v", begun.Led[0], back.Led[0])
	}
	for _, out := range back.SwitchedOut {
		if out.Tid == uint32(unix.Gettid()) {
			t.Error("its place is not free again")
		}
	}
	c.run(RdmaProgSoftirqExit, vec)
	if s := cpu(); s.Depth != 0 || s.Interrupt[0].Nested != 0 {
		t.Errorf("after its end: %d deep, %+v", s.Depth, s.Interrupt[0])
	}
	if n := c.count(RdmaCounterCOUNT_INTERRUPT_STRAY); n != 0 {
		t.Errorf("%d ends without begin", n)
	}

	// Others have taken all places.
	full := cpu()
	for i := range full.SwitchedOut {
		full.SwitchedOut[i].Tid = 1 << 30
	}
	if err := c.coll.Maps[RdmaMapCpus].Put(uint32(0), &full); err != nil {
		t.Fatal(err)
	}
	c.run(RdmaProgSoftirqEntry, vec)
	if err := unix.Nanosleep(&unix.Timespec{Nsec: int64(away)}, nil); err != nil {
		t.Fatal(err)
	}
	if n := cpu().Depth; n != 0 {
		t.Errorf("%d deep, without anything to come back to", n)
	}
	if n := c.count(RdmaCounterCOUNT_SOFTIRQS_OUT); n != 1 {
		t.Errorf("%d softirqs were not followed", n)
	}
	if n := c.count(RdmaCounterCOUNT_INTERRUPT_DEPTH); n != 0 {
		t.Errorf("%d interrupts are said to be nested too deep", n)
	}
}
