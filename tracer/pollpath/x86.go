package pollpath

import (
	"encoding/binary"

	"golang.org/x/arch/x86/x86asm"
)

var x86 = isa{
	longest:  15,
	decode:   decodeX86,
	text:     textX86,
	result:   regX86(x86asm.RAX),
	scratch:  regs(0, 1, 2, 6, 7, 8, 9, 10, 11), // rax, rcx, rdx, rsi, rdi, r8 to r11
	returned: regs(0, 2),                        // rax, rdx
}

// disassembleX86 knows endbr64, which x86asm may not.
func disassembleX86(b []byte) (x86asm.Inst, error) {
	if len(b) >= 4 && binary.LittleEndian.Uint32(b) == 0xfa1e0ff3 {
		return x86asm.Inst{Op: x86asm.NOP, Len: 4}, nil
	}
	if len(b) >= 2 && b[0] == 0x3e && b[1] == 0xff { // notrack jmp
		in, err := x86asm.Decode(b[1:], 64)
		in.Len++
		return in, err
	}
	return x86asm.Decode(b, 64)
}

func textX86(b []byte, addr uint64) string {
	in, err := disassembleX86(b)
	if err != nil {
		return "an unknown instruction"
	}
	return x86asm.GNUSyntax(in, addr, nil)
}

func decodeX86(b []byte, addr uint64) (inst, error) {
	in, err := disassembleX86(b)
	if err != nil {
		return inst{}, err
	}
	n := inst{size: in.Len}
	n.flowX86(in, addr)
	n.whole = wholeX86(in, n.flow)
	n.flags = n.flow == flowNext && !keepsFlags[in.Op]
	n.compare = compareX86(in)
	o := ordersX86[in.Op]
	n.taken, n.passed = o[0], o[1]
	if dst, bits, ok := placeX86(in.Args[0]); ok && n.flow == flowNext && !readsOnly[in.Op] && !exchangesNothing(in) {
		n.does = []effect{{dst: dst, bits: bits, values: valuesX86(in, dst, bits, addr)}}
	}
	return n, nil
}

func (n *inst) flowX86(in x86asm.Inst, addr uint64) {
	rel, direct := in.Args[0].(x86asm.Rel)
	if direct {
		n.target = addr + uint64(in.Len) + uint64(int64(rel))
	}
	switch {
	case in.Op == x86asm.RET:
		n.flow = flowReturn
	case in.Op == x86asm.CALL:
		n.flow = flowCall
	case in.Op == x86asm.JMP && direct:
		n.flow = flowJump
	case in.Op == x86asm.JMP:
		n.flow, n.indirect = flowStop, true
		if r, ok := in.Args[0].(x86asm.Reg); ok {
			n.via = regX86(r)
		}
	case in.Op == x86asm.UD1, in.Op == x86asm.UD2, in.Op == x86asm.HLT, in.Op == x86asm.INT:
		n.flow = flowStop
	case direct: // jcc, jrcxz, loop
		n.flow = flowCond
	}
}

// wholeX86 says that the instruction writes no register but its first operand.
func wholeX86(in x86asm.Inst, f flow) bool {
	switch {
	case readsOnly[in.Op], exchangesNothing(in), in.Op == x86asm.JMP, f == flowCond && jumps[in.Op]:
		return true
	case !writesFirst[in.Op], in.Op == x86asm.IMUL && in.Args[1] == nil:
		return false
	}
	a, _ := in.Args[0].(x86asm.Reg)
	return a < x86asm.AH || a > x86asm.BH
}

// exchangesNothing: libmlx5 has such a marker for valgrind.
func exchangesNothing(in x86asm.Inst) bool {
	return in.Op == x86asm.XCHG && in.Args[0] == in.Args[1]
}

func setOf(ops ...x86asm.Op) map[x86asm.Op]bool {
	set := map[x86asm.Op]bool{}
	for _, o := range ops {
		set[o] = true
	}
	return set
}

func union(sets ...map[x86asm.Op]bool) map[x86asm.Op]bool {
	all := map[x86asm.Op]bool{}
	for _, s := range sets {
		for o := range s {
			all[o] = true
		}
	}
	return all
}

// keepsFlags are instructions that write no register but their first operand, and no flag;
// writesFirst may write flags as well.
var (
	chooses = setOf(x86asm.CMOVA, x86asm.CMOVAE, x86asm.CMOVB, x86asm.CMOVBE, x86asm.CMOVE, x86asm.CMOVNE, x86asm.CMOVG, x86asm.CMOVGE,
		x86asm.CMOVL, x86asm.CMOVLE, x86asm.CMOVS, x86asm.CMOVNS)
	keepsFlags = union(chooses, setOf(x86asm.MOV, x86asm.MOVZX, x86asm.MOVSX, x86asm.MOVSXD, x86asm.LEA, x86asm.NOT, x86asm.BSWAP,
		x86asm.POP, x86asm.NOP, x86asm.PUSH,
		x86asm.SETA, x86asm.SETAE, x86asm.SETB, x86asm.SETBE, x86asm.SETE, x86asm.SETNE, x86asm.SETG, x86asm.SETGE,
		x86asm.SETL, x86asm.SETLE, x86asm.SETS, x86asm.SETNS,
		x86asm.MOVD, x86asm.MOVQ, x86asm.MOVAPS, x86asm.MOVAPD, x86asm.MOVUPS, x86asm.MOVUPD, x86asm.MOVDQA, x86asm.MOVDQU,
		x86asm.MOVHPS, x86asm.MOVLPS, x86asm.MOVNTI, x86asm.PXOR, x86asm.XORPS, x86asm.PINSRD, x86asm.PINSRQ,
		x86asm.PUNPCKLQDQ, x86asm.PSHUFD, x86asm.MFENCE, x86asm.LFENCE, x86asm.SFENCE))
	writesFirst = union(keepsFlags, setOf(x86asm.ADD, x86asm.SUB, x86asm.ADC, x86asm.SBB, x86asm.AND, x86asm.OR, x86asm.XOR,
		x86asm.NEG, x86asm.INC, x86asm.DEC, x86asm.SHL, x86asm.SHR, x86asm.SAR, x86asm.ROL, x86asm.ROR, x86asm.IMUL))
	jumps = setOf(x86asm.JA, x86asm.JAE, x86asm.JB, x86asm.JBE, x86asm.JE, x86asm.JNE, x86asm.JG, x86asm.JGE, x86asm.JL, x86asm.JLE,
		x86asm.JS, x86asm.JNS, x86asm.JO, x86asm.JNO, x86asm.JP, x86asm.JNP, x86asm.JRCXZ, x86asm.JECXZ)
	readsOnly = setOf(x86asm.CMP, x86asm.TEST, x86asm.NOP, x86asm.PUSH, x86asm.BT)
)

// ordersX86: what a jump tells where it was taken, and where not.
var ordersX86 = map[x86asm.Op][2]order{
	x86asm.JA:  {orderUnknown, orderAtMost},
	x86asm.JBE: {orderAtMost, orderUnknown},
	x86asm.JAE: {orderUnknown, orderLess},
	x86asm.JB:  {orderLess, orderUnknown},
}

func compareX86(in x86asm.Inst) below {
	r, bits, isReg := registerX86(in.Args[0])
	imm, isImm := in.Args[1].(x86asm.Imm)
	if in.Op != x86asm.CMP || !isReg || !isImm {
		return below{}
	}
	most := int64(imm)
	if bits < 64 {
		most &= 1<<bits - 1
	}
	return below{operand{r, bits}, most}
}

// valuesX86 are what the instruction may leave in its first operand, dst.
func valuesX86(in x86asm.Inst, dst loc, bits uint, addr uint64) []value {
	imm, isImm := in.Args[1].(x86asm.Imm)
	same := in.Args[0] == in.Args[1]
	was := value{kind: valueOf, from: dst, bits: bits}
	raised := func(by int64) []value { return []value{{kind: valueOf, from: dst, bits: bits, by: by}} }
	switch in.Op {
	case x86asm.MOV, x86asm.MOVZX, x86asm.MOVSXD, x86asm.MOVSX:
		return []value{movedX86(in)}
	case x86asm.XOR:
		if same {
			return []value{{kind: valueConst}}
		}
	case x86asm.OR:
		if isImm && imm == -1 {
			return []value{{kind: valueConst, by: -1}}
		}
	case x86asm.AND:
		if isImm && imm == 0 {
			return []value{{kind: valueConst}}
		}
	case x86asm.NEG:
		was.neg = true
		return []value{was}
	case x86asm.INC:
		return raised(1)
	case x86asm.DEC:
		return raised(-1)
	case x86asm.SUB:
		if same {
			return []value{{kind: valueConst}}
		}
		if isImm {
			return raised(-int64(imm))
		}
	case x86asm.ADD:
		if isImm {
			return raised(int64(imm))
		}
		if r, n, ok := registerX86(in.Args[1]); ok {
			return []value{{kind: valueSum, from: dst, bits: bits, index: operand{r, n}}}
		}
	case x86asm.SHR:
		if isImm && imm >= 0 && imm < 64 {
			return []value{{kind: valueShifted, from: dst, bits: bits, by: int64(imm)}}
		}
	case x86asm.LEA:
		return []value{addressX86(in, addr)}
	}
	if chooses[in.Op] {
		return []value{was, movedX86(in)}
	}
	return []value{{}}
}

// movedX86 is the second operand.
func movedX86(in x86asm.Inst) value {
	if imm, ok := in.Args[1].(x86asm.Imm); ok {
		return value{kind: valueConst, by: int64(imm)}
	}
	signed := in.Op == x86asm.MOVSXD || in.Op == x86asm.MOVSX
	if src, n, ok := placeX86(in.Args[1]); ok {
		if src.mem {
			n = 8 * uint(in.MemBytes)
		}
		return value{kind: valueOf, from: src, bits: n, signed: signed}
	}
	if mem, ok := in.Args[1].(x86asm.Mem); ok && in.Op == x86asm.MOVSXD && mem.Scale == 4 && mem.Disp == 0 {
		index, bits, ok := registerX86(mem.Index)
		base, _, isReg := registerX86(mem.Base)
		if ok && isReg {
			return value{kind: valueLoad, from: loc{reg: base}, signed: true, by: 4, index: operand{index, bits}}
		}
	}
	return value{}
}

// addressX86 is what lea makes.
func addressX86(in x86asm.Inst, addr uint64) value {
	mem, ok := in.Args[1].(x86asm.Mem)
	switch {
	case !ok || mem.Index != 0 || mem.Base == 0:
	case mem.Base == x86asm.RIP:
		return value{kind: valueConst, by: int64(addr) + int64(in.Len) + mem.Disp}
	default:
		r, bits, ok := registerX86(mem.Base)
		if ok {
			return value{kind: valueOf, from: loc{reg: r}, bits: bits, by: mem.Disp}
		}
	}
	return value{}
}

// placeX86 is the register, or the slot of the stack, that an operand is.
func placeX86(a x86asm.Arg) (p loc, bits uint, ok bool) {
	if m, isMem := a.(x86asm.Mem); isMem {
		if (m.Base == x86asm.RSP || m.Base == x86asm.RBP) && m.Index == 0 && m.Segment == 0 {
			return loc{reg: regX86(m.Base), disp: m.Disp, mem: true}, 64, true
		}
		return loc{}, 0, false
	}
	r, bits, ok := registerX86(a)
	return loc{reg: r}, bits, ok
}

// registerX86 gives the register of an operand, and how many bits of it are meant. Not ok:
// it is none, or one of ah to bh.
func registerX86(a x86asm.Arg) (r reg, bits uint, ok bool) {
	x, ok := a.(x86asm.Reg)
	switch {
	case !ok:
	case x >= x86asm.AL && x <= x86asm.BL:
		return regX86(x - x86asm.AL + x86asm.RAX), 8, true
	case x >= x86asm.SPB && x <= x86asm.R15B:
		return regX86(x - x86asm.SPB + x86asm.RSP), 8, true
	case x >= x86asm.AX && x <= x86asm.R15W:
		return regX86(x - x86asm.AX + x86asm.RAX), 16, true
	case x >= x86asm.EAX && x <= x86asm.R15L:
		return regX86(x - x86asm.EAX + x86asm.RAX), 32, true
	case x >= x86asm.RAX && x <= x86asm.R15:
		return regX86(x), 64, true
	}
	return noReg, 0, false
}

// regX86 numbers a 64-bit register.
func regX86(r x86asm.Reg) reg { return reg(r-x86asm.RAX) + 1 }
