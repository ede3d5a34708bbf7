package pollpath

import "golang.org/x/arch/x86/x86asm"

// maxWays bounds how many instructions are looked at on all ways back from one.
const maxWays = 4096

// back visits, on every way back from the instruction at addr, the instructions
// that run before it. step turns what is known after one, of which to is the next
// on the way, into what is known before it; done: this way has come to its end.
// false: a way led to the function's entry, or to where step gave up, or there are
// too many. What goes round in a loop has come from outside of it once.
func back[S comparable](g *graph, addr uint64, s S, step func(n *node, to uint64, s S) (before S, done, ok bool)) bool {
	type place struct {
		addr uint64
		s    S
	}
	seen := map[place]bool{}
	work := []place{{addr, s}}
	for len(work) > 0 {
		at := work[len(work)-1]
		work = work[:len(work)-1]
		if seen[at] {
			continue
		}
		seen[at] = true
		if at.addr == g.entry || len(seen) > maxWays {
			return false
		}
		for _, p := range g.nodes[at.addr].preds {
			before, done, ok := step(g.nodes[p], at.addr, at.s)
			if !ok {
				return false
			}
			if !done {
				work = append(work, place{p, before})
			}
		}
	}
	return true
}

// writes gives the register that the instruction writes, and how many bits of it;
// none: it writes none, or no general one. Not ok: others too, or it is not known.
func writes(n *node) (reg x86asm.Reg, bits uint, ok bool) {
	switch {
	case readsOnly[n.in.Op], n.in.Op == x86asm.XCHG && n.in.Args[0] == n.in.Args[1], // libmlx5's, for valgrind
		n.flow == flowJump, n.flow == flowTable, n.flow == flowCond && jumps[n.in.Op]:
		return 0, 0, true
	case !writesFirst[n.in.Op], n.in.Op == x86asm.IMUL && n.in.Args[1] == nil:
		return 0, 0, false
	}
	a, _ := n.in.Args[0].(x86asm.Reg)
	reg, bits, _ = register(a)
	return reg, bits, a < x86asm.AH || a > x86asm.BH
}

// returned are the registers that a call makes. Another one that is read after it
// has kept what it held: the compiler may know which of them a function leaves alone
// (gcc's -fipa-ra).
var returned = map[x86asm.Reg]bool{x86asm.RAX: true, x86asm.RDX: true}

func setOf(ops ...x86asm.Op) map[x86asm.Op]bool {
	set := map[x86asm.Op]bool{}
	for _, o := range ops {
		set[o] = true
	}
	return set
}

// keepsFlags are instructions that write no register but their first operand, and no flag;
// writesFirst may write flags as well.
var (
	keepsFlags = setOf(x86asm.MOV, x86asm.MOVZX, x86asm.MOVSX, x86asm.MOVSXD, x86asm.LEA, x86asm.NOT, x86asm.BSWAP, x86asm.POP,
		x86asm.NOP, x86asm.PUSH,
		x86asm.CMOVA, x86asm.CMOVAE, x86asm.CMOVB, x86asm.CMOVBE, x86asm.CMOVE, x86asm.CMOVNE, x86asm.CMOVG, x86asm.CMOVGE,
		x86asm.CMOVL, x86asm.CMOVLE, x86asm.CMOVS, x86asm.CMOVNS,
		x86asm.SETA, x86asm.SETAE, x86asm.SETB, x86asm.SETBE, x86asm.SETE, x86asm.SETNE, x86asm.SETG, x86asm.SETGE,
		x86asm.SETL, x86asm.SETLE, x86asm.SETS, x86asm.SETNS,
		x86asm.MOVD, x86asm.MOVQ, x86asm.MOVAPS, x86asm.MOVAPD, x86asm.MOVUPS, x86asm.MOVUPD, x86asm.MOVDQA, x86asm.MOVDQU,
		x86asm.MOVHPS, x86asm.MOVLPS, x86asm.MOVNTI, x86asm.PXOR, x86asm.XORPS, x86asm.PINSRD, x86asm.PINSRQ,
		x86asm.PUNPCKLQDQ, x86asm.PSHUFD, x86asm.MFENCE, x86asm.LFENCE, x86asm.SFENCE)
	writesFirst = union(keepsFlags, setOf(x86asm.ADD, x86asm.SUB, x86asm.ADC, x86asm.SBB, x86asm.AND, x86asm.OR, x86asm.XOR,
		x86asm.NEG, x86asm.INC, x86asm.DEC, x86asm.SHL, x86asm.SHR, x86asm.SAR, x86asm.ROL, x86asm.ROR, x86asm.IMUL))
	jumps = setOf(x86asm.JA, x86asm.JAE, x86asm.JB, x86asm.JBE, x86asm.JE, x86asm.JNE, x86asm.JG, x86asm.JGE, x86asm.JL, x86asm.JLE,
		x86asm.JS, x86asm.JNS, x86asm.JO, x86asm.JNO, x86asm.JP, x86asm.JNP, x86asm.JRCXZ, x86asm.JECXZ)
)

func union(sets ...map[x86asm.Op]bool) map[x86asm.Op]bool {
	all := map[x86asm.Op]bool{}
	for _, s := range sets {
		for o := range s {
			all[o] = true
		}
	}
	return all
}

// register gives the 64-bit register of an operand, and how many bits of it are meant.
func register(a x86asm.Arg) (reg x86asm.Reg, bits uint, ok bool) {
	r, ok := a.(x86asm.Reg)
	switch {
	case !ok:
	case r >= x86asm.AL && r <= x86asm.BL:
		return r - x86asm.AL + x86asm.RAX, 8, true
	case r >= x86asm.SPB && r <= x86asm.R15B:
		return r - x86asm.SPB + x86asm.RSP, 8, true
	case r >= x86asm.AX && r <= x86asm.R15W:
		return r - x86asm.AX + x86asm.RAX, 16, true
	case r >= x86asm.EAX && r <= x86asm.R15L:
		return r - x86asm.EAX + x86asm.RAX, 32, true
	case r >= x86asm.RAX && r <= x86asm.R15:
		return r, 64, true
	}
	return 0, 0, false
}
