package pollpath

import (
	"debug/elf"
	"fmt"

	"golang.org/x/arch/x86/x86asm"

	"github.com/rdmatrace/rdmatrace/tracer/place"
)

// Candidate is a set of instructions of which exactly one runs for every
// completion consumed, and none when the queue is empty.
type Candidate struct {
	Sites    []uint64 // virtual addresses, ascending
	Emulated bool     // the kernel emulates all of them
	// Strides are the registers that the function moves by sizeof(struct ibv_wc).
	Strides []Location
	Why     string
}

// Find proposes at most two candidates for the poll function at entry, best
// first: each has to be tried in the running process with entry and return
// probes beside it. An error says why there are none: the caller keeps its
// entry and return probes then.
func Find(machine elf.Machine, code Code, entry uint64) ([]Candidate, error) {
	// A wrapper returns what another function counted: look there.
	for range 4 {
		g, err := explore(machine, code, entry)
		if err != nil {
			return nil, err
		}
		raises, calls := g.raises()
		if len(raises) > 0 {
			return g.candidates(machine, raises)
		}
		target, ok := g.onlyTarget(calls)
		if !ok {
			return nil, fmt.Errorf("poll function at %#x: no instruction that raises the returned count was found (%d unresolved jumps)", entry, g.unresolved)
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

func (g *graph) candidates(machine elf.Machine, raises []uint64) ([]Candidate, error) {
	isRaise := map[uint64]bool{}
	for _, r := range raises {
		isRaise[r] = true
	}
	unraised := g.reach(g.entry, isRaise)
	strides := g.strides()
	var out []Candidate
	after := make([]uint64, 0, len(raises))
	for _, r := range raises {
		if site, ok := g.emulatedAfter(machine, r, unraised); ok {
			after = append(after, site)
		}
	}
	if len(after) == len(raises) {
		out = append(out, Candidate{Sites: unique(after), Emulated: true, Strides: strides,
			Why: fmt.Sprintf("%s after the count is raised at %#x", g.text(after[0]), raises[0])})
	}
	// The raise itself runs exactly once a completion, single-stepped or not.
	out = append(out, Candidate{Sites: raises, Emulated: g.allEmulated(machine, raises), Strides: strides,
		Why: fmt.Sprintf("%s raises the returned count", g.text(raises[0]))})
	return out, nil
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
// the raise, provided that no path reaches it without a raise.
func (g *graph) emulatedAfter(machine elf.Machine, raise uint64, unraised map[uint64]bool) (uint64, bool) {
	addr := g.nodes[raise].next()
	for range 32 {
		n := g.nodes[addr]
		if n == nil || unraised[addr] {
			return 0, false
		}
		if place.Emulated(machine, g.code(addr, n.in.Len)) {
			return addr, true
		}
		if n.flow != flowNext {
			return 0, false
		}
		addr = n.next()
	}
	return 0, false
}

func (g *graph) allEmulated(machine elf.Machine, addrs []uint64) bool {
	for _, a := range addrs {
		if !place.Emulated(machine, g.code(a, g.nodes[a].in.Len)) {
			return false
		}
	}
	return true
}

func (g *graph) strides() []Location {
	moved := map[Location]bool{}
	for _, n := range g.nodes {
		reg, ok := locOf(n.in.Args[0])
		if !ok || reg.mem {
			continue
		}
		if from, by, ok := added(n.in, reg); ok && by == WCSize && from == reg {
			moved[Location(reg.reg-x86asm.RAX)] = true
		}
	}
	var out []Location
	for l := range Location(Registers) {
		if moved[l] {
			out = append(out, l)
		}
	}
	return out
}

func (g *graph) text(addr uint64) string {
	return fmt.Sprintf("%s at %#x", x86asm.GNUSyntax(g.nodes[addr].in, addr, nil), addr)
}

func unique(a []uint64) []uint64 {
	set := map[uint64]bool{}
	for _, x := range a {
		set[x] = true
	}
	return sorted(set)
}
