package bpf

import (
	"runtime"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/rlimit"
	"golang.org/x/sys/unix"

	"github.com/rdmatrace/rdmatrace/internal/testenv"
)

// onCPU0 runs programs of tracepoints one by one, with arguments of ours: as raw
// tracepoints, which is how the kernel lets them be run so.
type onCPU0 struct {
	*testing.T
	coll *ebpf.Collection
}

func loadToRun(t *testing.T, names ...string) *onCPU0 {
	t.Helper()
	testenv.Root(t)
	if err := rlimit.RemoveMemlock(); err != nil {
		t.Fatal(err)
	}
	spec, err := LoadRdma()
	if err != nil {
		t.Fatal(err)
	}
	run := map[string]*ebpf.ProgramSpec{}
	for _, name := range names {
		p := spec.Programs[name]
		p.Type, p.AttachType, p.AttachTo = ebpf.RawTracepoint, ebpf.AttachNone, ""
		run[name] = p
	}
	spec.Programs = run
	coll, err := ebpf.NewCollection(spec)
	if err != nil {
		t.Fatalf("%+v", err)
	}
	t.Cleanup(coll.Close)
	return &onCPU0{t, coll}
}

func (c *onCPU0) run(name string, args ...uint64) {
	c.Helper()
	var ctx [3]uint64
	copy(ctx[:], args)
	_, err := c.coll.Programs[name].Run(&ebpf.RunOptions{Context: ctx, Flags: unix.BPF_F_TEST_RUN_ON_CPU, CPU: 0})
	if err != nil {
		c.Fatalf("run %s: %v", name, err)
	}
}

func (c *onCPU0) count(which RdmaCounter) (n uint64) {
	c.Helper()
	var stats []RdmaStats
	if err := c.coll.Maps[RdmaMapStats].Lookup(uint32(0), &stats); err != nil {
		c.Fatal(err)
	}
	for i := range stats {
		n += stats[i].Counter[which]
	}
	return n
}

// TestInterruptEnds: the end of a handler that began before the gate opened is no loss,
// whatever interrupted it since; any other end whose begin was not seen is one.
func TestInterruptEnds(t *testing.T) {
	const vec = 3
	other := map[string][2]string{ // interrupts it
		"amd64": {"local_timer_entry", "local_timer_exit"},
		"arm64": {"ipi_entry", "ipi_exit"},
	}[runtime.GOARCH]
	c := loadToRun(t, other[0], other[1], RdmaProgSoftirqEntry, RdmaProgSoftirqExit)
	c.run(RdmaProgSoftirqEntry, vec)
	if err := c.coll.Variables[RdmaVarOpen].Set(uint8(1)); err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		program string
		strays  uint64
	}{
		{other[0], 0},
		{other[1], 0},
		{RdmaProgSoftirqExit, 0}, // of the one that had begun
		{RdmaProgSoftirqEntry, 0},
		{other[0], 0},
		{other[1], 0},
		{RdmaProgSoftirqExit, 0},
		{RdmaProgSoftirqExit, 1},
		{other[1], 2},
	} {
		c.run(step.program, vec)
		if got := c.count(RdmaCounterCOUNT_INTERRUPT_STRAY); got != step.strays {
			t.Errorf("after %s: %d interrupt ends without begin, want %d", step.program, got, step.strays)
		}
	}
}
