package pollpath

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/arch/arm64/arm64asm"

	"github.com/rdmatrace/rdmatrace/tracer/locate/code"
)

// Where control goes, what is loaded and stored, and which registers may be written is
// told by package code. Here is what it does not tell: values of 32 bits, choices,
// compares. Encodings are from the Arm Architecture Reference Manual, chapter C4.

var arm64 = isa{
	longest:  4,
	decode:   decodeARM64,
	text:     textARM64,
	result:   1, // x0
	scratch:  regs(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 30),
	returned: regs(0, 1, 16, 17, 30), // x16 and x17 are a linker's stub's
}

func textARM64(b []byte, _ uint64) string {
	in, err := arm64asm.Decode(b)
	if err != nil {
		return fmt.Sprintf(".inst %#08x", binary.LittleEndian.Uint32(b))
	}
	return arm64asm.GNUSyntax(in)
}

// a64 translates one instruction word.
type a64 struct {
	inst
	w uint32
}

func decodeARM64(b []byte, addr uint64) (inst, error) {
	in, err := code.ARM64{}.Decode(b, addr)
	if err != nil {
		return inst{}, err
	}
	a := a64{inst{size: 4, target: in.Target}, binary.LittleEndian.Uint32(b)}
	if addr%4 != 0 || !a.understood(in.Flow) {
		return inst{}, code.ErrUnknown
	}
	a.flow = flowsARM64[in.Flow]
	if in.Flow == code.Indirect {
		a.indirect, a.via = true, reg(in.Via)+1
	}
	if in.Flow == code.Branch {
		a.tells()
	}
	a.whole = a.flow != flowCall && !a.is(0xbfa07c00, 0x08207c00) // casp: it writes two pairs
	if a.flow != flowNext {
		return a.inst, nil
	}
	a.flags = !a.isOne(keepFlagsARM64)
	for i := range valuesARM64 {
		if e := &valuesARM64[i]; a.is(e.mask, e.word) {
			e.translate(&a)
			return a.inst, nil
		}
	}
	a.accesses(in.Effects())
	return a.inst, nil
}

var flowsARM64 = map[code.Flow]flow{code.Next: flowNext, code.Jump: flowJump, code.Branch: flowCond, code.Indirect: flowStop,
	code.Call: flowCall, code.Return: flowReturn, code.Stop: flowStop}

// understood: of the groups of encodings (bits 28 to 25) some are not allocated, nor is
// a branch that is not known a step to the next instruction.
func (a *a64) understood(f code.Flow) bool {
	switch op0 := a.bits(28, 25); op0 {
	case 0b0000, 0b0001, 0b0011:
		return false
	case 0b1010, 0b1011:
		return f != code.Next || a.is(0xffe0001f, 0xd4000001) || a.is(0xff000000, 0xd5000000) // svc, system
	}
	return true
}

// accesses takes what package code tells: loads from slots of the stack and stores to
// them, and other registers that are written. One access may move its base as well.
func (a *a64) accesses(effects []code.Effect) {
	moved := func(e code.Effect) bool { return e.Kind == code.Copy && e.Dst == e.Src }
	total, done := int64(0), int64(0)
	for _, e := range effects {
		if moved(e) {
			total += e.Imm
		}
	}
	for _, e := range effects {
		stack := (e.Base == 29 || e.Base == 31) && e.Index == code.NoReg
		slot := loc{reg: reg(e.Base) + 1, mem: true}
		switch {
		case e.Kind == code.Store && stack:
			// Slots are told off what the base is afterwards.
			slot.disp = e.Imm + done - total
			v := value{}
			if e.Src < 31 {
				v = value{kind: valueOf, from: loc{reg: reg(e.Src) + 1}, bits: 8 * uint(e.Size)}
			} else if e.Src == code.NoReg {
				v = value{kind: valueConst}
			}
			a.does = append(a.does, effect{dst: slot, bits: 64, values: []value{v}})
		case e.Kind == code.Store || e.Kind == code.Compare || e.Dst > 31:
		case e.Kind == code.Load && stack:
			slot.disp = e.Imm + done
			a.set(reg(e.Dst)+1, a.loads(e), value{kind: valueOf, from: slot, bits: 8 * uint(e.Size), signed: e.Signed})
		case e.Kind == code.Load:
			a.set(reg(e.Dst)+1, a.loads(e), a.entry(e))
		case moved(e):
			done += e.Imm
			a.set(reg(e.Dst)+1, 64, value{kind: valueOf, from: loc{reg: reg(e.Src) + 1}, bits: 64, by: e.Imm})
		case e.Kind == code.Const: // adr, adrp
			a.set(reg(e.Dst)+1, 64, value{kind: valueConst, by: e.Imm})
		default:
			a.set(reg(e.Dst)+1, 64, value{})
		}
	}
}

// entry is what is loaded of a table, if it is that.
func (a *a64) entry(e code.Effect) value {
	option := a.bits(15, 13)
	if e.Index > 30 || e.Base > 31 || e.Imm != 0 || 1<<e.Scale != e.Size || !a.is(0x3b200c00, 0x38200800) || option&2 == 0 {
		return value{}
	}
	return value{kind: valueLoad, from: loc{reg: reg(e.Base) + 1}, signed: e.Signed, by: int64(e.Size),
		index: operand{reg(e.Index) + 1, 32 << (option & 1)}}
}

// loads gives how many bits of its register a load writes, the rest being zeroed: of
// those that extend a sign there are both.
func (a *a64) loads(e code.Effect) uint {
	if e.Signed && a.is(0x38c00000, 0x38c00000) {
		return 32
	}
	return 64
}

// set adds that a register becomes one of the values; writes to xzr are none.
func (a *a64) set(r reg, bits uint, values ...value) {
	if r != noReg {
		a.does = append(a.does, effect{dst: loc{reg: r}, bits: bits, values: values})
	}
}

// held is what a register holds, plus by; that of xzr is 0.
func (a *a64) held(r reg, by int64) value {
	if r == noReg {
		return value{kind: valueConst, by: by}
	}
	return value{kind: valueOf, from: loc{reg: r}, bits: a.width(), by: by}
}
