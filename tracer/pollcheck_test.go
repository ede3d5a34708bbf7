package tracer

import (
	"strings"
	"testing"
)

// TestSiteWatch: what makes polls be observed at entry and return again, and
// what does not. Each step is what a check counts more than the one before.
func TestSiteWatch(t *testing.T) {
	steps := func(n int, c siteCounts) []siteCounts {
		all := make([]siteCounts, n)
		for i := range all {
			all[i] = c
		}
		return all
	}
	tests := []struct {
		name  string
		steps []siteCounts
		why   string // "" for none
	}{
		{"a busy poller, interrupted by the timer", steps(10, siteCounts{taken: 100_000, looks: 100}), ""},
		{"few completions", steps(10, siteCounts{taken: 3, looks: 250}), ""},
		{"none at all", steps(10, siteCounts{}), ""},
		{"a sleeper, looked at when it sleeps", steps(10, siteCounts{taken: 5, looks: 5}), ""},
		{"a CPU without a timer", steps(blindChecks, siteCounts{taken: 1000, looks: 1}), "hardly ever interrupted"},
		{"for a moment only", append(steps(blindChecks-1, siteCounts{taken: 1000, looks: 1}), siteCounts{taken: 1000, looks: 100}), ""},
		{"no completion", []siteCounts{{taken: 1000, looks: 100}, {taken: 1000, looks: 100, unfit: 1}}, "no completions"},
		{"entries that cannot be read", []siteCounts{{taken: 1000, looks: 100, timeless: 20}}, "could not be read"},
		{"few of them", []siteCounts{{taken: 1000, looks: 100, timeless: 19}}, ""},
		{"the first ones", []siteCounts{{taken: 15, looks: 100, timeless: 15}}, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var w siteWatch
			var sum siteCounts
			for i, s := range tt.steps {
				sum = siteCounts{sum.taken + s.taken, sum.unfit + s.unfit, sum.timeless + s.timeless, sum.looks + s.looks}
				err := w.look(sum)
				switch last := i == len(tt.steps)-1; {
				case err != nil && (!last || tt.why == ""):
					t.Fatalf("step %d: %v", i, err)
				case last && tt.why != "" && (err == nil || !strings.Contains(err.Error(), tt.why)):
					t.Fatalf("%v, want %q", err, tt.why)
				}
			}
		})
	}
}
