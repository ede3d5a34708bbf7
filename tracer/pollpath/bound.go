package pollpath

import "golang.org/x/arch/x86/x86asm"

// below is what a compare and the jump after it tell: the low bits of a register
// are at most max.
type below struct {
	reg  x86asm.Reg
	bits uint
	max  int64
}

// index is what is known, somewhere before a table's load, of the entry that it will
// take: that it is at most the low bits of reg, shifted right.
type index struct {
	reg   x86asm.Reg
	bits  uint
	shift uint
	known [4]below // that hold here, the latest found first
	// less is what the flags, set further back, are known to tell of those compared.
	less order
}

// order is what a conditional jump that was taken, or not, tells.
type order uint8

const (
	orderUnknown order = iota
	orderAtMost
	orderLess
)

// tableBound gives how many entries of a table the load can take: every way to it
// has to pass a compare of its index with a constant, and the jump that leads past
// the switch if the index is above. The index may be a part of what is compared:
// libmlx5 compares the byte that holds a CQE's opcode in its upper half with 0xef,
// and shifts it. 0: unknown. What a mask or a small type would allow is no bound:
// where the compiler knows that some values don't occur the table is shorter.
func (g *graph) tableBound(load *node) (entries int) {
	mem, _ := load.in.Args[1].(x86asm.Mem)
	reg, bits, ok := register(mem.Index)
	if !ok {
		return 0
	}
	most := int64(-1)
	ok = back(g, load.addr, index{reg: reg, bits: bits}, func(n *node, to uint64, x index) (index, bool, bool) {
		x, ok := x.before(n, to)
		limit, found := x.limit()
		if found {
			most = max(most, limit)
		}
		return x, found, ok || found
	})
	if !ok || most < 0 || most >= maxTable {
		return 0
	}
	return int(most) + 1
}

// limit is the index's by what is known.
func (x *index) limit() (int64, bool) {
	for _, k := range x.known {
		// A 32-bit compare is of all of a register: its upper half is zero, else the
		// compiler could not go by it.
		if k.reg != 0 && k.reg == x.reg && (k.bits >= x.bits || k.bits >= 32) {
			return k.max >> x.shift, true
		}
	}
	return 0, false
}

// before takes x back over n, which leads to the instruction at to.
func (x index) before(n *node, to uint64) (index, bool) {
	if n.flow == flowCond {
		if x.less == orderUnknown {
			x.less = orderAfter(n, to)
		}
		_, _, ok := writes(n)
		return x, ok
	}
	if n.flow == flowCall {
		for i, k := range x.known {
			if returned[k.reg] {
				x.known[i] = below{}
			}
		}
		x.less = orderUnknown
		return x, !returned[x.reg]
	}
	reg, bits, ok := writes(n)
	if !ok {
		return x, false
	}
	if n.in.Op == x86asm.CMP {
		x.learn(n.in)
	}
	if !keepsFlags[n.in.Op] && n.flow == flowNext {
		x.less = orderUnknown
	}
	if reg == 0 {
		return x, true
	}
	for i, k := range x.known {
		if k.reg == reg {
			x.known[i] = below{}
		}
	}
	if reg == x.reg {
		return x.made(n.in, bits)
	}
	return x, true
}

// learn takes what the compare tells, if the flags that it sets were gone by.
func (x *index) learn(in x86asm.Inst) {
	reg, bits, isReg := register(in.Args[0])
	imm, isImm := in.Args[1].(x86asm.Imm)
	if !isReg || !isImm || x.less == orderUnknown {
		return
	}
	most := int64(imm)
	if bits < 64 {
		most &= 1<<bits - 1
	}
	if x.less == orderLess {
		most--
	}
	if most < 0 {
		return
	}
	copy(x.known[1:], x.known[:])
	x.known[0] = below{reg, bits, most}
}

// made takes x back over the instruction that gave its register bits of its value.
func (x index) made(in x86asm.Inst, bits uint) (index, bool) {
	if bits < 32 && bits < x.bits {
		return x, false // the rest is from elsewhere
	}
	switch in.Op {
	case x86asm.MOV, x86asm.MOVZX:
		from, n, ok := register(in.Args[1])
		x.reg, x.bits = from, min(x.bits, bits, n)
		return x, ok
	case x86asm.SHR:
		by, ok := in.Args[1].(x86asm.Imm)
		x.bits, x.shift = bits, x.shift+uint(by)
		return x, ok && by >= 0 && by < 64 && x.shift < 64
	}
	return x, false
}

// orderAfter is what is known of those that were compared where the jump n leads
// on to the instruction at to.
func orderAfter(n *node, to uint64) order {
	taken, passed := n.target == to, n.next() == to
	switch {
	case taken == passed:
	case passed && n.in.Op == x86asm.JA, taken && n.in.Op == x86asm.JBE:
		return orderAtMost
	case passed && n.in.Op == x86asm.JAE, taken && n.in.Op == x86asm.JB:
		return orderLess
	}
	return orderUnknown
}
