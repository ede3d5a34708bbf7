package pollpath

import (
	"encoding/binary"

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
// The number of entries comes from the cmp before the jump where one is found;
// else entries are taken for as long as they point into code near the function.
func (g *graph) resolveTables() {
	for {
		grown := false
		for _, n := range g.nodes {
			if n.flow != flowStop || n.in.Op != x86asm.JMP {
				continue
			}
			if targets := g.tableOf(n); len(targets) > 0 {
				n.flow, n.table = flowTable, targets
				grown = g.extend(targets) || grown
			}
		}
		g.link()
		if !grown {
			break
		}
	}
	for _, n := range g.nodes {
		if n.flow == flowStop && n.in.Op == x86asm.JMP {
			g.unresolved++
		}
	}
}

// extend explores from addrs; instructions that do not decode end a path.
func (g *graph) extend(addrs []uint64) bool {
	grown := false
	work := append([]uint64(nil), addrs...)
	for len(work) > 0 && len(g.nodes) < maxNodes {
		addr := work[len(work)-1]
		work = work[:len(work)-1]
		if g.nodes[addr] != nil {
			continue
		}
		n, err := g.decode(addr)
		if err != nil {
			continue
		}
		g.nodes[addr] = n
		grown = true
		n.succs(func(s uint64) { work = append(work, s) })
	}
	return grown
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
	table, ok := g.leaOf(base)
	if !ok {
		return nil
	}
	limit := g.tableBound(load)
	var targets []uint64
	for i := range limit {
		b := g.code(table+4*uint64(i), 4)
		if len(b) < 4 {
			break
		}
		t := table + uint64(int64(int32(binary.LittleEndian.Uint32(b))))
		if d := int64(t - g.entry); d < -1<<20 || d > 1<<20 {
			break
		}
		targets = append(targets, t)
	}
	return targets
}

// tableLoad walks back in a straight line to the movslq that loads the entry,
// and says which register holds the table.
func (g *graph) tableLoad(jump *node, x x86asm.Reg) (*node, x86asm.Reg) {
	n := jump
	for range 6 {
		if len(n.preds) != 1 {
			return nil, 0
		}
		n = g.nodes[n.preds[0]]
		if n.in.Op != x86asm.MOVSXD {
			continue
		}
		mem, ok := n.in.Args[1].(x86asm.Mem)
		if ok && mem.Scale == 4 && mem.Base != 0 && mem.Index != 0 {
			return n, mem.Base
		}
	}
	return nil, 0
}

// leaOf finds the address that the register was given by a rip-relative lea.
// Several different ones leave it undecided.
func (g *graph) leaOf(reg x86asm.Reg) (uint64, bool) {
	var found uint64
	for _, n := range g.nodes {
		if n.in.Op != x86asm.LEA || n.in.Args[0] != x86asm.Arg(reg) {
			continue
		}
		mem, ok := n.in.Args[1].(x86asm.Mem)
		if !ok || mem.Base != x86asm.RIP {
			continue
		}
		addr := n.next() + uint64(mem.Disp)
		if found != 0 && found != addr {
			return 0, false
		}
		found = addr
	}
	return found, found != 0
}

// tableBound looks back from the load for the compare that guards it. The index may
// be a part of what is compared: libmlx5 compares the byte that holds a CQE's opcode
// in its upper half with 0xef, and shifts it.
func (g *graph) tableBound(load *node) (entries int) {
	mem, _ := load.in.Args[1].(x86asm.Mem)
	index, shift := mem.Index, uint(0)
	compared := map[x86asm.Reg]int64{}
	first, found := int64(0), false
	n := load
	for range 16 {
		if len(n.preds) == 0 {
			break
		}
		n = g.nodes[n.preds[0]]
		to, src := n.in.Args[0], n.in.Args[1]
		reg, bits, ok := register(to)
		if !ok {
			continue
		}
		imm, isImm := src.(x86asm.Imm)
		value := int64(imm) & (1<<bits - 1)
		from, _, fromReg := register(src)
		switch {
		case n.in.Op == x86asm.CMP && isImm && value > 0 && value < maxTable:
			if !found {
				first, found = value, true
			}
			compared[reg] = value
		case reg != index:
		case n.in.Op == x86asm.SHR && isImm && imm >= 0 && imm < 64:
			shift += uint(imm)
		case (n.in.Op == x86asm.MOV || n.in.Op == x86asm.MOVZX) && fromReg:
			index = from
		}
		if limit, ok := compared[index]; ok && (shift > 0 || index == reg) {
			return int(limit>>shift) + 1
		}
	}
	if found {
		return int(first) + 1 // the compare may be of something else: entries are checked one by one
	}
	return maxTable
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
		return r, 63, true
	}
	return 0, 0, false
}
