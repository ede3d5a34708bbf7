package attribution

import "slices"

// epoch holds the upper bound that binds, and the two lower ones that bind most.
type epoch struct {
	low, high clockBound
	second    clockBound // the lower bound that binds if low is false; none if near is 0
	near      int        // lower bounds that bind about as much as second, or more
	dense     bool       // so many, and as much as low, that second can stand for it
	first     int64      // device time of its first sample
	// Host time of its first and its last sample.
	begin, end uint64
	// What low says of the rate with the upper bounds of the others: with
	// earlier ones the rate is at least so much, with later ones at most.
	rateLow, rateHigh uint64
}

// clockBound says that host time t is before, or after, device time at.
type clockBound struct {
	at int64
	t  uint64
}

// bind takes bounds into the epoch if, at this rate, they bind.
func (e *epoch) bind(low, high clockBound, rate uint64) {
	if high.ahead(e.high, rate) < 0 {
		e.high = high
	}
	if low.ahead(e.low, rate) > 0 {
		low, e.low = e.low, low
	}
	e.bindSecond(low, 1, rate)
}

// bindSecond takes a lower bound for which so many stand that bind about as much.
func (e *epoch) bindSecond(low clockBound, near int, rate uint64) {
	ahead := int64(maxTime)
	if e.near > 0 {
		ahead = low.ahead(e.second, rate)
	}
	switch {
	case ahead <= -nearNS:
		return
	case ahead > nearNS:
		e.near = near
	default:
		e.near += near
	}
	if ahead > 0 {
		e.second = low
	}
	e.dense = e.isDense(rate)
}

func (e *epoch) isDense(rate uint64) bool {
	return e.near >= nearMany && e.low.ahead(e.second, rate) <= 2*writeLag
}

// ahead is by how much, ns, b is later than a is at the device time of b.
func (b clockBound) ahead(a clockBound, rate uint64) int64 {
	return int64(b.t-a.t) - scale(b.at-a.at, rate)
}

// lower is the lower bound that binds. Where many bind about as much, nothing is
// lost by leaving out the one that binds most; and if one is false, it is that.
func (e *epoch) lower() clockBound {
	if e.dense {
		return e.second
	}
	return e.low
}

func since(begin, end uint64) uint64 { return end - min(begin, end) }

// makeRoom for one more epoch. As long as little is known of the rate epochs are
// short, and only together do they reach back far enough to tell it: so the two
// that are closest become one, unless that would be longer than one may be.
func (d *deviceClock) makeRoom() {
	least, at := uint64(epochNS), 0
	for i := range d.kept - 1 {
		if span := since(d.epochs[i].begin, d.epochs[i+1].end); span < least {
			least, at = span, i+1
		}
	}
	if at > 0 {
		d.epochs[at-1].merge(&d.epochs[at], middle(d.rateLow, d.rateHigh))
	}
	copy(d.epochs[at:d.kept-1], d.epochs[at+1:d.kept])
	d.kept--
}

// merge takes a later epoch into this one. What the two said of the rate stays
// true, as bounds do.
func (e *epoch) merge(later *epoch, rate uint64) {
	e.bind(later.low, later.high, rate)
	if later.near > 0 {
		e.bindSecond(later.second, later.near, rate)
	}
	e.dense = e.isDense(rate)
	e.end = later.end
	e.rateLow = max(e.rateLow, later.rateLow)
	e.rateHigh = min(e.rateHigh, later.rateHigh)
}

// keep the latest n epochs.
func (d *deviceClock) keep(n int) {
	copy(d.epochs[:n], d.epochs[d.kept-n:d.kept])
	d.kept = n
}

// epoch gives the i-th latest closed one.
func (d *deviceClock) epoch(i int) *epoch {
	return &d.epochs[d.kept-1-i]
}

// pairAll forgets what epochs said that are not kept any more.
func (d *deviceClock) pairAll() {
	for i := d.kept - 1; i >= 0; i-- {
		d.pair(i)
	}
}

// pair the i-th latest epoch with all before it.
func (d *deviceClock) pair(i int) {
	b := d.epoch(i)
	b.rateLow, b.rateHigh = fastestRate, slowestRate
	for j := i + 1; j < d.kept; j++ {
		d.epoch(j).boundRate(b)
	}
}

// boundRate by an earlier and a later epoch, as what each one's lower bound says
// of the clock's rate: the line passes above a lower bound and below an upper one. An upper bound is one of
// the stamp too; a lower one is of the entry, which was written after its stamp.
func (e *epoch) boundRate(later *epoch) {
	before, after := e.lower(), later.lower()
	if units, ns := after.at-e.high.at, int64(after.t-e.high.t)-writeLag; units > 0 && ns > 0 {
		later.rateLow = max(later.rateLow, ratio(uint64(ns), uint64(units)))
	}
	if units, ns := later.high.at-before.at, int64(later.high.t-before.t)+writeLag; units > 0 && ns > 0 {
		e.rateHigh = min(e.rateHigh, ratio(uint64(ns), uint64(units))+1)
	}
}

// boundRate by the epochs that are kept, but for those, as many as dissent says,
// that say most: an entry may come out so late after its stamp that its lower
// bound is false, and those are the bounds that would decide. As long as little
// is known of the rate epochs are short, and the first stretch may well hold two
// of them.
func (d *deviceClock) boundRate() {
	var lows, highs [clockEpochs]uint64
	d.tightLow, d.tightHigh = d.priorLow, d.priorHigh
	for i := range d.kept {
		lows[i], highs[i] = d.epoch(i).rateLow, d.epoch(i).rateHigh
		n := i + 1
		skip := dissent(n)
		if !isStretch(n, d.kept) || skip == 1 && n < d.kept {
			continue
		}
		slices.Sort(lows[:n])
		slices.Sort(highs[:n])
		d.tightLow = max(d.tightLow, lows[i-skip])
		d.tightHigh = min(d.tightHigh, highs[skip])
	}
}

// isStretch says whether the latest n epochs, of so many, are to be looked at by
// themselves: no longer stretch has as few lower bounds left out.
func isStretch(n, of int) bool {
	return n == of || n > 2 && dissent(n) < dissent(n+1)
}

// dissent is how many of n lower bounds may be false. Of two, neither can be
// told to be.
func dissent(n int) int {
	return (n + clockDissent - 3) / clockDissent
}

// bound gives the range that an epoch's bounds leave for a device time, which
// is that unit's beginning to the next one's.
func (e *epoch) bound(at int64, rateLow, rateHigh uint64) (from, to int64) {
	low := e.lower()
	after, before := at-low.at, at+1-e.high.at
	if after >= 0 {
		from = int64(low.t) + scale(after, rateLow)
	} else {
		from = int64(low.t) + scale(after, rateHigh)
	}
	if before >= 0 {
		to = int64(e.high.t) + scale(before, rateHigh) + 1
	} else {
		to = int64(e.high.t) + scale(before, rateLow) + 1
	}
	return from, to
}
