package calibrate

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
)

// samples is how many times a map holds; a power of two.
const samples = 4096

// A map's one value: the time stamp of the latest entry, and how often the thread
// had left its CPU by then; how many entries there were, and for the latest of them
// the time since the entry before; and the same for pairs and the time between
// their two stamps. A time is twice the nanoseconds, and one more if the thread left
// its CPU in it.
const (
	stampAt    = 0
	switchesAt = 8
	entriesAt  = 16
	pairsAt    = 24
	sinceAt    = 32
	betweenAt  = sinceAt + 8*samples
	valueSize  = betweenAt + 8*samples
)

// sample is a time that was measured.
type sample struct {
	ns          float64
	interrupted bool // the thread left its CPU in it
}

// probes of one function: an entry program, which may have a return program
// beside it.
type probes struct {
	times  *ebpf.Map
	enter  *ebpf.Program
	leave  *ebpf.Program
	placed []link.Link
}

// newProbes loads the programs: what every probe of the tracer does at least,
// a time stamp and an access to a map.
func newProbes() (*probes, error) {
	left, err := switchCounts()
	if err != nil {
		return nil, err
	}
	var p probes
	p.times, err = ebpf.NewMap(&ebpf.MapSpec{
		Name: "calibrate", Type: ebpf.Array, KeySize: 4, ValueSize: valueSize, MaxEntries: 1,
	})
	if err != nil {
		return nil, fmt.Errorf("create the calibration map: %w", err)
	}
	stamp := []asm.Instruction{
		asm.StoreMem(asm.R0, stampAt, asm.R6, asm.DWord),
		asm.StoreMem(asm.R0, switchesAt, asm.R8, asm.DWord),
	}
	if p.enter, err = load("calibrate_enter", p.keep(left, entriesAt, sinceAt, stamp...)); err == nil {
		p.leave, err = load("calibrate_leave", p.keep(left, pairsAt, betweenAt))
	}
	if err != nil {
		return nil, errors.Join(err, p.close())
	}
	return &p, nil
}

// switchCounts are the offsets in struct task_struct of how often a task left its
// CPU, of its own will (nvcsw) and not (nivcsw).
var switchCounts = sync.OnceValues(findSwitchCounts)

func findSwitchCounts() (at [2]int16, err error) {
	types, err := btf.LoadKernelSpec()
	if err != nil {
		return at, fmt.Errorf("read the kernel's type information: %w", err)
	}
	var task *btf.Struct
	if err := types.TypeByName("task_struct", &task); err != nil {
		return at, fmt.Errorf("find struct task_struct: %w", err)
	}
	for i, name := range []string{"nvcsw", "nivcsw"} {
		m := slices.IndexFunc(task.Members, func(m btf.Member) bool { return m.Name == name })
		if m < 0 || task.Members[m].Offset.Bytes() > math.MaxInt16 {
			return at, fmt.Errorf("find struct task_struct.%s", name)
		}
		at[i] = int16(task.Members[m].Offset.Bytes())
	}
	return at, nil
}

// keep takes the time, and keeps the time since the stamp in the map among
// those at an offset, counted by what is at another.
func (p *probes) keep(left [2]int16, count int16, times int32, before ...asm.Instruction) asm.Instructions {
	code := asm.Instructions{
		asm.FnKtimeGetNs.Call(),
		asm.Mov.Reg(asm.R6, asm.R0),
		asm.FnGetCurrentTaskBtf.Call(),
		asm.LoadMem(asm.R8, asm.R0, left[0], asm.DWord),
		asm.LoadMem(asm.R1, asm.R0, left[1], asm.DWord),
		asm.Add.Reg(asm.R8, asm.R1),
		asm.StoreImm(asm.RFP, -4, 0, asm.Word),
		asm.LoadMapPtr(asm.R1, p.times.FD()),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, -4),
		asm.FnMapLookupElem.Call(),
		asm.JNE.Imm(asm.R0, 0, "there"),
		asm.Return(),
		asm.LoadMem(asm.R7, asm.R0, stampAt, asm.DWord).WithSymbol("there"),
		asm.LoadMem(asm.R9, asm.R0, switchesAt, asm.DWord),
	}
	code = append(code, before...)
	return append(code,
		asm.Sub.Reg(asm.R6, asm.R7),
		asm.LSh.Imm(asm.R6, 1),
		asm.JEq.Reg(asm.R8, asm.R9, "whole"),
		asm.Or.Imm(asm.R6, 1),
		asm.LoadMem(asm.R1, asm.R0, count, asm.DWord).WithSymbol("whole"),
		asm.Mov.Reg(asm.R2, asm.R1),
		asm.Add.Imm(asm.R1, 1),
		asm.StoreMem(asm.R0, count, asm.R1, asm.DWord),
		asm.And.Imm(asm.R2, samples-1),
		asm.LSh.Imm(asm.R2, 3),
		asm.Add.Reg(asm.R0, asm.R2),
		asm.Add.Imm(asm.R0, times), // beyond what an instruction's offset holds
		asm.StoreMem(asm.R0, 0, asm.R6, asm.DWord),
	)
}

func load(name string, code asm.Instructions) (*ebpf.Program, error) {
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: name, Type: ebpf.Kprobe, License: "Dual BSD/GPL",
		Instructions: append(code, asm.Mov.Imm(asm.R0, 0), asm.Return()),
	})
	if err != nil {
		return nil, fmt.Errorf("load the calibration program: %w", err)
	}
	return prog, nil
}

// attach puts the probes on the function at an offset of the child's code.
func (p *probes) attach(c *child, offset int, withReturn bool) error {
	exe, err := link.OpenExecutable(c.path)
	if err != nil {
		return fmt.Errorf("attach calibration probes: %w", err)
	}
	opt := &link.UprobeOptions{Address: uint64(codeOffset + offset), PID: c.cmd.Process.Pid}
	l, err := exe.Uprobe("", p.enter, opt)
	if err == nil {
		p.placed = append(p.placed, l)
		if withReturn {
			if l, err = exe.Uretprobe("", p.leave, opt); err == nil {
				p.placed = append(p.placed, l)
			}
		}
	}
	if err != nil {
		return fmt.Errorf("attach calibration probes: %w", err)
	}
	return nil
}

// read returns the times between entries and those between the stamps of pairs.
func (p *probes) read() (since, between []sample, err error) {
	value := make([]uint64, valueSize/8)
	if err := p.times.Lookup(uint32(0), value); err != nil {
		return nil, nil, fmt.Errorf("read the calibration map: %w", err)
	}
	list := func(count, at int) []sample {
		all := make([]sample, min(value[count/8], samples))
		for i := range all {
			v := value[at/8+i]
			all[i] = sample{float64(v >> 1), v&1 != 0}
		}
		return all
	}
	return list(entriesAt, sinceAt), list(pairsAt, betweenAt), nil
}

// close takes the probes out. That waits for the kernel to be done with them,
// some 0.1 s each.
func (p *probes) close() error {
	var errs []error
	for _, l := range p.placed {
		errs = append(errs, l.Close())
	}
	return errors.Join(append(errs, p.enter.Close(), p.leave.Close(), p.times.Close())...)
}
