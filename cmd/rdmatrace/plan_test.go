package main

import (
	"strings"
	"testing"

	"github.com/rdmatrace/rdmatrace/tracer"
)

// A plan is read on a terminal, and says what a work request is going to cost.
func TestPlanText(t *testing.T) {
	b := &planText{width: planWidth}
	b.target(&tracer.TargetPlan{
		PID: 7,
		Probes: []tracer.PlannedProbe{
			{Verb: "poll_cq", Library: "/usr/lib/libmlx5.so.1", Offset: 0x1e880, Place: "push %rbp, which the kernel emulates", Found: strings.Repeat("found in a table ", 9), CostNS: 524},
			{Verb: "poll_cq", Return: true, Library: "/usr/lib/libmlx5.so.1", Offset: 0x1e880, Found: "found"},
		},
		Costs: []tracer.PlannedCost{{Library: "libmlx5.so.1", Kind: tracer.StepPoll, Step: "a call of poll_cq, also one that finds nothing", First: tracer.PlannedTraps{Traps: 2, NS: 1050},
			Then: tracer.PlannedTraps{Traps: 1, NS: 524}, When: "once learned, for each completion"},
			{Library: "libmlx5.so.1", Kind: tracer.StepPostSend, Step: "a call of post_send, whatever it posts", First: tracer.PlannedTraps{Traps: 2, NS: 1050}},
			{Library: "libmlx5.so.1", Kind: tracer.StepBuilders, Step: "a work request by builders, from wr_start to wr_complete", First: tracer.PlannedTraps{Traps: 5, NS: 2600},
				Then: tracer.PlannedTraps{Traps: 3}, When: "once learned"},
			{Library: "libmlx5.so.1", Kind: tracer.StepArm, Step: "a call of req_notify_cq", First: tracer.PlannedTraps{Traps: 1, NS: 16420}}},
	})
	text := b.String()
	for line := range strings.Lines(text) {
		if n := len(strings.TrimSuffix(line, "\n")); n > planWidth {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	words := strings.Join(strings.Fields(text), " ")
	for _, want := range []string{"poll_cq entry libmlx5.so.1+0x1e880 0.52 us push %rbp", "poll_cq return libmlx5.so.1+0x1e880 unknown found",
		"a call of poll_cq, also one that finds nothing: 2 traps, 1.05 us (libmlx5.so.1); once learned, for each completion: 1 trap, 0.52 us",
		"in all, for a work request posted alone by ibv_post_send and its completion: 3 traps, 1.57 us (libmlx5.so.1); where the program sleeps until the event, the arm takes 1 trap, 16.42 us more",
		"by builders (ibv_wr_*) and its completion: 4 traps, unknown (libmlx5.so.1)"} {
		if !strings.Contains(words, want) {
			t.Errorf("%q is not in:\n%s", want, text)
		}
	}
}
