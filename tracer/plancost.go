package tracer

import (
	"cmp"
	"path/filepath"
	"slices"

	"github.com/rdmatrace/rdmatrace/bpf"
	"github.com/rdmatrace/rdmatrace/tracer/calibrate"
	"github.com/rdmatrace/rdmatrace/tracer/locate"
)

// PlannedCost is what one step of a work request is expected to cost in a library.
type PlannedCost struct {
	Library string
	Kind    StepKind
	Step    string // "a call of post_send"
	First   PlannedTraps
	Then    PlannedTraps // what becomes of it; zero: it stays
	When    string       // it does, and of what Then is
}

// StepKind tells the steps apart that each work request takes from the others.
type StepKind uint8

// What a step is.
const (
	StepOther StepKind = iota
	StepPostSend
	StepBuilders // from wr_start to wr_complete
	StepPoll
	StepArm // of a completion queue, for events
)

var stepKinds = map[locate.Verb]StepKind{locate.PostSend: StepPostSend, locate.PollCQ: StepPoll, locate.ReqNotifyCQ: StepArm}

// PlannedTraps and what they take together, without the programs that run at them.
type PlannedTraps struct {
	Traps int
	NS    float64 // 0: not known
}

// planCosts of posts, builders and polls, by the probes that are planned for them.
func planCosts(lib *locate.Library, fns locate.Functions, probes []PlannedProbe, trap calibrate.Result, emptyPolls, written bool) (out []PlannedCost) {
	name := filepath.Base(lib.Path)
	bracket := bracketCost{}
	for _, fn := range inPlay(fns) {
		at := trapsAt(probes, fn)
		c := PlannedCost{Library: name, Kind: stepKinds[fn.Verb], First: at}
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
		case isBuilder(verb):
			bracket.add(verb, at)
			continue
		default:
			continue
		}
		out = append(out, c)
	}
	slices.SortFunc(out, comparePlannedCosts)
	out = slices.Compact(out)
	if bracket[bpf.RdmaProgBuildStart].Traps == 0 {
		return out
	}
	c := PlannedCost{Library: name, Kind: StepBuilders, Step: "a work request by builders, from wr_start to wr_complete", First: bracket.sum(bpf.RdmaProgBuildStart,
		bpf.RdmaProgBuildWr, bpf.RdmaProgBuildData, bpf.RdmaProgBuildCompleteEnter)}
	if lib.Role&locate.RoleMLX5 != 0 {
		c.Then = bracket.sum(bpf.RdmaProgBuildStart, bpf.RdmaProgBuildCompleteEnter)
		c.When = "once the send queue is seen to tell what was built, however many there are in the bracket"
	}
	return append(out, c)
}

// inPlay leaves out functions of a verb that objects of the process do not lead to,
// where they lead to another.
func inPlay(fns locate.Functions) (out locate.Functions) {
	for _, fn := range fns {
		if fn.Live || !slices.ContainsFunc(fns, func(o locate.Function) bool { return o.Live && o.Verb == fn.Verb }) {
			out = append(out, fn)
		}
	}
	return out
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

// bracketCost has what each kind of call in a bracket of builders costs, by its program.
// There are several functions for some; a queue pair that is ready has the cheap ones
// (libmlx5 puts those that refuse a post in their place until it is). A cost that is
// not known is not cheap.
type bracketCost map[string]PlannedTraps

func (b bracketCost) add(verb locate.Verb, t PlannedTraps) {
	program := verbProbes[verb].enter
	if known, is := b[program]; !is || t.NS > 0 && (known.NS == 0 || t.NS < known.NS) {
		b[program] = t
	}
}

func (b bracketCost) sum(programs ...string) (t PlannedTraps) {
	known := true
	for _, program := range programs {
		one := b[program]
		t.Traps += one.Traps
		t.NS += one.NS
		known = known && (one.NS > 0 || one.Traps == 0)
	}
	if !known {
		t.NS = 0
	}
	return t
}

func comparePlannedCosts(a, b PlannedCost) int {
	return cmp.Or(cmp.Compare(a.Library, b.Library), cmp.Compare(a.Step, b.Step))
}
