package pollpath

import "sort"

// made says how an instruction makes a value.
type made uint8

const (
	madeOtherwise made = iota
	madeByRaise        // it adds one
	madeByCall         // it is what a function returned
	madeZero
	madeConstant // another one
	madeMaybe    // it adds one, or not
	makes
	madeBefore = makes // it moves it
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
			work = append(work, state{n.addr, loc{reg: g.result}})
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
			if g.zeroed(n, s.addr, s.p) {
				found[madeZero][s.addr] = true
				continue
			}
			froms, hows := g.trace(n, s.p)
			for _, how := range hows {
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

// zeroed says that the value is 0 where the conditional jump n leads to the instruction
// at to, which is reached in no other way: so it runs for a 0 only. clang returns what it
// has compared.
func (g *graph) zeroed(n *node, to uint64, p loc) bool {
	if n.flow != flowCond || n.target == n.next() || to == g.entry || len(g.nodes[to].preds) != 1 {
		return false
	}
	zero := n.zeroPassed
	if n.target == to {
		zero = n.zeroTaken
	}
	return zero != noReg && p.reg == zero && !p.mem
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
func (g *graph) trace(n *node, p loc) (froms []loc, hows []made) {
	if n.flow == flowCall {
		switch {
		case !p.mem && p.reg == g.result:
			return nil, []made{madeByCall}
		case !p.mem && g.scratch[p.reg]:
			return nil, []made{madeOtherwise}
		}
		return []loc{p}, nil
	}
	e := n.on(p)
	if e == nil {
		return []loc{p}, nil
	}
	for _, v := range e.values {
		from, how, goesOn := v.before(p.neg)
		if len(e.values) > 1 && how != madeBefore {
			how = perhaps[how]
		}
		if goesOn {
			froms = append(froms, from)
		}
		if how != madeBefore {
			hows = append(hows, how)
		}
	}
	return froms, hows
}

// perhaps is what an instruction makes that makes this under a condition: where it
// runs nothing is known of the value.
var perhaps = [makes]made{madeByRaise: madeMaybe}

// before says where a value was that is the count, or is its negative.
func (v *value) before(neg bool) (from loc, how made, goesOn bool) {
	one := int64(1)
	if neg {
		one = -1
	}
	switch {
	case v.kind == valueConst && v.by == 0:
		return loc{}, madeZero, false
	case v.kind == valueConst:
		return loc{}, madeConstant, false
	case v.kind != valueOf || v.bits < 32 || v.by != 0 && v.by != one:
		return loc{}, madeOtherwise, false
	}
	from = v.from
	from.neg = neg != v.neg
	if v.by != 0 {
		return from, madeByRaise, true
	}
	return from, madeBefore, true
}
