package pollpath

import (
	"fmt"
	"maps"
	"slices"
)

// node is one instruction in its function.
type node struct {
	inst
	addr  uint64
	table []uint64 // flowTable
	preds []uint64
}

func (n *node) next() uint64 { return n.addr + uint64(n.size) }

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
	*isa
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
	machine, ok := isas[im.Machine]
	if !ok {
		return nil, fmt.Errorf("analyse a poll function: machine %v is not supported", im.Machine)
	}
	g := &graph{Image: im, isa: machine, entry: entry, nodes: map[uint64]*node{}}
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
		n, err := g.node(addr)
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

func (g *graph) node(addr uint64) (*node, error) {
	in, err := g.decode(g.Code(addr, g.longest), addr)
	if err != nil {
		return nil, fmt.Errorf("analyse a poll function: instruction at %#x: %w", addr, err)
	}
	n := &node{inst: in, addr: addr}
	if _, end, ok := g.Extent(addr); ok && n.next() >= end {
		n.stopAfter()
	}
	return n, nil
}
