package unwind

import (
	"fmt"

	"github.com/go-delve/delve/pkg/dwarf/regnum"
)

// arch is what unwinding has to know about an architecture.
type arch struct {
	// DWARF numbers of the stack pointer, the frame pointer, the program counter
	// (noRegister: it has none), and the registers of Snapshot.Regs.
	sp, fp, pc uint64
	saved      [6]uint64
	// addressBits of a code pointer count, which may depend on the machine: the most first.
	// The ones above may hold a pointer authentication code.
	addressBits []uint
	// callPushes: a call stores the return address on the stack, so that every
	// frame is at least a word deep. Elsewhere a leaf may have none.
	callPushes bool
	sigreturn  sigreturn
}

const noRegister = columns

var arches = map[string]arch{
	"amd64": {
		sp: regnum.AMD64_Rsp, fp: regnum.AMD64_Rbp, pc: regnum.AMD64_Rip,
		saved: [6]uint64{
			regnum.AMD64_Rbx, regnum.AMD64_Rbp,
			regnum.AMD64_R12, regnum.AMD64_R13, regnum.AMD64_R14, regnum.AMD64_R15,
		},
		addressBits: []uint{64}, callPushes: true,
	},
	// User addresses are below 2^48, or 2^52 where kernel and CPU have such, and a program
	// asks for one by a hint to mmap (Documentation/arch/arm64/memory.rst). The kernel
	// does so for [uprobes] (xol_add_vma of kernel/events/uprobes.c).
	"arm64": {
		sp: regnum.ARM64_SP, fp: regnum.ARM64_BP, pc: noRegister,
		saved: [6]uint64{
			regnum.ARM64_LR,
			regnum.ARM64_X0 + 19, regnum.ARM64_X0 + 20, regnum.ARM64_X0 + 21,
			regnum.ARM64_X0 + 22, regnum.ARM64_X0 + 23,
		},
		addressBits: []uint{52, 48},
		sigreturn:   sigreturnARM64,
	},
}

func archOf(name string) (*arch, error) {
	a, ok := arches[name]
	if !ok {
		return nil, fmt.Errorf("unwind stacks of architecture %q: not supported", name)
	}
	return &a, nil
}

// registers are the ones whose value is known.
type registers struct {
	value [columns]uint64
	known uint64 // bit per register
}

func (r *registers) get(reg uint64) (uint64, bool) {
	if reg >= columns || r.known>>reg&1 == 0 {
		return 0, false
	}
	return r.value[reg], true
}

func (r *registers) set(reg, v uint64) {
	if reg < columns {
		r.value[reg] = v
		r.known |= 1 << reg
	}
}

func (r *registers) forget(reg uint64) { r.known &^= 1 << reg }

// registers of a snapshot.
func (a *arch) registers(s *Snapshot) registers {
	var r registers
	for i, reg := range a.saved {
		r.set(reg, s.Regs[i])
	}
	r.set(a.sp, s.SP)
	r.set(a.fp, s.FP)
	r.set(a.pc, s.IP) // the entries of .plt tell their frame by it
	return r
}
