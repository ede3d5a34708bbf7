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
		Costs: []tracer.PlannedCost{{Library: "libmlx5.so.1", Step: "a call of poll_cq, also one that finds nothing", First: tracer.PlannedTraps{Traps: 2, NS: 1050},
			Then: tracer.PlannedTraps{Traps: 1, NS: 524}, When: "once learned, for each completion"}},
	})
	text := b.String()
	for line := range strings.Lines(text) {
		if n := len(strings.TrimSuffix(line, "\n")); n > planWidth {
			t.Errorf("%d columns: %s", n, line)
		}
	}
	words := strings.Join(strings.Fields(text), " ")
	for _, want := range []string{"poll_cq entry libmlx5.so.1+0x1e880 0.52 us push %rbp", "poll_cq return libmlx5.so.1+0x1e880 unknown found",
		"a call of poll_cq, also one that finds nothing: 2 traps, 1.05 us (libmlx5.so.1); once learned, for each completion: 1 trap, 0.52 us"} {
		if !strings.Contains(words, want) {
			t.Errorf("%q is not in:\n%s", want, text)
		}
	}
}
