package code

import "golang.org/x/arch/x86/x86asm"

// AMD64 decodes x86-64 code of the System V calling convention.
type AMD64 struct{}

// Args: rdi, rsi, rdx, rcx, r8, r9.
func (AMD64) Args() []Reg { return []Reg{7, 6, 2, 1, 8, 9} }

// SP is rsp.
func (AMD64) SP() Reg { return 4 }

// Preserved: rbx, rsp, rbp, r12 to r15.
func (AMD64) Preserved(r Reg) bool {
	return r == 3 || r == 4 || r == 5 || r >= 12 && r <= 15
}

var endbr64 = [4]byte{0xf3, 0x0f, 0x1e, 0xfa}

// Decode reads one instruction.
func (AMD64) Decode(b []byte, addr uint64) (Inst, error) {
	if len(b) >= 4 && [4]byte(b) == endbr64 {
		return Inst{Addr: addr, Len: 4}, nil
	}
	x, err := x86asm.Decode(b, 64)
	// A prefix alone decodes as an instruction without an operation.
	if err != nil || x.Op == 0 || x.Len == 0 || x.Len > len(b) {
		return Inst{}, ErrUnknown
	}
	d := x86{Inst{Addr: addr, Len: uint8(x.Len)}, x}
	d.decode()
	return d.Inst, nil
}

// x86 translates one instruction of x86asm.
type x86 struct {
	Inst
	x x86asm.Inst
}

func (d *x86) decode() {
	switch op := d.x.Op; op {
	case x86asm.RET, x86asm.LRET, x86asm.IRET, x86asm.IRETD, x86asm.IRETQ:
		d.Flow = Return
	case x86asm.UD0, x86asm.UD1, x86asm.UD2, x86asm.HLT, x86asm.INT:
		d.Flow = Stop
	case x86asm.JMP:
		d.transfer(Jump)
	case x86asm.CALL:
		d.transfer(Call)
	case x86asm.LEA:
		d.lea()
	case x86asm.MOV, x86asm.MOVSXD, x86asm.MOVSX, x86asm.MOVZX:
		d.move()
	case x86asm.ADD, x86asm.SUB:
		d.addSub()
	case x86asm.XOR:
		if a, ok := d.gpr(0); ok && d.x.Args[0] == d.x.Args[1] {
			d.add(Effect{Kind: Const, Dst: a})
			return
		}
		d.unknown()
	case x86asm.CMP:
		if imm, ok := d.x.Args[1].(x86asm.Imm); ok {
			src := NoReg
			if r, ok := d.gpr(0); ok {
				src = r
			}
			d.add(Effect{Kind: Compare, Src: src, Imm: int64(imm)})
		}
	case x86asm.TEST:
	case x86asm.CDQE:
		d.add(Effect{Kind: Extend, Dst: 0, Src: 0, Size: 4})
	case x86asm.PUSH:
		d.add(Effect{Kind: Copy, Dst: 4, Src: 4, Imm: -8})
		r, ok := d.gpr(0)
		if !ok {
			r = NoReg
		}
		d.add(Effect{Kind: Store, Base: 4, Index: NoReg, Src: r, Size: 8})
	case x86asm.POP:
		if r, ok := d.gpr(0); ok {
			d.add(Effect{Kind: Load, Dst: r, Base: 4, Index: NoReg, Size: 8})
		}
		d.add(Effect{Kind: Copy, Dst: 4, Src: 4, Imm: 8})
	case x86asm.LEAVE:
		d.add(Effect{Kind: Copy, Dst: 4, Src: 5})
		d.add(Effect{Kind: Load, Dst: 5, Base: 4, Index: NoReg, Size: 8})
		d.add(Effect{Kind: Copy, Dst: 4, Src: 4, Imm: 8})
	default:
		if !d.branch() && !vectorMove(d) && !d.conditional() {
			d.unknown()
		}
	}
}

// branch translates conditional jumps: their one operand is relative.
func (d *x86) branch() bool {
	rel, ok := d.x.Args[0].(x86asm.Rel)
	if !ok {
		return false
	}
	d.Flow = Branch
	d.Target = d.End() + uint64(int64(rel))
	return true
}

// conditional translates cmov: what was there, or the other register.
func (d *x86) conditional() bool {
	dst, ok1 := d.gpr(0)
	src, ok2 := d.gpr(1)
	if !conditionalMoves[d.x.Op] || !ok1 || !ok2 || wide(d.x.Args[0]) != 8 {
		return false
	}
	d.add(Effect{Kind: Choose, Dst: dst, Src: dst, Index: src})
	return true
}

var conditionalMoves = map[x86asm.Op]bool{
	x86asm.CMOVA: true, x86asm.CMOVAE: true, x86asm.CMOVB: true, x86asm.CMOVBE: true, x86asm.CMOVE: true,
	x86asm.CMOVG: true, x86asm.CMOVGE: true, x86asm.CMOVL: true, x86asm.CMOVLE: true, x86asm.CMOVNE: true,
	x86asm.CMOVNO: true, x86asm.CMOVNP: true, x86asm.CMOVNS: true, x86asm.CMOVO: true, x86asm.CMOVP: true,
	x86asm.CMOVS: true,
}

func (d *x86) transfer(f Flow) {
	d.Flow = f
	switch a := d.x.Args[0].(type) {
	case x86asm.Rel:
		d.Target = d.End() + uint64(int64(a))
	case x86asm.Mem:
		if slot, ok := d.constant(a); ok {
			d.Slot = slot
		} else if f == Jump {
			// A table of addresses: jmp *table(,index,8).
			d.Flow, d.Via = Indirect, NoReg
		}
	case x86asm.Reg:
		if f == Jump {
			d.Flow, d.Via = Indirect, NoReg
			if r, ok := gpr(a); ok {
				d.Via = r
			}
		}
	}
}

func (d *x86) lea() {
	dst, ok := d.gpr(0)
	m, ok2 := d.x.Args[1].(x86asm.Mem)
	if !ok || !ok2 || wide(d.x.Args[0]) != 8 {
		d.unknown()
		return
	}
	if c, ok := d.constant(m); ok {
		d.add(Effect{Kind: Const, Dst: dst, Imm: int64(c)})
		return
	}
	base, ok := gpr(m.Base)
	switch {
	case m.Base == 0 && m.Index != 0 && m.Disp == 0:
		d.add(Effect{Kind: Scale, Dst: dst, Scale: log2(m.Scale)})
	case ok && m.Index == 0:
		d.add(Effect{Kind: Copy, Dst: dst, Src: base, Imm: m.Disp})
	default:
		d.unknown()
	}
}

func (d *x86) move() {
	size := uint8(d.x.MemBytes)
	if m, ok := d.x.Args[0].(x86asm.Mem); ok {
		d.store(m, d.source(1), size, 0)
		return
	}
	dst, ok := d.gpr(0)
	if !ok {
		return
	}
	if wide(d.x.Args[0]) < 4 {
		d.clobber(dst)
		return
	}
	switch src := d.x.Args[1].(type) {
	case x86asm.Mem:
		d.load(dst, src, size, d.x.Op != x86asm.MOVZX && d.x.Op != x86asm.MOV)
	case x86asm.Imm:
		d.add(Effect{Kind: Const, Dst: dst, Imm: int64(src)})
	case x86asm.Reg:
		s, ok := gpr(src)
		switch {
		case ok && wide(src) == 8 && wide(d.x.Args[0]) == 8 && d.x.Op == x86asm.MOV:
			d.add(Effect{Kind: Copy, Dst: dst, Src: s})
		case ok && wide(src) == 4 && d.x.Op == x86asm.MOVSXD:
			d.add(Effect{Kind: Extend, Dst: dst, Src: s, Size: 4})
		default:
			d.clobber(dst)
		}
	default:
		d.clobber(dst)
	}
}

func (d *x86) addSub() {
	dst, ok := d.gpr(0)
	if imm, isImm := d.x.Args[1].(x86asm.Imm); isImm && ok && d.x.Op == x86asm.SUB {
		d.add(Effect{Kind: Compare, Src: dst, Imm: int64(imm)})
	}
	if !ok || wide(d.x.Args[0]) != 8 {
		d.unknown()
		return
	}
	switch src := d.x.Args[1].(type) {
	case x86asm.Imm:
		imm := int64(src)
		if d.x.Op == x86asm.SUB {
			imm = -imm
		}
		d.add(Effect{Kind: Copy, Dst: dst, Src: dst, Imm: imm})
	case x86asm.Reg:
		if s, ok := gpr(src); ok && d.x.Op == x86asm.ADD {
			d.add(Effect{Kind: Add, Dst: dst, Src: dst, Index: s, Size: 8})
			return
		}
		d.clobber(dst)
	default:
		d.clobber(dst)
	}
}

// unknown clobbers what an instruction without a translation may write: its
// first operand, the implied registers of the wide multiplications and
// divisions, and a second register operand that is exchanged.
func (d *x86) unknown() {
	for _, a := range d.x.Args[:2] {
		if v, ok := xmm(a); ok {
			d.clobber(low(v), high(v))
		} else if r, ok := a.(x86asm.Reg); ok {
			if g, ok := gpr(r); ok {
				d.clobber(g)
			}
		}
		if d.x.Op != x86asm.XCHG && d.x.Op != x86asm.XADD {
			break
		}
	}
	if m, ok := d.x.Args[0].(x86asm.Mem); ok {
		d.store(m, NoReg, uint8(d.x.MemBytes), 0)
	}
	if regs, ok := implied[d.x.Op]; ok {
		d.clobber(regs...)
	}
}

// implied registers that an instruction writes without naming them.
var implied = map[x86asm.Op][]Reg{
	x86asm.MUL: {0, 2}, x86asm.IMUL: {0, 2}, x86asm.DIV: {0, 2}, x86asm.IDIV: {0, 2},
	x86asm.CDQ: {2}, x86asm.CQO: {2}, x86asm.CWDE: {0}, x86asm.CWD: {2}, x86asm.CBW: {0},
	x86asm.CMPXCHG: {0}, x86asm.CMPXCHG16B: {0, 2}, x86asm.CMPXCHG8B: {0, 2},
	x86asm.RDTSC: {0, 2}, x86asm.RDTSCP: {0, 1, 2}, x86asm.CPUID: {0, 1, 2, 3},
	x86asm.MOVSB: {6, 7, 1}, x86asm.MOVSD: {6, 7, 1}, x86asm.MOVSQ: {6, 7, 1}, x86asm.MOVSW: {6, 7, 1},
	x86asm.STOSB: {7, 1}, x86asm.STOSD: {7, 1}, x86asm.STOSQ: {7, 1}, x86asm.STOSW: {7, 1},
	x86asm.LODSB: {0, 6}, x86asm.LODSQ: {0, 6}, x86asm.SCASB: {7, 1}, x86asm.CMPSB: {6, 7, 1},
	x86asm.SYSCALL: {0, 1, 11}, x86asm.XGETBV: {0, 2}, x86asm.LAHF: {0},
}

func (d *x86) load(dst Reg, m x86asm.Mem, size uint8, signed bool) {
	e := Effect{Kind: Load, Dst: dst, Base: NoReg, Index: NoReg, Size: size, Signed: signed, Imm: m.Disp}
	if m.Segment != 0 {
		d.clobber(dst)
		return
	}
	if c, ok := d.constant(m); ok {
		e.Imm = int64(c)
		d.add(e)
		return
	}
	if r, ok := gpr(m.Base); ok {
		e.Base = r
	}
	if r, ok := gpr(m.Index); ok && m.Index != 0 {
		e.Index, e.Scale = r, log2(m.Scale)
	}
	if e.Base == NoReg && e.Index == NoReg {
		d.clobber(dst)
		return
	}
	d.add(e)
}

func (d *x86) store(m x86asm.Mem, src Reg, size uint8, more int64) {
	e := Effect{Kind: Store, Src: src, Base: NoReg, Index: NoReg, Size: size, Imm: m.Disp + more}
	if r, ok := gpr(m.Base); ok && m.Segment == 0 {
		e.Base = r
	}
	if r, ok := gpr(m.Index); ok && m.Index != 0 {
		e.Index = r
	}
	d.add(e)
}

// constant is the address that a memory operand names relative to the
// instruction.
func (d *x86) constant(m x86asm.Mem) (uint64, bool) {
	if m.Base != x86asm.RIP || m.Index != 0 || m.Segment != 0 {
		return 0, false
	}
	return d.End() + uint64(m.Disp), true
}

// source is the register of operand i, NoReg for anything else.
func (d *x86) source(i int) Reg {
	if v, ok := xmm(d.x.Args[i]); ok {
		return low(v)
	}
	if r, ok := d.gpr(i); ok && wide(d.x.Args[i]) == 8 {
		return r
	}
	return NoReg
}

func (d *x86) gpr(i int) (Reg, bool) {
	r, ok := d.x.Args[i].(x86asm.Reg)
	if !ok {
		return NoReg, false
	}
	return gpr(r)
}

// gpr maps a general register of any width to its number.
func gpr(r x86asm.Reg) (Reg, bool) {
	switch {
	case r >= x86asm.RAX && r <= x86asm.R15:
		return Reg(r - x86asm.RAX), true
	case r >= x86asm.EAX && r <= x86asm.R15L:
		return Reg(r - x86asm.EAX), true
	case r >= x86asm.AX && r <= x86asm.R15W:
		return Reg(r - x86asm.AX), true
	case r >= x86asm.AL && r <= x86asm.BL:
		return Reg(r - x86asm.AL), true
	case r >= x86asm.AH && r <= x86asm.BH:
		return Reg(r - x86asm.AH), true
	case r >= x86asm.SPB && r <= x86asm.R15B:
		return Reg(r-x86asm.SPB) + 4, true
	}
	return NoReg, false
}

func wide(a x86asm.Arg) int {
	r, ok := a.(x86asm.Reg)
	if !ok {
		return 0
	}
	switch {
	case r >= x86asm.RAX && r <= x86asm.R15:
		return 8
	case r >= x86asm.EAX && r <= x86asm.R15L:
		return 4
	case r >= x86asm.AX && r <= x86asm.R15W:
		return 2
	}
	return 1
}

// xmm is the number of a vector register of any width.
func xmm(a x86asm.Arg) (uint8, bool) {
	r, ok := a.(x86asm.Reg)
	switch {
	case !ok:
	case r >= x86asm.X0 && r <= x86asm.X31:
		return uint8(r - x86asm.X0), true
	case r >= x86asm.Y0 && r <= x86asm.Y31:
		return uint8(r - x86asm.Y0), true
	case r >= x86asm.Z0 && r <= x86asm.Z31:
		return uint8(r - x86asm.Z0), true
	}
	return 0, false
}

func log2(scale uint8) uint8 {
	switch scale {
	case 2:
		return 1
	case 4:
		return 2
	case 8:
		return 3
	}
	return 0
}
