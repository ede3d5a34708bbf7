package export

import (
	"strings"
	"testing"

	"github.com/rdmatrace/rdmatrace/attribution"
	"github.com/rdmatrace/rdmatrace/event"
)

// The text says of a sampled window how much was observed, and how well the rest
// is known.
func TestSampledText(t *testing.T) {
	r := &attribution.Report{
		Context: &event.Context{
			Window: event.Window{Begin: 1e9, End: 11e9},
			Cost:   event.Cost{TrapNS: 700, PairNS: 1100, OfThreads: 0.0095, Limit: 0.01},
		},
		Sampled: &attribution.Sampled{
			Stretches: 12, ObservedNS: 800e6, LongestUnobservedNS: 1200e6,
			WRsPerSec: 50_000, WRsPerSecError: 1_500, BytesPerSec: 3.2e6,
		},
	}
	said := func() string {
		var b strings.Builder
		if err := Text(&b, r, TextOptions{Width: 120}); err != nil {
			t.Fatal(err)
		}
		return strings.Join(strings.Fields(b.String()), " ")
	}
	text := said()
	for _, want := range []string{
		"SAMPLED", "Observed: 8.0 % of it (800 ms), in 12 parts", "the longest time between them was 1.20 s",
		"estimated from them: 50.0 k WR/s (+- 3.0 %, with 95 % confidence)", "traps and their programs took 0.9 %", "The limit is 1 %.",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in %s", want, text)
		}
	}
	r.Sampled.Stretches, r.Context.Cost.OfThreads = 2, 0.025
	text = said()
	if !strings.Contains(text, "too few to estimate") || strings.Contains(text, "50.0 k") || !strings.Contains(text, "The limit is 1 %: what it took at first, until cheaper places for probes were learned, is made up for in a trace of 25 s or longer.") {
		t.Errorf("of two stretches, over the limit: %s", text)
	}
	r.Context.Cost.OfThreads = 57.04
	text = said()
	if !strings.Contains(text, "is not known: most of them ended soon, or the price of a trap was taken in a bad moment; the limit of 1 % may not have been kept.") || strings.Contains(text, "5704") {
		t.Errorf("of threads that ended: %s", text)
	}
	r.Context.Cost.OfThreads = 0.019
	for limit, want := range map[float64]string{0.0001: "0.01 %", 0.0025: "0.25 %", 0.3 / 100: "0.3 %", 0.125: "12.5 %"} {
		r.Context.Cost.Limit = limit
		if text := said(); !strings.Contains(text, "The limit is "+want) {
			t.Errorf("no limit of %s, which is as it was given, in %s", want, text)
		}
	}
	r.Sampled = nil
	if text := said(); strings.Contains(text, "SAMPLED") {
		t.Error(text)
	}
}
