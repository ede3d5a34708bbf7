package attribution

import "math/bits"

// A floor is what the wire takes at least for one peer, operation and
// transport, as this run shows it:
//
//	floor(size) = base + size * perByte
//
// It is fitted to the doubt-free WRs. What such a WR took on the wire depends
// on the bytes in front of it on its queue pair, its own included (reach): a
// low quantile of the wire time is kept for each quarter of a power of two of
// reach, and a line is laid through these points. On an idle queue reach is
// the size itself and the slope is the path's rate; on a deep queue over a
// long wire the points are level, and no queueing is seen; in front of a
// saturated path they rise in proportion. Where nothing was ever posted to an
// idle queue and reach does not vary, base and queueing cannot be told apart
// and the wire stays unsplit.
type floor struct {
	key    floorKey
	points [floorPoints]*floorPoint
	seen   int64  // WRs, those in doubt included
	least  uint64 // of what the wire can have taken at most, over those, ns
	count  int64  // WRs learnt from
	idle   int64  // of them with nothing in front on their queue pair
	refit  int64  // count at which the fit is due again
	split  int64  // WRs split by it
	// bluntness is how often the doubt was doubled up to which a WR teaches.
	bluntness uint8

	fit fit
}

type floorKey struct {
	device, peer string
	port         uint8
	qpType       uint32
	opcode       uint8
}

// perByte is ns per byte in units of 2^-20.
type perByte uint64

const perByteBits = 20

// of n bytes, in ns; at most never.
func (p perByte) of(n uint64) uint64 {
	high, low := bits.Mul64(uint64(p), n)
	if high>>perByteBits != 0 {
		return never
	}
	return high<<(64-perByteBits) | low>>perByteBits
}

// mulDiv is a*b/c, rounded down; at most never. c must not be 0.
func mulDiv(a, b, c uint64) uint64 {
	high, low := bits.Mul64(a, b)
	if high >= c {
		return never
	}
	quotient, _ := bits.Div64(high, low, c)
	return quotient
}

// perByteAt is the time of a byte at a rate in bits per second; 0: unknown.
func perByteAt(bitsPerSecond uint64) perByte {
	if bitsPerSecond == 0 {
		return 0
	}
	return perByte(8_000_000_000 << perByteBits / bitsPerSecond)
}

// rate in bits per second; 0: unknown.
func (p perByte) rate() uint64 {
	if p == 0 {
		return 0
	}
	return 8_000_000_000 << perByteBits / uint64(p)
}

const floorPoints = 4*64 + 1

// floorPoint is a quarter of a power of two of reach.
type floorPoint struct {
	count, idle int64
	reach, wire sketch
}

func floorPointOf(reach uint64) int {
	if reach == 0 {
		return 0
	}
	octave := bits.Len64(reach) - 1
	return 1 + 4*octave + int(reach<<(63-octave)<<1>>62)
}

const (
	// floorWRs are needed before anything is split; pointWRs in each point, and
	// deepWRs where they were posted behind others.
	floorWRs = 32
	pointWRs = 8
	deepWRs  = 16
	// floorQuantile of the wire times is the floor: the tenth part.
	floorQuantile = 10
)

// learn from a doubt-free WR: the bytes in front of it on its queue pair, and
// of others on the port, its own, and its wire time.
func (f *floor) learn(ahead, others, size, wire uint64) {
	reach := ahead + others + size
	i := floorPointOf(reach)
	p := f.points[i]
	if p == nil {
		p = new(floorPoint)
		f.points[i] = p
	}
	p.count++
	p.reach.add(reach)
	p.wire.add(wire)
	f.count++
	if ahead == 0 {
		f.idle++
		p.idle++
	}
}

// certain says whether m may teach: it was done, give or take half its doubt,
// when it is said to have been, to what is sharp or a tenth of what the quickest took.
// What m itself took must not matter: else the slow ones alone would teach
// where the doubt of all is the same, and the floor would be theirs.
func (f *floor) certain(m *measured) bool {
	if most := max(m.doneHigh, m.postEnd) - m.postEnd; f.seen == 1 || most < f.least {
		f.least = most
	}
	if !f.fit.known && f.seen == settledWRs<<f.bluntness && f.bluntness < bluntMost {
		f.bluntness++
	}
	return (m.doneHigh-m.doneLow)/2 <= max(sharp<<f.bluntness, f.least/10)
}

const (
	// sharp enough to teach any floor is half a doubt of so many ns. Where after
	// settledWRs no floor is found, twice that is, and after twice as many twice again:
	// mostly since few are as sharp. Where that is not why, it changes nothing that
	// sharper ones would not have told.
	sharp     = 1_000
	bluntMost = 2
	// of the WRs of a floor that many have taught one in so many does: a prime, as jobs
	// post in rounds of even numbers, and one place of them would teach for all.
	settledSample = 7
)

// wants says whether the WR seen last is to teach, if it can.
func (f *floor) wants() bool { return f.count < hopelessWRs || f.seen%settledSample == 0 }

// due says whether enough was learnt since the last fit: a quarter more.
func (f *floor) due() bool { return f.count >= f.refit }

// settled: its WRs need not wait for it to learn more.
func (f *floor) settled() bool {
	return f.fit.known && f.seen >= settledWRs || f.seen >= hopelessWRs
}
