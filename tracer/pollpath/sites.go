package pollpath

import (
	"fmt"
	"maps"
	"slices"

	"github.com/rdmatrace/rdmatrace/tracer/place"
)

// Candidate is a set of instructions of which exactly one runs for every
// completion consumed, and none when the queue is empty.
type Candidate struct {
	Sites    []uint64 // virtual addresses, ascending
	Emulated bool     // the kernel emulates all of them
	// Strides are the registers that the function moves by sizeof(struct ibv_wc).
	Strides []Location
	// Shifts are the constants that the function adds to what is in a register.
	Shifts []int64
	Why    string
}

// Find proposes at most two candidates for the poll function at entry, best
// first: each has to be tried in the running process with entry and return
// probes beside it. An error says why there are none: the caller keeps its entry
// and return probes then. Completions behind a jump that could not be followed
// pass no site: the caller has to see that some are missing.
func Find(im Image, entry uint64) ([]Candidate, error) {
	return find(im, entry, countOf)
}

// FindCurrent is Find for ibv_start_poll and ibv_next_poll, which return 0 when
// they found a completion and made it the current one. It needs to know all that
// they return: 0 where it does so, errors elsewhere.
func FindCurrent(im Image, entry uint64) ([]Candidate, error) {
	return find(im, entry, resultOf)
}

// kind is what a poll function returns.
type kind struct {
	// steps gives those of the instructions that make it that run for a completion
	// only, none if they are not known.
	steps func(*graph, [makes][]uint64) []uint64
	what  string // they do
	// wraps says that the function returns what another one did, as it is.
	wraps func(*graph, [makes][]uint64) bool
}

var (
	countOf = kind{
		steps: func(_ *graph, by [makes][]uint64) []uint64 {
			if len(by[madeMaybe]) > 0 {
				return nil
			}
			return by[madeByRaise]
		},
		what:  "the count is raised",
		wraps: func(*graph, [makes][]uint64) bool { return true },
	}
	resultOf = kind{
		steps: func(g *graph, by [makes][]uint64) []uint64 {
			if len(by[madeOtherwise])+len(by[madeByCall])+len(by[madeByRaise])+len(by[madeMaybe]) > 0 || g.unresolved > 0 {
				return nil
			}
			return by[madeZero]
		},
		what: "its result is set to 0",
		// libirdma's returns 0 where the other one returned 1, and ENOENT for 0. An error
		// of its own, as for attributes that it does not know, makes no difference.
		wraps: func(g *graph, by [makes][]uint64) bool {
			return len(by[madeZero])+len(by[madeByRaise])+len(by[madeMaybe])+g.unresolved == 0
		},
	}
)

// find proposes candidates for a function that returns a kind.
func find(im Image, entry uint64, k kind) ([]Candidate, error) {
	// A wrapper returns what another function did: look there.
	for range 4 {
		g, err := explore(im, entry)
		if err != nil {
			return nil, err
		}
		by := g.origins()
		if steps := k.steps(g, by); len(steps) > 0 {
			return g.candidates(steps, k.what), nil
		}
		target, ok := g.onlyTarget(by[madeByCall])
		if !ok || !k.wraps(g, by) {
			return nil, fmt.Errorf("poll function at %#x: no instruction was found that runs for a completion only, going by what it returns (%d unresolved jumps)",
				entry, g.unresolved)
		}
		entry = target
	}
	return nil, fmt.Errorf("poll function at %#x: wrapped too deeply", entry)
}

func (g *graph) onlyTarget(calls []uint64) (uint64, bool) {
	var target uint64
	for _, c := range calls {
		t := g.nodes[c].target
		if t == 0 || target != 0 && t != target {
			return 0, false
		}
		target = t
	}
	return target, target != 0
}

// candidates are made of the steps that a function takes for completions only.
func (g *graph) candidates(steps []uint64, what string) []Candidate {
	isStep := map[uint64]bool{}
	for _, s := range steps {
		isStep[s] = true
	}
	before := g.reach(g.entry, isStep)
	strides, shifts := g.strides(), g.shifts()
	var out []Candidate
	after := make([]uint64, 0, len(steps))
	for _, s := range steps {
		if site, ok := g.emulatedAfter(s, before); ok {
			after = append(after, site)
		}
	}
	if len(after) == len(steps) {
		out = append(out, Candidate{Sites: unique(after), Emulated: true, Strides: strides, Shifts: shifts,
			Why: fmt.Sprintf("%s after %s at %#x", g.text(after[0]), what, steps[0])})
	}
	// The step itself runs exactly once a completion, single-stepped or not.
	return append(out, Candidate{Sites: steps, Emulated: g.allEmulated(steps), Strides: strides, Shifts: shifts,
		Why: fmt.Sprintf("%s, where %s", g.text(steps[0]), what)})
}

// reach is what can be reached from addr without running a blocked instruction
// to its end; blocked ones are reached but not passed.
func (g *graph) reach(addr uint64, blocked map[uint64]bool) map[uint64]bool {
	seen := map[uint64]bool{}
	work := []uint64{addr}
	for len(work) > 0 {
		a := work[len(work)-1]
		work = work[:len(work)-1]
		n := g.nodes[a]
		if n == nil || seen[a] {
			continue
		}
		seen[a] = true
		if blocked[a] {
			continue
		}
		n.succs(func(s uint64) { work = append(work, s) })
	}
	return seen
}

// emulatedAfter is the first emulated instruction on the straight line after
// the step, provided that no path reaches it without one.
func (g *graph) emulatedAfter(step uint64, before map[uint64]bool) (uint64, bool) {
	if g.nodes[step].flow != flowNext {
		return 0, false
	}
	addr := g.nodes[step].next()
	for range 32 {
		n := g.nodes[addr]
		if n == nil || before[addr] {
			return 0, false
		}
		if place.Emulated(g.Machine, g.Code(addr, n.size)) {
			return addr, true
		}
		if n.flow != flowNext {
			return 0, false
		}
		addr = n.next()
	}
	return 0, false
}

func (g *graph) allEmulated(addrs []uint64) bool {
	for _, a := range addrs {
		if !place.Emulated(g.Machine, g.Code(a, g.nodes[a].size)) {
			return false
		}
	}
	return true
}

// strides are the registers that are moved by sizeof(struct ibv_wc).
func (g *graph) strides() []Location {
	moved := map[Location]bool{}
	g.moves(func(to, from reg, by int64) {
		if from == to && by == WCSize {
			moved[to.location()] = true
		}
	})
	return slices.Sorted(maps.Keys(moved))
}

// shifts are what is added to a register.
func (g *graph) shifts() []int64 {
	shifts := map[int64]bool{}
	g.moves(func(_, _ reg, by int64) {
		if by != 0 {
			shifts[by] = true
		}
	})
	return slices.Sorted(maps.Keys(shifts))
}

func (g *graph) moves(yield func(to, from reg, by int64)) {
	for _, n := range g.nodes {
		for i := range n.does {
			e := &n.does[i]
			if from, by, ok := e.moved(); ok && e.bits >= 32 {
				yield(e.dst.reg, from, by)
			}
		}
	}
}

func (g *graph) text(addr uint64) string {
	return fmt.Sprintf("%s at %#x", g.isa.text(g.Code(addr, g.nodes[addr].size), addr), addr)
}

func unique(a []uint64) []uint64 {
	set := map[uint64]bool{}
	for _, x := range a {
		set[x] = true
	}
	return sorted(set)
}
