package export

import (
	"strings"

	"github.com/rdmatrace/rdmatrace/attribution"
)

// where draws the mean split around p50 and around p99 side by side.
func where(p *page, r *attribution.Report) {
	p.heading("WHERE THE TIME GOES", "mean of the work requests around p50 and p99; parts add up")
	at50, at99 := newSide(r.AtP50), newSide(r.AtP99)
	long := p.width >= 110
	t := newTable("lrrbrrb")
	t.gap = 1 // the more for the bars
	t.row(cell{}, cell{text: duration(r.AtP50.LatencyNS), ansi: ansiBold}, cell{}, cell{text: " at p50", ansi: ansiDim},
		cell{text: duration(r.AtP99.LatencyNS), ansi: ansiBold}, cell{}, cell{text: " at p99", ansi: ansiDim})
	for _, c := range attribution.Classes {
		if c == attribution.Undecided && at50.class[c]+at99.class[c] == 0 {
			continue
		}
		name := cell{text: c.String(), ansi: looks[c].ansi}
		if long {
			name.text = className(c)
		}
		t.row(append(append([]cell{name}, at50.cells(c)...), at99.cells(c)...)...)
	}
	if at50.probe+at99.probe > 0 {
		t.row(dim("probes", at50.parts.text(at50.probe), "", "", at99.parts.text(at99.probe), "", "")...)
	}
	t.write(p)
	p.prose("  ", ansiDim, whereNotes(at50, at99, !long))
}

func whereNotes(at50, at99 side, nameWire bool) string {
	var notes []string
	if nameWire {
		notes = append(notes, "Wire: NIC, PCIe, fabric and peer, which a host cannot tell apart.")
	}
	if at50.class[attribution.Undecided]+at99.class[attribution.Undecided] > 0 {
		notes = append(notes, "Undecided (?) is either wire or late polling, so these two are ranges.")
	}
	if at50.probe+at99.probe > 0 {
		notes = append(notes, "Probes: our own cost inside these latencies, left out of all shares.")
	}
	return strings.Join(notes, " ")
}

// side is one of the two columns.
type side struct {
	shares
	parts parts
}

func newSide(s attribution.Split) side { return side{splitShares(s), partsOf(s.LatencyNS)} }

func (s side) cells(c attribution.Class) []cell {
	low, high := s.bounds(c)
	if high == 0 {
		return plain("-", "-", "")
	}
	b := cell{ansi: looks[c].ansi, low: low / s.whole, high: high / s.whole}
	if c == attribution.Undecided {
		b.low = 0
	}
	return []cell{{text: s.parts.span(low, high)}, {text: percentRange(low, high, s.whole)}, b}
}

// classTable gives each class its own percentiles.
func classTable(p *page, r *attribution.Report) {
	p.heading("EACH PART BY ITSELF", "percentiles of one part alone: they do not add up")
	whole := totalShares(r)
	t := newTable("lrrrrrrrr", "", "sum", "share", "exposed", "mean", "p50", "p99", "p99.9", "max")
	add := func(name cell, share, exposed string, d attribution.Distribution) {
		t.row(append([]cell{name}, plain(orDash(d.TotalNS), share, exposed, orDash(int64(finite(d.MeanNS+0.5))),
			orDash(d.P50NS), orDash(d.P99NS), orDash(d.P999NS), orDash(d.MaxNS))...)...)
	}
	for _, c := range attribution.Classes {
		d := r.Classes[c]
		if c == attribution.Undecided && d.TotalNS == 0 {
			continue
		}
		add(cell{text: c.String(), ansi: looks[c].ansi}, percent(whole.class[c], whole.whole), orDash(r.Exposed[c]), d)
		if c == attribution.Software && r.Probe.TotalNS > 0 {
			add(cell{text: "  of it probes", ansi: ansiDim}, "(ours)", "", r.Probe)
		}
	}
	t.write(p)
	p.prose("  ", ansiDim, "Exposed: time of threads, each nanosecond once, however many work requests it delayed; receives too, which the sums leave out.")
}
