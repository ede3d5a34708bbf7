// Package place chooses where in a function's first instructions a uprobe goes.
//
// The kernel emulates a few instructions and single-steps all others, which
// costs three times as much on bare metal and thirteen times in a guest whose
// debug exceptions are dear. So the probe goes on the first emulated
// instruction that is reached from the entry in a straight line while the
// arguments and the return address are still where the probe's program and
// the kernel's return probe expect them.
package place

import (
	"debug/elf"
	"fmt"
)

// Site is a place for a probe.
type Site struct {
	Offset   uint64 // bytes from the function's entry: the boundary of an instruction
	Emulated bool   // the kernel emulates the instruction there
	Why      string // for the plan: "push %rbp at the entry", "no emulated instruction before ..."
}

// maxInstructions bounds the straight line that is looked at. Prologues that
// keep the arguments intact for longer do not exist in the libraries of interest.
const maxInstructions = 8

// Entry chooses the site for an entry probe, which may be paired with a return
// probe, in a function whose machine code begins with code. It never returns
// a place whose boundary isn't proven: when nothing better is found, it is the
// entry itself.
func Entry(machine elf.Machine, code []byte) (Site, error) {
	step, ok := steppers[machine]
	if !ok {
		return Site{}, fmt.Errorf("choose a probe site: machine %v is not supported", machine)
	}
	off := uint64(0)
	first := ""
	for range maxInstructions {
		in, ok := step(code[off:])
		if !ok {
			break
		}
		if first == "" {
			first = in.text
		}
		if in.emulated {
			return Site{Offset: off, Emulated: true, Why: describe(off, in.text)}, nil
		}
		if !in.transparent {
			break
		}
		off += uint64(in.size)
	}
	if first == "" {
		return Site{}, fmt.Errorf("choose a probe site: the first instruction cannot be decoded")
	}
	return Site{Why: fmt.Sprintf("%s at the entry, single-stepped: no emulated instruction while the arguments are intact", first)}, nil
}

func describe(off uint64, text string) string {
	if off == 0 {
		return text + " at the entry, emulated"
	}
	return fmt.Sprintf("%s at entry+%d, emulated", text, off)
}

// Emulated says whether the kernel emulates the instruction that code holds.
func Emulated(machine elf.Machine, code []byte) bool {
	step, ok := steppers[machine]
	if !ok {
		return false
	}
	in, ok := step(code)
	return ok && in.emulated
}

// instruction is what Entry needs to know of one instruction.
type instruction struct {
	size     int
	emulated bool // by every kernel from 5.15 on
	// transparent: it falls through and leaves the argument registers, the
	// stack pointer and the return address alone.
	transparent bool
	text        string
}

// stepper decodes the instruction at the start of code.
type stepper func(code []byte) (instruction, bool)

var steppers = map[elf.Machine]stepper{
	elf.EM_X86_64:  stepX86,
	elf.EM_AARCH64: stepARM64,
}
