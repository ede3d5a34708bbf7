package calibrate

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
)

// samples is how many pairs the map holds; a power of two.
const samples = 1024

// A map's one value: the time stamp of the latest entry, the number of pairs,
// and for each of the latest pairs the time between its stamps, ns.
const (
	stampAt   = 0
	countAt   = 8
	betweenAt = 16
	valueSize = betweenAt + 8*samples
)

// probes are the programs for one kind of function, and their links.
type probes struct {
	times        *ebpf.Map
	entry, exit_ *ebpf.Program
	links        []link.Link
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
	if p.entry, err = load("calibrate_entry", p.begin("store"), asm.Instructions{
		asm.StoreMem(asm.R0, stampAt, asm.R6, asm.DWord).WithSymbol("store"),
	}); err == nil {
		p.exit_, err = load("calibrate_exit", p.begin("between"), asm.Instructions{
			asm.LoadMem(asm.R1, asm.R0, stampAt, asm.DWord).WithSymbol("between"),
			asm.Sub.Reg(asm.R6, asm.R1),
			asm.LoadMem(asm.R1, asm.R0, countAt, asm.DWord),
			asm.Mov.Reg(asm.R2, asm.R1),
			asm.Add.Imm(asm.R1, 1),
			asm.StoreMem(asm.R0, countAt, asm.R1, asm.DWord),
			asm.And.Imm(asm.R2, samples-1),
			asm.LSh.Imm(asm.R2, 3),
			asm.Add.Reg(asm.R0, asm.R2),
			asm.StoreMem(asm.R0, betweenAt, asm.R6, asm.DWord),
		})
	}
	if err != nil {
		return nil, errors.Join(err, p.close())
	}
	return &p, nil
}

// begin takes the time into R6 and the map's value into R0, and goes on at a
// symbol if there is one.
func (p *probes) begin(next string) asm.Instructions {
	return asm.Instructions{
		asm.FnKtimeGetNs.Call(),
		asm.Mov.Reg(asm.R6, asm.R0),
		asm.StoreImm(asm.RFP, -4, 0, asm.Word),
		asm.LoadMapPtr(asm.R1, p.times.FD()),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, -4),
		asm.FnMapLookupElem.Call(),
		asm.JNE.Imm(asm.R0, 0, next),
		asm.Return(),
	}
}

func load(name string, parts ...asm.Instructions) (*ebpf.Program, error) {
	var code asm.Instructions
	for _, p := range parts {
		code = append(code, p...)
	}
	code = append(code, asm.Mov.Imm(asm.R0, 0), asm.Return())
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: name, Type: ebpf.Kprobe, License: "Dual BSD/GPL", Instructions: code,
	})
	if err != nil {
		return nil, fmt.Errorf("load the calibration program: %w", err)
	}
	return prog, nil
}

// attach puts an entry probe on one function and a pair on another.
func (p *probes) attach(c *child, at [variants]int) error {
	exe, err := link.OpenExecutable(c.path)
	if err != nil {
		return fmt.Errorf("attach calibration probes: %w", err)
	}
	for _, a := range []struct {
		variant int
		prog    *ebpf.Program
		attach  func(string, *ebpf.Program, *link.UprobeOptions) (link.Link, error)
	}{
		{entry, p.entry, exe.Uprobe}, {pair, p.entry, exe.Uprobe}, {pair, p.exit_, exe.Uretprobe},
	} {
		l, err := a.attach("", a.prog, &link.UprobeOptions{
			Address: uint64(codeOffset + at[a.variant]), PID: c.cmd.Process.Pid,
		})
		if err != nil {
			return fmt.Errorf("attach calibration probes: %w", err)
		}
		p.links = append(p.links, l)
	}
	return nil
}

// between returns the times between the stamps of the latest pairs, ns.
func (p *probes) between() ([]float64, error) {
	var value [valueSize / 8]uint64
	if err := p.times.Lookup(uint32(0), &value); err != nil {
		return nil, fmt.Errorf("read the calibration map: %w", err)
	}
	n := min(value[countAt/8], samples)
	times := make([]float64, n)
	for i := range times {
		times[i] = float64(value[betweenAt/8+i])
	}
	return times, nil
}

// close takes the probes out. That waits for the kernel to be done with them,
// some 0.1 s each.
func (p *probes) close() error {
	var errs []error
	for _, l := range p.links {
		errs = append(errs, l.Close())
	}
	return errors.Join(append(errs, p.entry.Close(), p.exit_.Close(), p.times.Close())...)
}
