package main

import (
	"context"
	"errors"
	"strconv"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	"github.com/rdmatrace/rdmatrace/tracer"
)

// empties are probes with an empty program at all places at which rdmatrace has
// one: no tracer that sees as much can cost less.
type empties struct {
	// The same twice: hits are counted by program.
	emulated, stepped *ebpf.Program
	links             []link.Link
}

// steppedName is of the one where the kernel single-steps the instruction.
const steppedName = "empty_stepped"

// placeEmpties puts them into a process.
func placeEmpties(ctx context.Context, pid int) (e *empties, err error) {
	plan, err := tracer.MakePlan(ctx, tracer.Config{PIDs: []int{pid}, EmptyPolls: true})
	if err != nil {
		return nil, err
	}
	e = &empties{}
	defer func() {
		if err != nil {
			err = errors.Join(err, e.close())
		}
	}()
	if e.emulated, err = empty("empty"); err != nil {
		return e, err
	}
	if e.stepped, err = empty(steppedName); err != nil {
		return e, err
	}
	type kind struct {
		library      string
		ret, stepped bool
	}
	places := map[kind][]uint64{}
	for _, t := range plan.Targets {
		for _, p := range t.Probes {
			k := kind{p.Library, p.Return, p.Stepped}
			places[k] = append(places[k], p.Offset)
		}
	}
	for k, addresses := range places {
		ex, err := link.OpenExecutable("/proc/" + strconv.Itoa(pid) + "/root" + k.library)
		if err != nil {
			return e, err
		}
		opts := &link.UprobeMultiOptions{Addresses: addresses, PID: uint32(pid)}
		attach := ex.UprobeMulti
		if k.ret {
			attach = ex.UretprobeMulti
		}
		prog := e.emulated
		if k.stepped {
			prog = e.stepped
		}
		l, err := attach(nil, prog, opts)
		if err != nil {
			return e, err
		}
		e.links = append(e.links, l)
	}
	return e, nil
}

func empty(name string) (*ebpf.Program, error) {
	return ebpf.NewProgram(&ebpf.ProgramSpec{
		Name: name, Type: ebpf.Kprobe, AttachType: ebpf.AttachTraceUprobeMulti, License: "Dual BSD/GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
	})
}

func (e *empties) close() error {
	var errs []error
	for _, l := range e.links {
		errs = append(errs, l.Close())
	}
	errs = append(errs, e.emulated.Close(), e.stepped.Close())
	return errors.Join(errs...)
}
