package pollpath

// below is what a compare and the jump after it tell: the low bits of a register
// are at most max.
type below struct {
	operand
	max int64
}

// index is what is known, somewhere before a table's load, of the entry that it will
// take: that it is at most the low bits of reg, shifted right.
type index struct {
	operand
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
func (g *graph) tableBound(load *node, by operand) (entries int) {
	most := int64(-1)
	ok := back(g, load.addr, index{operand: by}, func(n *node, to uint64, x index) (index, bool, bool) {
		x, ok := x.before(g.isa, n, to)
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
func (x index) before(machine *isa, n *node, to uint64) (index, bool) {
	if n.flow == flowCond {
		if x.less == orderUnknown {
			x.less = n.orderAfter(to)
		}
		return x, n.whole
	}
	if n.flow == flowCall {
		x.forget(func(r reg) bool { return machine.returned[r] })
		x.less = orderUnknown
		return x, !machine.returned[x.reg]
	}
	if !n.whole {
		return x, false
	}
	x.learn(n.compare)
	if n.flags {
		x.less = orderUnknown
	}
	x.forget(func(r reg) bool { return n.writes(r) != nil })
	if e := n.writes(x.reg); e != nil {
		return x.made(e)
	}
	return x, true
}

// forget drops what is known of some registers.
func (x *index) forget(which func(reg) bool) {
	for i, k := range x.known {
		if k.reg != noReg && which(k.reg) {
			x.known[i] = below{}
		}
	}
}

// learn takes what the compare tells, if the flags that it sets were gone by.
func (x *index) learn(told below) {
	if told.reg == noReg || x.less == orderUnknown {
		return
	}
	if x.less == orderLess {
		told.max--
	}
	if told.max < 0 {
		return
	}
	copy(x.known[1:], x.known[:])
	x.known[0] = told
}

// made takes x back over the instruction that gave its register its value.
func (x index) made(e *effect) (index, bool) {
	if e.bits < 32 && e.bits < x.bits {
		return x, false // the rest is from elsewhere
	}
	v := e.only()
	if v.from.mem || v.neg || v.signed {
		return x, false
	}
	switch {
	case v.kind == valueOf && v.by == 0:
		x.reg, x.bits = v.from.reg, min(x.bits, e.bits, v.bits)
		return x, true
	case v.kind == valueShifted:
		x.reg, x.bits, x.shift = v.from.reg, v.bits, x.shift+uint(v.by)
		return x, x.shift < 64
	}
	return x, false
}

// orderAfter is what is known of those that were compared where the jump n leads
// on to the instruction at to.
func (n *node) orderAfter(to uint64) order {
	taken, passed := n.target == to, n.next() == to
	switch {
	case taken == passed:
		return orderUnknown
	case taken:
		return n.taken
	}
	return n.passed
}
