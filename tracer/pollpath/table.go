package pollpath

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
)

// maxTable bounds a jump table: switches over CQE opcodes have 16 entries.
const maxTable = 256

// resolveTables follows the indirect jumps that compilers make of a switch in
// position independent code:
//
//	lea    table(%rip), B        anywhere before
//	movslq (B,I,4), X
//	add    B, X                  either order
//	jmp    *X
//
// What follows the table is no part of it: a breakpoint where an entry too many
// points to could change an instruction in its middle. So a jump stays unresolved
// if a compare does not tell how many there are, or an entry leads out of the
// function.
func (g *graph) resolveTables() error {
	for {
		grown := false
		for _, addr := range slices.Sorted(maps.Keys(g.nodes)) {
			n := g.nodes[addr]
			if n.flow != flowStop || !n.indirect {
				continue
			}
			targets := g.tableOf(n)
			if len(targets) == 0 {
				continue
			}
			n.flow, n.table = flowTable, targets
			grown = true
			if err := g.extend(targets); err != nil {
				return err
			}
		}
		g.link()
		if !grown {
			break
		}
	}
	for _, n := range g.nodes {
		stopped := n.flow == flowStop && n.indirect
		// A way to the jump that was found after its table may lead to others.
		if stopped || n.flow == flowTable && !slices.Equal(n.table, g.tableOf(n)) {
			g.unresolved++
		}
	}
	return nil
}

// apart makes sure that no instruction lies in another.
func (g *graph) apart() error {
	var last *node
	for _, addr := range slices.Sorted(maps.Keys(g.nodes)) {
		if last != nil && last.next() > addr {
			return fmt.Errorf("analyse a poll function at %#x: the instruction at %#x reaches into that at %#x", g.entry, last.addr, addr)
		}
		last = g.nodes[addr]
	}
	return nil
}

// tableOf gives the targets of an indirect jump; none: they are unknown.
func (g *graph) tableOf(jump *node) (targets []uint64) {
	t, ok := g.tableAt(jump)
	if !ok {
		return nil
	}
	for i := range g.tableBound(t.load, t.entry.index) {
		target, ok := g.target(&t, i)
		if !ok || !g.within(target) {
			return nil
		}
		targets = append(targets, target)
	}
	return targets
}

// table is a jump table: a jump goes to anchor plus an entry, shifted.
type table struct {
	load   *node // of the entry
	entry  value
	bits   uint // that the load writes
	at     uint64
	anchor uint64
	add    value // of the entry to the anchor
}

// tableAt finds the table that the jump goes by: an address and an entry, in either
// order, that were added.
func (g *graph) tableAt(jump *node) (table, bool) {
	sum, e := g.maker(jump, jump.via)
	if e == nil || e.bits != 64 || e.only().kind != valueSum {
		return table{}, false
	}
	add := e.only()
	orders := []value{add}
	if add.by == 0 && add.index.bits == 64 && !add.from.mem {
		swapped := add
		swapped.from.reg, swapped.index.reg = add.index.reg, add.from.reg
		orders = append(orders, swapped)
	}
	for _, add := range orders {
		load, e := g.maker(sum, add.index.reg)
		if e == nil || e.only().kind != valueLoad {
			continue
		}
		t := table{load: load, entry: e.only(), bits: e.bits, add: add}
		at, ok := g.constant(load, t.entry.from.reg)
		anchor, ok2 := g.constant(sum, add.from.reg)
		t.at, t.anchor = at, anchor
		return t, ok && ok2
	}
	return table{}, false
}

// target is the i-th of the table's.
func (g *graph) target(t *table, i int) (uint64, bool) {
	size := int(t.entry.by)
	var word [8]byte
	b := g.Code(t.at+uint64(size*i), size)
	if len(b) < size || size > len(word) {
		return 0, false
	}
	copy(word[:], b)
	entry := extend(binary.LittleEndian.Uint64(word[:]), uint(8*size), t.entry.signed)
	entry = extend(entry, t.bits, false)
	return t.anchor + extend(entry, t.add.index.bits, t.add.signed)<<t.add.by, true
}

// extend gives the low bits of x, with zeros or their sign above.
func extend(x uint64, bits uint, signed bool) uint64 {
	above := 64 - bits
	if signed {
		return uint64(int64(x<<above) >> above)
	}
	return x << above >> above
}

// within says that addr is in the function: in a piece of code that it was seen to
// run, as .eh_frame has it.
func (g *graph) within(addr uint64) bool {
	begin, end, ok := g.Extent(addr)
	if !ok {
		return false
	}
	for a := range g.nodes {
		if a >= begin && a < end {
			return true
		}
	}
	return false
}

// maker walks back in a straight line to the instruction that makes what is in the
// register before n.
func (g *graph) maker(n *node, r reg) (*node, *effect) {
	for range 6 {
		if len(n.preds) != 1 {
			return nil, nil
		}
		n = g.nodes[n.preds[0]]
		if !n.whole {
			return nil, nil
		}
		if e := n.writes(r); e != nil {
			return n, e
		}
	}
	return nil, nil
}

// constant finds the address that the register holds before an instruction: on every
// way there it was given the same.
func (g *graph) constant(at *node, r reg) (uint64, bool) {
	type sum struct {
		reg reg
		by  int64 // to be added
	}
	var found uint64
	ok := back(g, at.addr, sum{reg: r}, func(n *node, _ uint64, s sum) (before sum, done, ok bool) {
		if n.flow == flowCall {
			return s, false, !g.returned[s.reg]
		}
		if !n.whole {
			return s, false, false
		}
		e := n.writes(s.reg)
		if e == nil {
			return s, false, true
		}
		v := e.only()
		if v.kind == valueConst {
			addr := uint64(v.by + s.by)
			same := found == 0 || found == addr
			found = addr
			return s, true, same
		}
		from, by, moved := e.moved()
		return sum{from, s.by + by}, false, moved && e.bits == 64 && v.bits == 64
	})
	return found, ok && found != 0
}
