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
		name    string
		steps   []siteCounts
		why     string // "" for none
		written bool
	}{
		{"a busy poller, interrupted by the timer", steps(10, siteCounts{taken: 100_000, looks: 100}), "", false},
		{"few completions", steps(10, siteCounts{taken: 3, looks: 250}), "", false},
		{"none at all", steps(10, siteCounts{}), "", false},
		{"a sleeper, looked at when it sleeps", steps(10, siteCounts{taken: 5, looks: 5}), "", false},
		{"a CPU without a timer", steps(blindChecks, siteCounts{taken: 1000, looks: 1}), "hardly ever interrupted", false},
		{"for a moment only", append(steps(blindChecks-1, siteCounts{taken: 1000, looks: 1}), siteCounts{taken: 1000, looks: 100}), "", false},
		{"no completion", []siteCounts{{taken: 1000, looks: 100}, {taken: 1000, looks: 100, unfit: 1}}, "no completions", false},
		{"entries that cannot be read", []siteCounts{{taken: 1000, looks: 100, timeless: 20}}, "could not be read", false},
		{"few of them", []siteCounts{{taken: 1000, looks: 100, timeless: 19}}, "", false},
		{"the first ones", []siteCounts{{taken: 15, looks: 100, timeless: 15}}, "", false},
		{"a resize, an error", steps(fewMissed-1, siteCounts{taken: 1000, looks: 100, missed: 1}), "", false},
		{"completions that pass elsewhere", steps(fewMissed, siteCounts{taken: 1000, looks: 100, missed: 1}), "did not pass the path", false},
		{"all completions pass elsewhere", []siteCounts{{taken: 1000, looks: 100}, {looks: 100, behind: fewMissed}}, "do not pass the path", false},
		{"entries of the kernel, without a timer", steps(2*blindChecks, siteCounts{taken: 1000}), "", true},
		{"entries of the kernel that cannot be read", []siteCounts{{taken: 1000, timeless: 20}}, "which show that", true},
		{"entries of the kernel that are another's", []siteCounts{{taken: 1000, unfit: 1}}, "no completions", true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := siteWatch{written: tt.written}
			var sum siteCounts
			for i, s := range tt.steps {
				sum = siteCounts{sum.taken + s.taken, sum.unfit + s.unfit, sum.timeless + s.timeless,
					sum.missed + s.missed, sum.looks + s.looks, sum.behind + s.behind}
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
