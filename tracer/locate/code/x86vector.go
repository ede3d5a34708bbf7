package code

import "golang.org/x/arch/x86/x86asm"

// vectorMove translates the instructions by which compilers put two words into
// a vector register and store them together: gcc does so from -O2 since its
// version 12. It reports whether it knew the instruction.
func vectorMove(d *x86) bool {
	kind, ok := vectorOps[d.x.Op]
	if !ok {
		return false
	}
	v := vector{x86: d}
	v.to, v.isVector = xmm(d.x.Args[0])
	v.mem, v.toMemory = d.x.Args[0].(x86asm.Mem)
	first, second := d.x.Args[0], d.x.Args[1]
	if kind.three && d.x.Args[2] != nil {
		first, second = d.x.Args[1], d.x.Args[2]
	}
	v.first, _ = xmm(first)
	v.src, v.fromVector = xmm(second)
	v.from, v.fromMemory = second.(x86asm.Mem)
	if r, ok := second.(x86asm.Reg); ok && !v.fromVector {
		if g, ok := gpr(r); ok && wide(r) == 8 {
			v.general, v.fromGeneral = g, true
		}
	}
	kind.translate(&v)
	return true
}

// vector holds the operands of one such instruction. In the three-operand forms
// of AVX, first is the register whose other half is kept.
type vector struct {
	*x86
	to, first, src                      uint8
	general                             Reg
	mem, from                           x86asm.Mem
	isVector, toMemory                  bool
	fromVector, fromMemory, fromGeneral bool
}

type vectorOp struct {
	three     bool // AVX: the first operand is only written
	translate func(*vector)
}

var vectorOps = map[x86asm.Op]vectorOp{
	x86asm.MOVQ: {false, (*vector).word}, x86asm.VMOVQ: {false, (*vector).word},
	x86asm.PUNPCKLQDQ: {false, (*vector).unpack}, x86asm.VPUNPCKLQDQ: {true, (*vector).unpack},
	x86asm.UNPCKLPD: {false, (*vector).unpack}, x86asm.VUNPCKLPD: {true, (*vector).unpack},
	x86asm.MOVLHPS: {false, (*vector).unpack}, x86asm.VMOVLHPS: {true, (*vector).unpack},
	x86asm.MOVHPS: {false, (*vector).highHalf}, x86asm.VMOVHPS: {true, (*vector).highHalf},
	x86asm.MOVHPD: {false, (*vector).highHalf}, x86asm.VMOVHPD: {true, (*vector).highHalf},
	x86asm.PINSRQ: {false, (*vector).insert}, x86asm.VPINSRQ: {true, (*vector).insert},
	x86asm.MOVAPS: {false, (*vector).whole}, x86asm.VMOVAPS: {false, (*vector).whole},
	x86asm.MOVUPS: {false, (*vector).whole}, x86asm.VMOVUPS: {false, (*vector).whole},
	x86asm.MOVAPD: {false, (*vector).whole}, x86asm.VMOVAPD: {false, (*vector).whole},
	x86asm.MOVUPD: {false, (*vector).whole}, x86asm.VMOVUPD: {false, (*vector).whole},
	x86asm.MOVDQA: {false, (*vector).whole}, x86asm.VMOVDQA: {false, (*vector).whole},
	x86asm.MOVDQU: {false, (*vector).whole}, x86asm.VMOVDQU: {false, (*vector).whole},
	x86asm.VMOVDQU64: {false, (*vector).whole}, x86asm.VMOVDQA64: {false, (*vector).whole},
}

// word: movq between a vector register's low half and anything.
func (v *vector) word() {
	if v.toMemory {
		v.store(v.mem, v.lowSource(), 8, 0)
		return
	}
	if !v.isVector {
		if r, ok := v.gpr(0); ok && v.fromVector {
			v.add(Effect{Kind: Copy, Dst: r, Src: low(v.src)})
		}
		return
	}
	v.put(low(v.to))
	v.add(Effect{Kind: Const, Dst: high(v.to)})
}

// unpack: the low halves of two registers side by side. The second may be the
// destination: it is read first.
func (v *vector) unpack() {
	v.put(high(v.to))
	v.keep(low(v.to), low(v.first))
}

// highHalf: movhps between a high half and memory.
func (v *vector) highHalf() {
	if v.toMemory {
		v.store(v.mem, high(v.src), 8, 0)
		return
	}
	v.keep(low(v.to), low(v.first))
	v.put(high(v.to))
}

// insert: pinsrq writes the half that its immediate names.
func (v *vector) insert() {
	last := v.x.Args[2]
	if v.x.Args[3] != nil {
		last = v.x.Args[3]
	}
	lane, ok := last.(x86asm.Imm)
	to, other, old := low(v.to), high(v.to), high(v.first)
	if lane&1 != 0 {
		to, other, old = high(v.to), low(v.to), low(v.first)
	}
	if !ok {
		v.clobber(to, other)
		return
	}
	v.keep(other, old)
	v.put(to)
}

// whole: both halves; of wider registers, the lower two words.
func (v *vector) whole() {
	switch {
	case v.toMemory:
		v.store(v.mem, low(v.src), 8, 0)
		v.store(v.mem, high(v.src), 8, 8)
	case v.fromMemory:
		v.load(low(v.to), v.from, 8, false)
		next := v.from
		next.Disp += 8
		v.load(high(v.to), next, 8, false)
	case v.fromVector:
		v.keep(low(v.to), low(v.src))
		v.keep(high(v.to), high(v.src))
	default:
		v.clobber(low(v.to), high(v.to))
	}
}

func (v *vector) keep(dst, src Reg) {
	if dst != src {
		v.add(Effect{Kind: Copy, Dst: dst, Src: src})
	}
}

func (v *vector) lowSource() Reg {
	if v.fromVector {
		return low(v.src)
	}
	return NoReg
}

// put writes the second operand's word into dst.
func (v *vector) put(dst Reg) {
	switch {
	case v.fromMemory:
		v.load(dst, v.from, 8, false)
	case v.fromVector:
		v.add(Effect{Kind: Copy, Dst: dst, Src: low(v.src)})
	case v.fromGeneral:
		v.add(Effect{Kind: Copy, Dst: dst, Src: v.general})
	default:
		v.clobber(dst)
	}
}
