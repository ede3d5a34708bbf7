package calibrate

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
)

// samples is how many times a map holds; a power of two.
const samples = 4096

// A map's one value: the time stamp of the latest entry; how many entries there
// were, and for the latest of them the time since the entry before, ns; and the
// same for pairs and the time between their two stamps.
const (
	stampAt   = 0
	entriesAt = 8
	pairsAt   = 16
	sinceAt   = 24
	betweenAt = sinceAt + 8*samples
	valueSize = betweenAt + 8*samples
)

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
	var p probes
	var err error
	p.times, err = ebpf.NewMap(&ebpf.MapSpec{
		Name: "calibrate", Type: ebpf.Array, KeySize: 4, ValueSize: valueSize, MaxEntries: 1,
	})
	if err != nil {
		return nil, fmt.Errorf("create the calibration map: %w", err)
	}
	stamp := asm.StoreMem(asm.R0, stampAt, asm.R6, asm.DWord)
	if p.enter, err = load("calibrate_enter", p.sample(entriesAt, sinceAt, stamp)); err == nil {
		p.leave, err = load("calibrate_leave", p.sample(pairsAt, betweenAt))
	}
	if err != nil {
		return nil, errors.Join(err, p.close())
	}
	return &p, nil
}

// sample takes the time, and keeps the time since the stamp in the map among
// those at an offset, counted by what is at another.
func (p *probes) sample(count int16, times int32, before ...asm.Instruction) asm.Instructions {
	code := asm.Instructions{
		asm.FnKtimeGetNs.Call(),
		asm.Mov.Reg(asm.R6, asm.R0),
		asm.StoreImm(asm.RFP, -4, 0, asm.Word),
		asm.LoadMapPtr(asm.R1, p.times.FD()),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, -4),
		asm.FnMapLookupElem.Call(),
		asm.JNE.Imm(asm.R0, 0, "there"),
		asm.Return(),
		asm.LoadMem(asm.R7, asm.R0, stampAt, asm.DWord).WithSymbol("there"),
	}
	code = append(code, before...)
	return append(code,
		asm.Sub.Reg(asm.R6, asm.R7),
		asm.LoadMem(asm.R1, asm.R0, count, asm.DWord),
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

// read returns the times between entries and those between the stamps of pairs, ns.
func (p *probes) read() (since, between []float64, err error) {
	value := make([]uint64, valueSize/8)
	if err := p.times.Lookup(uint32(0), value); err != nil {
		return nil, nil, fmt.Errorf("read the calibration map: %w", err)
	}
	times := func(count, at int) []float64 {
		t := make([]float64, min(value[count/8], samples))
		for i := range t {
			t[i] = float64(value[at/8+i])
		}
		return t
	}
	return times(entriesAt, sinceAt), times(pairsAt, betweenAt), nil
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
