package pollpath

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
