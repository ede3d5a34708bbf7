package export

import (
	"bufio"
	"io"

	"github.com/rdmatrace/rdmatrace/attribution"
)

// TextOptions of Text. The zero value is for a file or a pipe: plain text, of which
// nothing is cut.
type TextOptions struct {
	Colour bool // ANSI colours
	Width  int  // columns that all has to fit into, 80 at least; 0: sentences are wrapped, the rest is as wide as it is
}

// Sentences are hard to read in longer lines, tables do not fit into shorter ones.
const (
	minWidth = 80
	maxWidth = 120
)

// Text writes the summary, the most important part first.
func Text(w io.Writer, r *attribution.Report, o TextOptions) error {
	buffered := bufio.NewWriter(w)
	p := &page{w: buffered, width: min(max(o.Width, minWidth), maxWidth), colour: o.Colour}
	if o.Width != 0 {
		p.room = max(o.Width, minWidth)
	}
	header(p, r)
	headline(p, r)
	sampled(p, r)
	if r.Latency.Count > 0 {
		latency(p, r)
		where(p, r)
		causeTable(p, r)
	}
	late(p, r)
	if r.Latency.Count > 0 {
		groupTables(p, r)
		siteTable(p, r)
		floors(p, r)
		incidents(p, r)
		classTable(p, r)
	}
	beforePost(p, r)
	ports(p, r)
	eventQueues(p, r)
	receives(p, r)
	doneSources(p, r)
	doubts(p, r)
	losses(p, r)
	books(p, r)
	cost(p, r)
	if p.err != nil {
		return p.err
	}
	return buffered.Flush()
}

// headline is the verdict, or why there is none.
func headline(p *page, r *attribution.Report) {
	p.line("")
	if r.Latency.Count == 0 {
		n := explainNothing(r)
		p.prose("  ", ansiBold, n.what)
		for _, why := range n.why {
			p.prose("  - ", "", why)
		}
		for _, do := range n.do {
			p.prose("  > ", "", do)
		}
		return
	}
	if b := bypassing(r); b != "" {
		p.prose("  ", ansiWarn, b+": their work requests are not in this report.")
	}
	p.prose("  ", ansiBold, verdict(r))
	p.prose("  ", ansiBold, idleness(r))
}

// summary is the headline as plain sentences.
func summary(r *attribution.Report) string {
	if r.Latency.Count == 0 {
		return explainNothing(r).what
	}
	s := verdict(r)
	if idle := idleness(r); idle != "" {
		s += " " + idle
	}
	return s
}
