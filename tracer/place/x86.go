package place

import (
	"bytes"

	"golang.org/x/arch/x86/x86asm"
)

var endbr64 = []byte{0xf3, 0x0f, 0x1e, 0xfa}

// argumentsX86 are the registers a probe's program reads (System V ABI), and
// the stack pointer, at whose top a return probe expects the return address.
var argumentsX86 = map[x86asm.Reg]bool{
	x86asm.RDI: true, x86asm.RSI: true, x86asm.RDX: true, x86asm.RCX: true, x86asm.R8: true, x86asm.R9: true,
	x86asm.EDI: true, x86asm.ESI: true, x86asm.EDX: true, x86asm.ECX: true, x86asm.R8L: true, x86asm.R9L: true,
	x86asm.DI: true, x86asm.SI: true, x86asm.DX: true, x86asm.CX: true, x86asm.R8W: true, x86asm.R9W: true,
	x86asm.DIB: true, x86asm.SIB: true, x86asm.DL: true, x86asm.CL: true, x86asm.DH: true, x86asm.CH: true,
	x86asm.R8B: true, x86asm.R9B: true,
	x86asm.RSP: true, x86asm.ESP: true, x86asm.SP: true, x86asm.SPB: true,
}

func stepX86(code []byte) (instruction, bool) {
	// x86asm decodes endbr64 as a nop with prefixes in some versions and not at
	// all in others. The kernel single-steps it.
	if bytes.HasPrefix(code, endbr64) {
		return instruction{size: len(endbr64), transparent: true, text: "endbr64"}, true
	}
	in, err := x86asm.Decode(code, 64)
	if err != nil || in.Len <= 0 {
		return instruction{}, false
	}
	return instruction{
		size:        in.Len,
		emulated:    emulatedX86(code[:in.Len]),
		transparent: transparentX86(in),
		text:        x86asm.GNUSyntax(in, 0, nil),
	}, true
}

// emulatedX86 says whether the kernel emulates the instruction: those that
// push_setup_xol_ops and branch_setup_xol_ops of arch/x86/kernel/uprobes.c
// have taken since before 5.15. A 5-byte nop is left out: kernels that
// optimise it (6.18) wrote over the red zone of the user's stack.
func emulatedX86(code []byte) bool {
	op := code
	if op[0] == 0x41 && len(op) == 2 { // REX.B: push %r8 to %r15
		op = op[1:]
		return op[0] >= 0x50 && op[0] <= 0x57
	}
	switch {
	case op[0] >= 0x50 && op[0] <= 0x57 && len(op) == 1: // push
		return true
	case op[0] == 0x90 && len(op) == 1: // nop
		return true
	case op[0] == 0xeb, op[0] == 0xe9, op[0] == 0xe8: // jmp, call
		return true
	case op[0] >= 0x70 && op[0] <= 0x7f: // jcc rel8
		return true
	case op[0] == 0x0f && len(op) > 1 && op[1] >= 0x80 && op[1] <= 0x8f: // jcc rel32
		return true
	}
	return false
}

// readOnlyX86 only set flags; writeFirstX86 write their first operand and
// nothing else. What is in neither table is taken to do anything.
var (
	readOnlyX86   = map[x86asm.Op]bool{x86asm.TEST: true, x86asm.CMP: true, x86asm.NOP: true}
	writeFirstX86 = map[x86asm.Op]bool{
		x86asm.MOV: true, x86asm.MOVZX: true, x86asm.MOVSX: true, x86asm.MOVSXD: true, x86asm.LEA: true,
		x86asm.XOR: true, x86asm.AND: true, x86asm.OR: true, x86asm.ADD: true, x86asm.SUB: true,
		x86asm.SHL: true, x86asm.SHR: true, x86asm.SAR: true,
	}
)

func transparentX86(in x86asm.Inst) bool {
	if readOnlyX86[in.Op] {
		return true
	}
	if !writeFirstX86[in.Op] {
		return false
	}
	reg, ok := in.Args[0].(x86asm.Reg)
	// A store could write the return address: only registers are certain.
	return ok && !argumentsX86[reg]
}
