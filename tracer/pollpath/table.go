package pollpath

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"

	"golang.org/x/arch/x86/x86asm"
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
			if n.flow != flowStop || n.in.Op != x86asm.JMP {
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
		stopped := n.flow == flowStop && n.in.Op == x86asm.JMP
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

func (g *graph) tableOf(jump *node) []uint64 {
	x, ok := jump.in.Args[0].(x86asm.Reg)
	if !ok {
		return nil
	}
	load, base := g.tableLoad(jump, x)
	if load == nil {
		return nil
	}
	table, ok := g.leaOf(load, base)
	if !ok {
		return nil
	}
	var targets []uint64
	for i := range g.tableBound(load) {
		b := g.Code(table+4*uint64(i), 4)
		if len(b) < 4 {
			return nil
		}
		t := table + uint64(int64(int32(binary.LittleEndian.Uint32(b))))
		if !g.within(t) {
			return nil
		}
		targets = append(targets, t)
	}
	return targets
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

// tableLoad walks back in a straight line to the movslq that loads the entry,
// and says which register holds the table.
func (g *graph) tableLoad(jump *node, x x86asm.Reg) (*node, x86asm.Reg) {
	n := jump
	var other x86asm.Reg // what is added to x, once that is seen
	for range 6 {
		if len(n.preds) != 1 {
			return nil, 0
		}
		n = g.nodes[n.preds[0]]
		to, from := n.in.Args[0], n.in.Args[1]
		mem, isMem := from.(x86asm.Mem)
		if n.in.Op == x86asm.MOVSXD && isMem && mem.Scale == 4 && mem.Disp == 0 && other != 0 &&
			(to == x && mem.Base == other || to == other && mem.Base == x) {
			return n, mem.Base
		}
		if n.in.Op == x86asm.ADD && to == x && other == 0 {
			other, _ = from.(x86asm.Reg)
			continue
		}
		reg, _, ok := writes(n)
		if !ok || reg != 0 && (reg == x || reg == other) {
			return nil, 0
		}
	}
	return nil, 0
}

// leaOf finds the address that the register has at the load: on every way there a
// rip-relative lea gave it the same.
func (g *graph) leaOf(load *node, base x86asm.Reg) (uint64, bool) {
	var found uint64
	ok := back(g, load.addr, base, func(n *node, _ uint64, base x86asm.Reg) (x86asm.Reg, bool, bool) {
		if n.flow == flowCall {
			return base, false, !returned[base]
		}
		reg, bits, ok := writes(n)
		switch mem, isMem := n.in.Args[1].(x86asm.Mem); {
		case !ok:
			return base, false, false
		case reg != base:
			return base, false, true
		case n.in.Op == x86asm.MOV && bits == 64:
			from, n, isReg := register(n.in.Args[1])
			return from, false, isReg && n == 64
		case n.in.Op == x86asm.LEA && isMem && mem.Base == x86asm.RIP && mem.Index == 0:
			addr := n.next() + uint64(mem.Disp)
			same := found == 0 || found == addr
			found = addr
			return base, true, same
		}
		return base, false, false
	})
	return found, ok && found != 0
}
