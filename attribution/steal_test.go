package attribution

import (
	"slices"
	"strings"
	"testing"

	"github.com/rdmatrace/rdmatrace/event"
)

// TestStealIsDoubt: of what ran on a CPU that the hypervisor took it is said that it
// cannot be trusted, and of how many work requests that is true.
func TestStealIsDoubt(t *testing.T) {
	on := func(cpus ...int16) (list []segment) {
		for _, cpu := range cpus {
			list = append(list, segment{cause: LatePoll, cpu: cpu})
		}
		return list
	}
	var s stolenCPUs
	for range 6 {
		s.add(on(-1, 3, -1, 3, 1))
	}
	s.add(on(2, 3, 2, 3))
	for range 3 {
		s.add(append(on(-1), segment{cause: WireUnsplit}))
	}
	if want := []int64{0, 6, 1, 7}; !slices.Equal(s.counted, want) || s.all != 10 {
		t.Errorf("counted %v of %d, want %v of 10", s.counted, s.all, want)
	}
	const window = 10_000_000_000
	for _, test := range []struct {
		name  string
		steal []event.StolenCPU
		want  string // the beginning
		most  string
	}{
		{"nothing", nil, "", ""},
		{"less than a hundredth", []event.StolenCPU{{CPU: 3, StolenNS: window/100 - 1}}, "", ""},
		{"where nothing ran", []event.StolenCPU{{CPU: 0, StolenNS: window / 2}, {CPU: 77, StolenNS: window / 2}, {CPU: -1, StolenNS: window}}, "", ""},
		{"one", []event.StolenCPU{{CPU: 3, StolenNS: window / 5}, {CPU: 0, StolenNS: window / 2}}, "up to 70 % of the work requests", " 2e+03 ms "},
		{"two", []event.StolenCPU{{CPU: 2, StolenNS: window / 100}, {CPU: 3, StolenNS: window / 50}}, "up to 80 % of the work requests", " 200 ms "},
	} {
		ctx := &event.Context{Window: event.Window{Begin: 5, End: 5 + window}, Steal: test.steal}
		got := s.doubt(ctx)
		if !strings.HasPrefix(got, test.want) || (got == "") != (test.want == "") || !strings.Contains(got, test.most) {
			t.Errorf("%s: %q", test.name, got)
		}
	}
}
