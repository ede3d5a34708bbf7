// Package code reads machine code as far as it is needed to follow addresses:
// which constants and arguments a function passes on and stores where. Each
// instruction is reduced to a few effects on registers and memory and to where
// control goes next; whatever is not understood is said to be unknown.
//
// Boundaries of instructions are certain: code is reached from a function's
// entry only, and decoding stops at the first byte it does not know.
package code

import "errors"

// Reg is a location that holds one 64-bit word: a general register, or one
// half of a vector register, which compilers use to store two pointers at once.
type Reg uint8

// The numbering: x86-64 general registers by their encoding (rax 0, rcx 1, rdx
// 2, rbx 3, rsp 4, rbp 5, rsi 6, rdi 7, r8 8 ...), arm64 x0..x30 and sp 31.
const (
	vectorLow  Reg = 32 // 32..63: low halves
	vectorHigh Reg = 64 // 64..95: high halves
	regs           = 96
	NoReg      Reg = 255
)

func low(v uint8) Reg  { return vectorLow + Reg(v&31) }
func high(v uint8) Reg { return vectorHigh + Reg(v&31) }

// EffectKind says what an Effect does.
type EffectKind uint8

const (
	// Clobber: Dst becomes unknown.
	Clobber EffectKind = iota
	// Const: Dst = Imm.
	Const
	// Copy: Dst = Src + Imm.
	Copy
	// Add: Dst = Src + Index<<Scale, Index being extended as Size and Signed
	// say.
	Add
	// Load: Dst = the Size bytes at Base + Index*2^Scale + Imm, extended.
	Load
	// Store: the Size bytes at Base + Imm become Src. With an Index or an
	// unknown base the place is unknown.
	Store
	// Compare: flags of Src - Imm.
	Compare
	// Choose: Dst = Src or Index.
	Choose
	// Extend: Dst = the low Size bytes of Src, sign-extended.
	Extend
	// Scale: Dst = some number << Scale.
	Scale
)

// Effect is one thing an instruction does.
type Effect struct {
	Kind        EffectKind
	Dst, Src    Reg
	Base, Index Reg
	Scale       uint8 // bits
	Size        uint8 // bytes
	Signed      bool
	Imm         int64
}

// Flow says where control goes after an instruction.
type Flow uint8

const (
	Next     Flow = iota // to the next instruction
	Jump                 // to Target
	Branch               // to Target or the next
	Indirect             // to the address in Via
	Call                 // to Target (0: computed, or through the word at Slot), then the next
	Return
	Stop // never goes on: traps
)

// Inst is a decoded instruction.
type Inst struct {
	Addr    uint64
	Len     uint8
	Flow    Flow
	n       uint8
	effects [6]Effect
	Via     Reg
	Target  uint64
	Slot    uint64 // the constant address of a word through which Jump or Call goes
}

// Effects returns what the instruction does, in order.
func (i *Inst) Effects() []Effect { return i.effects[:i.n] }

// End is the address of the next instruction.
func (i *Inst) End() uint64 { return i.Addr + uint64(i.Len) }

func (i *Inst) add(e Effect) {
	if int(i.n) < len(i.effects) {
		i.effects[i.n] = e
		i.n++
	}
}

func (i *Inst) clobber(r ...Reg) {
	for _, r := range r {
		if r < regs {
			i.add(Effect{Kind: Clobber, Dst: r})
		}
	}
}

// ErrUnknown: the bytes are no instruction that the decoder knows.
var ErrUnknown = errors.New("unknown instruction")

// Machine decodes one architecture's code and knows its calling convention.
type Machine interface {
	// Decode reads the instruction at the beginning of b, which lies at addr.
	Decode(b []byte, addr uint64) (Inst, error)
	// Args are the registers of the first integer arguments.
	Args() []Reg
	// SP is the stack pointer.
	SP() Reg
	// Preserved says whether a call leaves r as it was.
	Preserved(r Reg) bool
}
