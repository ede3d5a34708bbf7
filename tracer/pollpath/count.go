package pollpath

import (
	"sort"

	"golang.org/x/arch/x86/x86asm"
)

// loc is where a value lives: a 64-bit register, or a slot off rsp or rbp.
type loc struct {
	reg  x86asm.Reg
	disp int64
	mem  bool
	neg  bool // the value is the negative of the count: clang counts down from zero and negates
}

// made says how an instruction makes a value.
type made uint8

const (
	madeOtherwise made = iota
	madeByRaise        // it adds one
	madeByCall         // it is what a function returned
	madeZero
	madeConstant // another one
	makes
)

// origins follows the returned value backwards from every ret to the instructions
// that make it. One that raises it does not end the search.
func (g *graph) origins() (by [makes][]uint64) {
	type state struct {
		addr uint64 // the value is in p just before this instruction
		p    loc
	}
	seen := map[state]bool{}
	var work []state
	for _, n := range g.nodes {
		if n.flow == flowReturn {
			work = append(work, state{n.addr, loc{reg: x86asm.RAX}})
		}
	}
	var found [makes]map[uint64]bool
	for i := range found {
		found[i] = map[uint64]bool{}
	}
	for len(work) > 0 {
		s := work[len(work)-1]
		work = work[:len(work)-1]
		if seen[s] {
			continue
		}
		seen[s] = true
		if s.addr == g.entry && len(g.nodes[s.addr].preds) == 0 {
			found[madeOtherwise][s.addr] = true // an argument, or never set
		}
		for _, p := range g.nodes[s.addr].preds {
			n := g.nodes[p]
			froms, how, ends := trace(n, s.p)
			if ends || how != madeOtherwise {
				found[how][n.addr] = true
			}
			for _, f := range froms {
				work = append(work, state{n.addr, f})
			}
		}
	}
	for i := range found {
		by[i] = sorted(found[i])
	}
	return by
}

func sorted(set map[uint64]bool) []uint64 {
	out := make([]uint64, 0, len(set))
	for a := range set {
		out = append(out, a)
	}
	sort.Slice(out, func(i, j int) bool { return out[i] < out[j] })
	return out
}

// trace says where the value that n leaves in p was before n, and how n makes it
// if it was nowhere, or is raised.
func trace(n *node, p loc) (froms []loc, how made, ends bool) {
	if n.flow == flowCall {
		switch {
		case !p.mem && p.reg == x86asm.RAX:
			return nil, madeByCall, true
		case !p.mem && callerSaved[p.reg]:
			return nil, madeOtherwise, true
		}
		return []loc{p}, madeOtherwise, false
	}
	dst, ok := locOf(n.in.Args[0])
	dst.neg = p.neg
	if !ok || dst != p || readsOnly[n.in.Op] {
		return []loc{p}, madeOtherwise, false
	}
	if how, ok := constantBy(n.in); ok {
		return nil, how, true
	}
	switch n.in.Op {
	case x86asm.MOV, x86asm.MOVSXD, x86asm.MOVZX, x86asm.MOVSX:
		if src, ok := locOf(n.in.Args[1]); ok {
			src.neg = p.neg
			return []loc{src}, madeOtherwise, false
		}
		return nil, madeOtherwise, true
	case x86asm.NEG:
		p.neg = !p.neg
		return []loc{p}, madeOtherwise, false
	case x86asm.CMOVE, x86asm.CMOVNE, x86asm.CMOVL, x86asm.CMOVLE, x86asm.CMOVG, x86asm.CMOVGE,
		x86asm.CMOVA, x86asm.CMOVAE, x86asm.CMOVB, x86asm.CMOVBE, x86asm.CMOVS, x86asm.CMOVNS:
		froms = []loc{p}
		src, ok := locOf(n.in.Args[1])
		if ok {
			src.neg = p.neg
			froms = append(froms, src)
		}
		return froms, madeOtherwise, !ok
	}
	from, by, ok := added(n.in, p)
	one := int64(1)
	if p.neg {
		one = -1
	}
	if !ok || by != one {
		return nil, madeOtherwise, true
	}
	return []loc{from}, madeByRaise, false
}

// constantBy says whether the instruction gives its first operand a constant value.
func constantBy(in x86asm.Inst) (how made, ok bool) {
	imm, isImm := in.Args[1].(x86asm.Imm)
	same := in.Args[0] == in.Args[1]
	switch {
	case in.Op == x86asm.MOV && isImm && imm != 0, in.Op == x86asm.OR && isImm && imm == -1:
		return madeConstant, true
	case in.Op == x86asm.MOV && isImm, in.Op == x86asm.XOR && same, in.Op == x86asm.SUB && same, in.Op == x86asm.AND && isImm && imm == 0:
		return madeZero, true
	}
	return 0, false
}

// added says by how much the instruction raises what is in p, and where that
// was before.
func added(in x86asm.Inst, p loc) (from loc, by int64, ok bool) {
	imm, isImm := in.Args[1].(x86asm.Imm)
	switch in.Op {
	case x86asm.ADD:
		return p, int64(imm), isImm
	case x86asm.SUB:
		return p, -int64(imm), isImm
	case x86asm.INC:
		return p, 1, true
	case x86asm.DEC:
		return p, -1, true
	case x86asm.LEA:
		mem, isMem := in.Args[1].(x86asm.Mem)
		if isMem && mem.Index == 0 && mem.Base != 0 && mem.Base != x86asm.RIP {
			return loc{reg: wide(mem.Base), neg: p.neg}, mem.Disp, true
		}
	}
	return loc{}, 0, false
}

var readsOnly = map[x86asm.Op]bool{x86asm.CMP: true, x86asm.TEST: true, x86asm.NOP: true, x86asm.PUSH: true, x86asm.BT: true}

var callerSaved = map[x86asm.Reg]bool{
	x86asm.RAX: true, x86asm.RCX: true, x86asm.RDX: true, x86asm.RSI: true, x86asm.RDI: true,
	x86asm.R8: true, x86asm.R9: true, x86asm.R10: true, x86asm.R11: true,
}

// locOf an operand that can hold a 32 or 64-bit value across instructions.
func locOf(a x86asm.Arg) (loc, bool) {
	switch a := a.(type) {
	case x86asm.Reg:
		if a >= x86asm.EAX && a <= x86asm.R15 {
			return loc{reg: wide(a)}, true
		}
	case x86asm.Mem:
		if (a.Base == x86asm.RSP || a.Base == x86asm.RBP) && a.Index == 0 && a.Segment == 0 {
			return loc{reg: a.Base, disp: a.Disp, mem: true}, true
		}
	}
	return loc{}, false
}

// wide is the 64-bit register of a 32-bit one.
func wide(r x86asm.Reg) x86asm.Reg {
	if r >= x86asm.EAX && r <= x86asm.R15L {
		return r - x86asm.EAX + x86asm.RAX
	}
	return r
}
