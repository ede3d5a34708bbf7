package export

import (
	"fmt"
	"math"
	"strconv"

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
	if s.Stretches < attribution.StretchesToTell {
		p.prose("  ", "", "They are too few to estimate the rates of the whole window from: a longer trace has more of them.")
		return
	}
	p.prose("  ", "", fmt.Sprintf("The whole window, estimated from them: %s WR/s%s and %s%s posted to send queues, had probes been in all the time.",
		rate(s.WRsPerSec), margin(s.WRsPerSec, s.WRsPerSecError), bitRate(8*s.BytesPerSec), margin(s.BytesPerSec, s.BytesPerSecError)))
}

// margin of an estimate, in percent of it.
func margin(value, bound float64) string {
	if value <= 0 {
		return ""
	}
	return fmt.Sprintf(" (+- %s, with 95 %% confidence)", percent(bound, value))
}

// ofThreads says what probes took of their threads' time. Of threads that end soon
// next to nothing of that time is seen.
func ofThreads(r *attribution.Report) string {
	c := context(r).Cost
	entries, _ := probeHits(context(r))
	switch {
	case c.OfThreads > 1, c.OfThreads <= 0 && c.Limit > 0 && entries > 0:
		s := "What share of the time of the threads that post and poll this was is not known: most of them ended soon, or the price of a trap was taken in a bad moment"
		if c.Limit > 0 {
			s += fmt.Sprintf("; the limit of %s may not have been kept", given(c.Limit))
		}
		return s + "."
	case c.OfThreads <= 0:
		return ""
	}
	s := fmt.Sprintf("Of the time that the threads ran which post and poll, traps and their programs took %s.", percent(c.OfThreads, 1))
	if c.Limit > 0 {
		s += fmt.Sprintf(" The limit is %s", given(c.Limit))
		if c.OfThreads > c.Limit {
			// Threads that go on as they did, with no other window.
			enough := math.Ceil(float64(windowNS(context(r))) / 1e9 * c.OfThreads / c.Limit)
			s += fmt.Sprintf(": what it took at first, until cheaper places for probes were learned, is made up for in a trace of %.0f s or longer", enough)
		}
		s += "."
	}
	return s
}

// given is a share as somebody has given it: not measured, so not rounded to what
// a measurement deserves, and 0.01 % is not "<0.1 %".
func given(share float64) string { return strconv.FormatFloat(100*finite(share), 'g', 6, 64) + " %" }
