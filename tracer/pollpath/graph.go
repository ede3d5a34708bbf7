package pollpath

import (
	"debug/elf"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"

	"golang.org/x/arch/x86/x86asm"
)

// flow says where control goes after an instruction.
type flow uint8

const (
	flowNext   flow = iota // falls through
	flowCond               // falls through or jumps to target
	flowJump               // jumps to target
	flowCall               // calls, then falls through
	flowReturn             // ret
	flowTable              // an indirect jump whose table was decoded
	flowStop               // an unresolved indirect jump, ud2, hlt
)

// node is one instruction.
type node struct {
	addr   uint64
	in     x86asm.Inst
	flow   flow
	target uint64   // flowCond, flowJump, flowCall with a direct target
	table  []uint64 // flowTable
	preds  []uint64
}

func (n *node) next() uint64 { return n.addr + uint64(n.in.Len) }

// succs calls yield for every successor inside the function.
func (n *node) succs(yield func(uint64)) {
	switch n.flow {
	case flowNext, flowCall:
		yield(n.next())
	case flowCond:
		yield(n.next())
		yield(n.target)
	case flowJump:
		yield(n.target)
	case flowTable:
		for _, t := range n.table {
			yield(t)
		}
	}
}

// stopAfter lets nothing run on from n to the next instruction.
func (n *node) stopAfter() {
	switch n.flow {
	case flowNext, flowCall:
		n.flow = flowStop
	case flowCond:
		n.flow = flowJump
	}
}

// graph is what recursive descent from an entry reached.
type graph struct {
	Image
	entry      uint64
	nodes      map[uint64]*node
	unresolved int // indirect jumps that could not be followed
}

// maxNodes bounds a function: mlx5's poll_cq has 850 instructions at -O2 and
// fewer than 3,000 with everything inlined at -O3.
const maxNodes = 20000

// explore decodes everything reachable from entry without entering calls. Nothing
// runs on from the end of a piece of code into what follows: the last instruction
// is often the call of a function that does not return.
func explore(im Image, entry uint64) (*graph, error) {
	if im.Machine != elf.EM_X86_64 {
		return nil, fmt.Errorf("analyse a poll function: machine %v is not supported", im.Machine)
	}
	g := &graph{Image: im, entry: entry, nodes: map[uint64]*node{}}
	if err := g.extend([]uint64{entry}); err != nil {
		return nil, err
	}
	g.link()
	if err := g.resolveTables(); err != nil {
		return nil, err
	}
	return g, g.apart()
}

// extend explores from addrs.
func (g *graph) extend(addrs []uint64) error {
	work := slices.Clone(addrs)
	for len(work) > 0 {
		addr := work[len(work)-1]
		work = work[:len(work)-1]
		if g.nodes[addr] != nil {
			continue
		}
		if len(g.nodes) == maxNodes {
			return fmt.Errorf("analyse a poll function at %#x: more than %d instructions", g.entry, maxNodes)
		}
		n, err := g.decode(addr)
		if err != nil {
			return err
		}
		g.nodes[addr] = n
		n.succs(func(s uint64) { work = append(work, s) })
	}
	return nil
}

// link fills in the predecessors, in the order of their addresses.
func (g *graph) link() {
	for _, n := range g.nodes {
		n.preds = n.preds[:0]
	}
	for _, addr := range slices.Sorted(maps.Keys(g.nodes)) {
		n := g.nodes[addr]
		n.succs(func(s uint64) {
			if m := g.nodes[s]; m != nil {
				m.preds = append(m.preds, n.addr)
			}
		})
	}
}

func (g *graph) decode(addr uint64) (*node, error) {
	b := g.Code(addr, 15)
	in, err := decodeX86(b)
	if err != nil {
		return nil, fmt.Errorf("analyse a poll function: instruction at %#x: %w", addr, err)
	}
	n := &node{addr: addr, in: in}
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
	case in.Op == x86asm.JMP, in.Op == x86asm.UD1, in.Op == x86asm.UD2, in.Op == x86asm.HLT, in.Op == x86asm.INT:
		n.flow = flowStop
	case direct: // jcc, jrcxz, loop
		n.flow = flowCond
	}
	if _, end, ok := g.Extent(addr); ok && n.next() >= end {
		n.stopAfter()
	}
	return n, nil
}

// decodeX86 knows endbr64, which x86asm may not.
func decodeX86(b []byte) (x86asm.Inst, error) {
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
