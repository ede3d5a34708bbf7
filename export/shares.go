package export

import "github.com/rdmatrace/rdmatrace/attribution"

const classes = len(attribution.Report{}.Classes)

// shares of a latency: its classes, in ns. Our own probes are taken out of
// software and out of the whole, as shares are printed without them.
type shares struct {
	whole float64 // without probe
	class [classes]float64
	probe float64
}

func newShares(class [classes]float64, probe float64) shares {
	s := shares{class: class}
	s.probe = min(finite(probe), finite(class[attribution.Software]))
	s.class[attribution.Software] -= s.probe
	for c := range s.class {
		s.class[c] = finite(s.class[c])
		s.whole += s.class[c]
	}
	return s
}

// splitShares are those of the WRs around a percentile.
func splitShares(s attribution.Split) shares {
	probe := 0.0
	if s.Count > 0 {
		for _, c := range s.Causes {
			if c.Cause == attribution.Probe {
				probe += float64(c.TotalNS) / float64(s.Count)
			}
		}
	}
	return newShares(s.ClassNS, probe)
}

// totalShares are those of all WRs together.
func totalShares(r *attribution.Report) shares {
	return newShares(totals(r.Classes), float64(r.Probe.TotalNS))
}

func totals(d [classes]attribution.Distribution) (t [classes]float64) {
	for c := range d {
		t[c] = float64(d[c].TotalNS)
	}
	return t
}

// bounds of a class: the undecided part is either wire or software (late-poll),
// so the truth of these two lies in a range.
func (s shares) bounds(c attribution.Class) (low, high float64) {
	low = s.class[c]
	if c == attribution.Wire || c == attribution.Software {
		return low, low + s.class[attribution.Undecided]
	}
	return low, low
}

// leader is the largest class. Decided is false where the undecided part could
// make another one larger.
func (s shares) leader() (c attribution.Class, decided bool) {
	c = attribution.Wire
	for _, o := range attribution.Classes {
		if o != attribution.Undecided && s.class[o] > s.class[c] {
			c = o
		}
	}
	for _, o := range attribution.Classes {
		if o == c || o == attribution.Undecided {
			continue
		}
		if _, high := s.bounds(o); high > s.class[c] {
			return c, false
		}
	}
	return c, s.whole > 0
}

// minus is what s takes more than o, class by class.
func (s shares) minus(o shares) (d shares) {
	for c := range s.class {
		d.class[c] = max(s.class[c]-o.class[c], 0)
		d.whole += d.class[c]
	}
	return d
}
