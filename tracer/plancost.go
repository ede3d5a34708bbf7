package tracer

import (
	"cmp"
	"path/filepath"

	"github.com/rdmatrace/rdmatrace/tracer/calibrate"
	"github.com/rdmatrace/rdmatrace/tracer/locate"
)

// PlannedCost is what one step of a work request is expected to cost in a library.
type PlannedCost struct {
	Library string
	Step    string // "a call of post_send"
	First   PlannedTraps
	Then    PlannedTraps // what becomes of it; zero: it stays
	When    string       // it does, and of what Then is
}

// PlannedTraps and what they take together, without the programs that run at them.
type PlannedTraps struct {
	Traps int
	NS    float64 // 0: not known
}

// planCosts of posts, builders and polls, by the probes that are planned for them.
func planCosts(lib *locate.Library, fns locate.Functions, probes []PlannedProbe, trap calibrate.Result, emptyPolls, written bool) (out []PlannedCost) {
	name := filepath.Base(lib.Path)
	var bracket, setters bracketCost
	for _, fn := range fns {
		at := trapsAt(probes, fn)
		c := PlannedCost{Library: name, First: at}
		switch verb := fn.Verb; {
		case verb == locate.PostSend || verb == locate.PostRecv || verb == locate.PostSRQRecv:
			c.Step = "a call of " + verb.String() + ", whatever it posts"
		case verb == locate.ReqNotifyCQ:
			c.Step = "a call of " + verb.String()
		case siteProgram[verb] != "":
			c.Step = "a call of " + verb.String() + ", also one that finds nothing"
			if !emptyPolls && untilLearned(lib, fn, written) != "" {
				if _, err := findPaths(lib, fn); err == nil {
					c.Then = PlannedTraps{1, trap.Emulated.Entry}
					c.When = "once the place is learned where it consumes completions, for each of them, and none for a call that finds nothing"
				}
			}
		case verb == locate.WRStart || verb == locate.WRComplete:
			bracket.add(at)
			continue
		case isSetter(verb):
			setters.dearest(verbProbes[verb].enter, at)
			continue
		default:
			continue
		}
		out = append(out, c)
	}
	if bracket.traps.Traps == 0 {
		return out
	}
	c := PlannedCost{Library: name, Step: "a work request by builders, from wr_start to wr_complete", First: bracket.with(setters)}
	if lib.Role&locate.RoleMLX5 != 0 {
		c.Then, c.When = bracket.traps, "once the send queue is seen to tell what was built, however many there are in the bracket"
	}
	return append(out, c)
}

// trapsAt are those of a function's probes.
func trapsAt(probes []PlannedProbe, fn locate.Function) (t PlannedTraps) {
	known := true
	for _, p := range probes {
		if p.of != fn.Offset || p.Verb != fn.Verb.String() {
			continue
		}
		t.Traps++
		t.NS += p.CostNS
		known = known && p.CostNS > 0
	}
	if !known {
		t.NS = 0
	}
	return t
}

// bracketCost sums the calls of a bracket of builders.
type bracketCost struct {
	traps PlannedTraps
	kinds map[string]PlannedTraps // of setters, by program: a work request has one of each
}

func (b *bracketCost) add(t PlannedTraps) {
	b.traps.Traps += t.Traps
	b.traps.NS += t.NS
}

// dearest keeps of each kind of call, which a program stands for, the one that costs most.
func (b *bracketCost) dearest(program string, t PlannedTraps) {
	if b.kinds == nil {
		b.kinds = map[string]PlannedTraps{}
	}
	if known := b.kinds[program]; t.NS >= known.NS {
		b.kinds[program] = t
	}
}

// with the calls that a work request has in a bracket: one that begins it, and one for its data.
func (b bracketCost) with(setters bracketCost) PlannedTraps {
	for _, program := range []string{verbProbes[locate.WRSend].enter, verbProbes[locate.WRSetSGE].enter} {
		b.add(setters.kinds[program])
	}
	return b.traps
}

func comparePlannedCosts(a, b PlannedCost) int {
	return cmp.Or(cmp.Compare(a.Library, b.Library), cmp.Compare(a.Step, b.Step))
}
