package tracer

import (
	"testing"

	"github.com/rdmatrace/rdmatrace/bpf"
	"github.com/rdmatrace/rdmatrace/tracer/calibrate"
	"github.com/rdmatrace/rdmatrace/tracer/locate"
)

// A call is counted once, by the function that is in play.
func TestPlanCosts(t *testing.T) {
	lib := &locate.Library{Path: "/usr/lib/libother.so.1"}
	var fns locate.Functions
	var probes []PlannedProbe
	add := func(verb locate.Verb, offset uint64, live bool, costs ...float64) {
		fns = append(fns, locate.Function{Library: lib, Verb: verb, Offset: offset, Live: live})
		for _, ns := range costs {
			probes = append(probes, PlannedProbe{Verb: verb.String(), of: offset, CostNS: ns})
		}
	}
	add(locate.PostSend, 0x100, true, 600, 400)
	add(locate.PollCQ, 0x200, false, 9000, 400)
	add(locate.PollCQ, 0x300, true, 600, 400)
	add(locate.WRStart, 0x400, false, 600)
	add(locate.WRSend, 0x500, false, 600)
	add(locate.WRRDMARead, 0x510, false, 600)
	add(locate.WRSetSGE, 0x600, false, 600)
	add(locate.WRSetSGE, 0x610, false, 600)
	add(locate.WRSetUDAddr, 0x620, false, 9000)
	add(locate.WRComplete, 0x700, false, 9000, 400)
	add(locate.WRComplete, 0x710, false, 600, 400)
	add(locate.ReqNotifyCQ, 0x800, false, 9000)
	costs := map[string]PlannedCost{}
	for _, c := range planCosts(lib, fns, probes, calibrate.Result{}, false, false) {
		costs[c.Step] = c
	}
	for step, want := range map[string]PlannedCost{
		"a call of post_send, whatever it posts":                   {Kind: StepPostSend, First: PlannedTraps{2, 1000}},
		"a call of poll_cq, also one that finds nothing":           {Kind: StepPoll, First: PlannedTraps{2, 1000}},
		"a work request by builders, from wr_start to wr_complete": {Kind: StepBuilders, First: PlannedTraps{5, 2800}},
		"a call of req_notify_cq":                                  {Kind: StepArm, First: PlannedTraps{1, 9000}},
	} {
		if c := costs[step]; c.Kind != want.Kind || c.First != want.First || c.When != "" {
			t.Errorf("%s: %+v, want %+v for good", step, c, want)
		}
	}
	if len(costs) != 4 {
		t.Errorf("%+v", costs)
	}
}

// What is not known of one call is not known of the bracket.
func TestBracketCostUnknown(t *testing.T) {
	for _, c := range []struct{ complete, data, want PlannedTraps }{
		{PlannedTraps{2, 1000}, PlannedTraps{1, 600}, PlannedTraps{5, 2800}},
		{PlannedTraps{2, 0}, PlannedTraps{1, 600}, PlannedTraps{5, 0}},
		{PlannedTraps{2, 1000}, PlannedTraps{}, PlannedTraps{4, 2200}},
	} {
		b := bracketCost{}
		b.add(locate.WRStart, PlannedTraps{1, 600})
		b.add(locate.WRSend, PlannedTraps{1, 600})
		if c.data.Traps > 0 {
			b.add(locate.WRSetSGE, c.data)
		}
		b.add(locate.WRComplete, c.complete)
		got := b.sum(bpf.RdmaProgBuildStart, bpf.RdmaProgBuildWr, bpf.RdmaProgBuildData, bpf.RdmaProgBuildCompleteEnter)
		if got != c.want {
			t.Errorf("%+v, want %+v", got, c.want)
		}
	}
	b := bracketCost{}
	b.add(locate.WRSend, PlannedTraps{1, 0})
	b.add(locate.WRSend, PlannedTraps{1, 600})
	b.add(locate.WRRDMARead, PlannedTraps{1, 0})
	if got := b[bpf.RdmaProgBuildWr]; got != (PlannedTraps{1, 600}) {
		t.Errorf("%+v", got)
	}
}
