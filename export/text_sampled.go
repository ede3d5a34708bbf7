package export

import (
	"fmt"

	"github.com/rdmatrace/rdmatrace/attribution"
)

// sampled says what part of the window was observed, and what the rates of all
// of it are as far as that tells.
func sampled(p *page, r *attribution.Report) {
	s := r.Sampled
	if s == nil {
		return
	}
	c := context(r)
	p.heading("SAMPLED", "posts and polls were observed for a part of the window, to limit the overhead")
	p.prose("  ", "", fmt.Sprintf("Observed: %s of it (%s), in %s; the longest time between them was %s. Work requests in flight as "+
		"one ended are excluded. The figures of this report are of what was observed, and rates are those while probes were in.",
		percent(float64(s.ObservedNS), float64(windowNS(c))), durationNS(s.ObservedNS), counted(s.Stretches, "part"), durationNS(s.LongestUnobservedNS)))
	p.prose("  ", "", fmt.Sprintf("The whole window, estimated from them: %s WR/s%s and %s%s posted to send queues.",
		rate(s.WRsPerSec), margin(s.WRsPerSec, s.WRsPerSecError), bitRate(8*s.BytesPerSec), margin(s.BytesPerSec, s.BytesPerSecError)))
}

// margin of an estimate, in percent of it.
func margin(value, bound float64) string {
	if bound <= 0 || value <= 0 {
		return " (too few stretches to tell how well)"
	}
	return fmt.Sprintf(" (+- %s, with 95 %% confidence)", percent(bound, value))
}

// ofThreads says what probes took of their threads' time.
func ofThreads(r *attribution.Report) string {
	c := context(r).Cost
	if c.OfThreads <= 0 {
		return ""
	}
	s := fmt.Sprintf("Of the time that the threads ran which post and poll, traps took %s.", percent(c.OfThreads, 1))
	if c.Limit > 0 {
		s += fmt.Sprintf(" The limit is %s.", percent(c.Limit, 1))
	}
	return s
}
