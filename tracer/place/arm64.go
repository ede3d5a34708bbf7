package place

import (
	"encoding/binary"

	"golang.org/x/arch/arm64/arm64asm"
)

// stepARM64 decodes one instruction of 4 bytes. What the kernel simulates is
// listed in arch/arm64/kernel/probes/decode-insn.c: branches, adr and adrp,
// literal loads. Hints have differed between kernels (nop is simulated since 6.13
// only), so they count as single-stepped, and paciasp ends the line: it signs the link
// register, which a return probe placed after it would replace unsigned.
func stepARM64(code []byte) (instruction, bool) {
	if len(code) < 4 {
		return instruction{}, false
	}
	word := binary.LittleEndian.Uint32(code)
	if hint, ok := hintsARM64[word]; ok {
		return hint, true
	}
	in, err := arm64asm.Decode(code[:4])
	if err != nil {
		return instruction{}, false
	}
	return instruction{
		size:        4,
		emulated:    emulatedARM64(word),
		transparent: transparentARM64(in),
		text:        arm64asm.GNUSyntax(in),
	}, true
}

var hintsARM64 = map[uint32]instruction{
	0xd503201f: {size: 4, transparent: true, text: "nop"},
	0xd503245f: {size: 4, transparent: true, text: "bti c"},
	0xd50324df: {size: 4, transparent: true, text: "bti jc"},
	0xd503233f: {size: 4, text: "paciasp"},
	0xd503237f: {size: 4, text: "pacibsp"},
}

// patternsARM64 match whole encodings: word & mask == value.
var patternsARM64 = []struct{ mask, value uint32 }{
	{0x7c000000, 0x14000000}, // b, bl
	{0xff000010, 0x54000000}, // b.cond
	{0x7e000000, 0x34000000}, // cbz, cbnz
	{0x7e000000, 0x36000000}, // tbz, tbnz
	{0x1f000000, 0x10000000}, // adr, adrp
	{0xbf000000, 0x18000000}, // ldr literal, 32 and 64 bits
	{0xfffffc1f, 0xd61f0000}, // br
	{0xfffffc1f, 0xd63f0000}, // blr
	{0xfffffc1f, 0xd65f0000}, // ret, but not retaa, where no probe can be
}

func emulatedARM64(word uint32) bool {
	for _, p := range patternsARM64 {
		if word&p.mask == p.value {
			return true
		}
	}
	return false
}

var (
	readOnlyARM64   = map[arm64asm.Op]bool{arm64asm.CMP: true, arm64asm.TST: true, arm64asm.CMN: true}
	writeFirstARM64 = map[arm64asm.Op]bool{
		arm64asm.MOV: true, arm64asm.MOVZ: true, arm64asm.LDR: true, arm64asm.ADD: true, arm64asm.SUB: true,
		arm64asm.AND: true, arm64asm.ORR: true, arm64asm.EOR: true,
	}
)

func transparentARM64(in arm64asm.Inst) bool {
	if readOnlyARM64[in.Op] {
		return true
	}
	if !writeFirstARM64[in.Op] {
		return false
	}
	for i, a := range in.Args {
		switch a := a.(type) {
		case arm64asm.Reg:
			if i == 0 && !scratchARM64(a) {
				return false
			}
		case arm64asm.RegSP:
			if i == 0 {
				return false
			}
		case arm64asm.MemImmediate:
			if a.Mode == arm64asm.AddrPreIndex || a.Mode == arm64asm.AddrPostIndex {
				return false // it writes its base register back
			}
		}
	}
	return true
}

// scratchARM64: not an argument (x0 to x7), not x8, not the frame pointer, link
// register or stack pointer.
func scratchARM64(r arm64asm.Reg) bool {
	return r >= arm64asm.X9 && r <= arm64asm.X28 || r >= arm64asm.W9 && r <= arm64asm.W28
}
