package attribution

import (
	"math/bits"
	"slices"
)

// deviceClock aligns the clock of a device, which stamps CQEs, to the host's.
//
// Nothing is known of it but causality: a CQE became visible after its post
// (and after the last poll that found the CQ empty), and before the poll that
// returned it. Each completion so bounds the host time of one device time from
// below and from above. If the host's time is offset + rate * device time, the
// bounds of many completions leave a band of lines: meet gives what the band
// leaves open at one device time, and that width is part of the doubt.
//
// Per stretch of time (an epoch) only the bounds that bind are kept. Pairs
// of them, a lower one and a later upper one and the other way round, bound the
// rate; the rate carries the offsets of the latest epochs to the present.
// Upper bounds are facts; a lower one is false if its entry came out late after
// its stamp (the bus stalls, or the machine below a software device), so one in
// some may be. One that lies outside the band means that the clock was stepped,
// if it goes on like that, and a broken or late stamp if not.
type deviceClock struct {
	started  bool
	realTime bool
	base     uint64             // device time that stamps are counted from
	epochs   [clockEpochs]epoch // closed ones, the first kept, in order
	kept     int
	closed   int // epochs ever closed
	current  epoch
	samples  int // in current
	rateLow  uint64
	rateHigh uint64
	foreign  int // samples in a row that cannot be of the same clock
	outside  int // samples in a row outside the band
	early    int // times a sample was reaped before the band begins, of late
	agreed   int // samples inside the band, ever
	inside   int // samples inside the band since the last start, up to clockProven
	suspects [clockSuspects]clockSample
	steps    int64
	outliers int64
	// What is known of the rate beside the epochs: of a clock that was
	// stepped, its rate before.
	priorLow, priorHigh uint64
	// What the epochs say of the rate; rateLow and rateHigh leave room for wander.
	tightLow, tightHigh uint64
	line                clockLine
}

const (
	clockEpochs   = 64
	clockAnew     = 16 // epochs after which the rate is bounded anew
	clockDissent  = 8  // one epoch's lower bound in so many may be false
	clockSuspects = 8
	clockAgree    = 6       // of these, so many must agree on a new offset
	clockAstray   = 8       // times samples before the band prove it wrong
	clockTrusted  = 16      // samples that agreed before the band is believed
	clockProven   = 256     // samples that agreed before a contradiction is the clock's
	epochNS       = 1 << 25 // about 34 ms of host time
	epochSpread   = 64      // ns by which a rate in doubt may mislead within an epoch
	// contradiction, ns, that a change of the rate may explain, or writeLag.
	contradiction = 500 + writeLag
	// writeLag: an entry becomes visible so long after its stamp, at most: what
	// a posted write takes over PCIe, with a switch between. How much it varies
	// would be read as a rate that is off.
	writeLag = 1000
	// writeJitter: by so much, ns, the time that an entry takes usually varies.
	writeJitter = 64
	// Within an epoch, nearMany lower bounds that are no more than nearNS apart
	// can do without the one that binds most.
	nearNS   = 500
	nearMany = 16
	// Rates are ns per unit of the device's clock, times 2^32.
	rateShift   = 32
	slowestRate = 1000 << rateShift // 1 MHz
	fastestRate = 1 << rateShift / 10
	// A real-time clock is disciplined, but may run off by a part in 2^10.
	realTimeSlack = 1 << rateShift >> 10
	// wander: clocks change their rate by less than 2^-20, about 1 ppm, within
	// the seconds that are looked at.
	wander = 20
	// stepSlack: when it steps a clock, a daemon changes its rate by less than
	// 2^-11, which is the most that Linux allows it (500 ppm).
	stepSlack = 11
)

// clockSample says that device time at lies between low and high of host time.
type clockSample struct {
	at        int64 // since base
	low, high uint64
}

// decode gives ns of a real-time stamp, seconds<<32 | nanoseconds, and a
// free-running one as it is. Only a real-time clock has 10^9 in its upper half:
// a cycle counter of 1 GHz would need 136 years.
func (d *deviceClock) decode(stamp uint64) (units uint64, ok bool) {
	if !d.realTime {
		return stamp, true
	}
	ns := stamp & (1<<32 - 1)
	return stamp>>32*1_000_000_000 + ns, ns < 1_000_000_000
}

func (d *deviceClock) start(stamp uint64) {
	d.started = true
	d.realTime = stamp>>32 >= 1_000_000_000 && stamp&(1<<32-1) < 1_000_000_000
	d.base, _ = d.decode(stamp)
	d.forgetRate()
}

func (d *deviceClock) forgetRate() {
	d.priorLow, d.priorHigh = fastestRate, slowestRate
	if d.realTime {
		d.priorLow, d.priorHigh = 1<<rateShift-realTimeSlack, 1<<rateShift+realTimeSlack
	}
	d.tightLow, d.tightHigh = d.priorLow, d.priorHigh
	d.rateLow, d.rateHigh = d.priorLow, d.priorHigh
	d.line = noLine
}

// forgetBand has the next sample begin a new one.
func (d *deviceClock) forgetBand() {
	d.kept, d.samples, d.outside, d.inside, d.early = 0, 0, 0, 0, 0
}

// sample gives a stamp relative to base; ok is false if it cannot be one.
func (d *deviceClock) sample(stamp uint64) (at int64, ok bool) {
	units, ok := d.decode(stamp)
	at = int64(units - d.base)
	return at, ok && at > -1<<50 && at < 1<<50
}

// meet takes that a CQE with this stamp became visible between low and high,
// and gives the range of host times that those before it leave for it; ok is
// false as long as too little is known, and for a stamp that is broken.
func (d *deviceClock) meet(stamp, low, high uint64) (from, to uint64, ok bool) {
	trusted := d.inside >= clockTrusted
	if !d.started {
		d.start(stamp)
	}
	at, ok := d.sample(stamp)
	if !ok || low > high {
		d.outliers++
		if d.foreign++; d.foreign == clockSuspects {
			*d = deviceClock{steps: d.steps, outliers: d.outliers}
			d.start(stamp)
		}
		return 0, 0, false
	}
	d.foreign = 0
	s := clockSample{at, low - min(low, writeJitter), high}
	from, to, ok = d.band(at)
	if d.kept > 0 && (!ok || high+writeLag < from || low > to+writeLag) {
		d.suspect(s, ok && high+writeLag < from)
		return from, to, ok && trusted
	}
	d.outliers += int64(d.outside)
	d.outside = 0
	d.inside = min(d.inside+1, clockProven)
	if d.agreed++; d.agreed%clockProven == 0 {
		d.early /= 2
	}
	d.add(s, to-from)
	return from, to, ok && trusted
}

// suspect a sample outside the band. One that was reaped before the band begins
// is proof, and what begins the band is not: entries that came out late may have
// led it astray so far that most samples, reaped late, still agree with it.
func (d *deviceClock) suspect(s clockSample, early bool) {
	d.suspects[d.outside] = s
	if d.outside++; d.outside == clockSuspects {
		d.restart()
		return
	}
	if early && d.outside == 1 {
		d.early++
	}
	if d.early == clockAstray {
		d.outliers += int64(d.outside)
		d.forgetBand()
		d.forgetRate()
		d.add(s, 0)
	}
}

// restart after a step: the offset is that of the samples outside the band, the
// rate about what it was.
func (d *deviceClock) restart() {
	if d.inside < clockProven {
		d.forgetRate() // what was thought to be known is what was wrong
	} else {
		d.priorLow = max(d.priorLow, d.rateLow-d.rateLow>>stepSlack)
		d.priorHigh = min(d.priorHigh, d.rateHigh+d.rateHigh>>stepSlack)
	}
	d.tightLow, d.tightHigh = d.priorLow, d.priorHigh
	d.rateLow, d.rateHigh = d.priorLow, d.priorHigh
	d.line = noLine
	agreed, n := d.agreement()
	if n < clockAgree {
		d.outliers++ // and the others are suspected on
		copy(d.suspects[:], d.suspects[1:])
		d.outside--
		return
	}
	if d.inside == clockProven {
		d.steps++
	}
	d.outliers += int64(d.outside - n)
	d.forgetBand()
	for i, s := range d.suspects {
		if agreed&(1<<i) != 0 {
			d.add(s, 0)
		}
	}
}

// agreement finds the most suspects that some offset fits, as a set of bits.
func (d *deviceClock) agreement() (agreed uint, n int) {
	for i := range d.suspects {
		with, count := uint(0), 0
		a := &d.suspects[i]
		band := epoch{low: clockBound{a.at + 1, a.low}, high: clockBound{a.at, a.high}}
		for j := range d.suspects {
			b := &d.suspects[j]
			if from, to := band.bound(b.at, d.rateLow, d.rateHigh); int64(b.high) >= from && int64(b.low) <= to {
				with |= 1 << j
				count++
			}
		}
		if count > n {
			agreed, n = with, count
		}
	}
	return agreed, n
}

// add a sample where the band is so wide. The two bounds that bind are found by
// the rate in the middle, so an epoch ends before the doubt about the rate adds
// up to much of that.
func (d *deviceClock) add(s clockSample, width uint64) {
	c := &d.current
	// A stamp is rounded down: the CQE came before the next unit.
	low, high := clockBound{s.at + 1, s.low}, clockBound{s.at, s.high}
	if d.samples == 0 {
		*c = epoch{low: low, high: high, first: s.at, begin: s.high}
	} else {
		c.bind(low, high, middle(d.rateLow, d.rateHigh))
	}
	c.end = s.high
	d.samples++
	spread := scale(s.at-c.first, d.rateHigh-d.rateLow)
	if d.kept == 0 || spread > int64(max(epochSpread, width/8)) || since(c.begin, s.high) >= epochNS {
		d.close()
	}
}

// close the current epoch and see what it says about the rate.
func (d *deviceClock) close() {
	if d.kept == clockEpochs {
		d.makeRoom()
	}
	d.epochs[d.kept] = d.current
	d.kept++
	d.closed++
	d.samples = 0
	if d.closed%clockAnew == 0 {
		d.pairAll()
	} else {
		d.pair(0)
	}
	for d.boundRate(); d.tightLow > d.tightHigh && d.kept > 2; d.boundRate() {
		d.keep(d.kept / 2) // the rate has changed
		d.forgetRate()
		d.pairAll()
	}
	if d.tightLow > d.tightHigh {
		d.forgetRate()
	}
	d.rateLow = d.tightLow - d.tightLow>>wander
	d.rateHigh = d.tightHigh + d.tightHigh>>wander
	d.line = d.through(d.latest())
}

// ratio is ns/units as a rate.
func ratio(ns, units uint64) uint64 {
	high, low := bits.Mul64(ns, 1<<rateShift)
	if high >= units {
		return slowestRate
	}
	quotient, _ := bits.Div64(high, low, units)
	return quotient
}

// scale is units at a rate, in ns, rounded down.
func scale(units int64, rate uint64) int64 {
	magnitude := uint64(units)
	if units < 0 {
		magnitude = -magnitude
	}
	high, low := bits.Mul64(magnitude, rate)
	if high>>(rateShift-2) != 0 {
		high = 1<<(rateShift-2) - 1 // out of any range that matters
	}
	ns := int64(high<<(64-rateShift) | low>>rateShift)
	if units < 0 {
		return -ns - 1
	}
	return ns
}

// band gives what the bounds leave open at a device time. Of bounds that
// contradict each other by little, either the lower ones are false, or the rate
// has changed: they leave the range between them and as much before it. ok is
// false if they contradict each other by more, and without any.
func (d *deviceClock) band(at int64) (low, high uint64, ok bool) {
	if d.kept == 0 {
		return 0, 0, false
	}
	l := d.line
	if at < l.at {
		l = d.through(at)
	}
	slow, fast := scale(at-l.at, d.rateLow), scale(at-l.at, d.rateHigh)
	from, to := l.from+slow, l.to+fast
	if d.samples > 0 {
		f, t := d.current.bound(at, d.rateLow, d.rateHigh)
		from, to = max(from, min(f, l.most+slow)), min(to, t)
	}
	if from > to+contradiction {
		return 0, 0, false
	}
	if from > to {
		from, to = to-(from-to), from
	}
	return uint64(max(from, 0)), uint64(max(to, 0)), true
}

// clockLine is what the closed epochs leave open at a device time that is later
// than theirs. From there on the bounds that bind stay the same, as all move on
// at the same rate.
type clockLine struct {
	at       int64
	from, to int64
	most     int64 // what from may become by one lower bound more
}

// noLine is later than any device time.
var noLine = clockLine{at: maxTime}

// through gives what the closed epochs leave open at a device time. Without empty
// polls few lower bounds are sharp, and not of every epoch: so of each stretch
// those that dissent leaves count.
func (d *deviceClock) through(at int64) clockLine {
	var lows [clockEpochs]int64
	l := clockLine{at: at, from: -maxTime, to: maxTime, most: -maxTime}
	for i := range d.kept {
		from, to := d.epoch(i).bound(at, d.rateLow, d.rateHigh)
		l.to = min(l.to, to)
		lows[i] = from
		if !isStretch(i+2, d.kept+1) { // with the current one
			continue
		}
		slices.Sort(lows[:i+1])
		skip := dissent(i + 2)
		l.from = max(l.from, lows[i-skip])
		if skip == 0 {
			l.most = maxTime
		} else {
			l.most = max(l.most, lows[i+1-skip])
		}
	}
	if n, _ := slices.BinarySearch(lows[:d.kept], l.to+1); l.from > l.to && n > 0 {
		l.from = lows[n-1] // those after it are false, as upper bounds are facts
	}
	return l
}

// latest is the last device time of the closed epochs.
func (d *deviceClock) latest() (at int64) {
	for i := range d.kept {
		e := d.epoch(i)
		at = max(at, e.low.at, e.high.at)
	}
	return at
}
