package attribution

import "math/bits"

// flightKind says from what a flight time was learnt.
type flightKind uint8

const (
	flightSeen      flightKind = iota // narrow bounds, time stamps
	flightInterrupt                   // the interrupts that led to wakeups
)

// flightKey is a kind of work requests that are in flight about equally long.
type flightKey struct {
	qp     *queuePair
	opcode uint8
	size   uint8 // bit length of the bytes
	kind   flightKind
}

// flights are the distributions of post_begin to done.
type flights struct {
	known  map[flightKey]*flight
	key    flightKey // looked up last
	latest *flight
}

// flightsMost bounds their memory, at about 1.3 KiB each.
const flightsMost = 4096

// of gives the distribution for work requests like m; nil, which knows nothing,
// for a receive and where there are too many kinds.
func (f *flights) of(m *measured, kind flightKind) *flight {
	if m.receive {
		return nil
	}
	k := flightKey{m.qp, m.opcode, uint8(bits.Len64(m.bytes)), kind}
	if f.key == k {
		return f.latest
	}
	d := f.known[k]
	if d == nil && len(f.known) < flightsMost {
		d = new(flight)
		f.known[k] = d
	}
	f.key, f.latest = k, d
	return d
}

// forget the distributions of a queue pair that is gone.
func (f *flights) forget(qp *queuePair) {
	for k := range f.known {
		if k.qp == qp {
			delete(f.known, k)
		}
	}
	f.key, f.latest = flightKey{}, nil
}

// flight holds the distributions of the least and of the most that flights can
// have taken, in steps of an eighth of an octave, with the past fading. It
// tells in what range nearly all flights lie.
type flight struct {
	low, high [flightSteps]uint16
	total     uint32
	// The range, valid until total reaches refresh.
	least, most uint64
	refresh     uint32
}

const (
	flightSteps = 8 * 40 // up to 2^42 ns
	// flightsNeeded before the range is believed.
	flightsNeeded = 200
	// flightsKept: then all counts are halved.
	flightsKept = 8192
	// One flight in rareFlight may lie outside the range at either end: a late
	// poll is then mistaken for wire, or wire for a late poll, in fewer than
	// one WR in a hundred. Of wakeups one in ten may: what is above is doubt.
	rareFlight = 200
	rareWakeup = 10
)

// step of a flight time: its three leading bits below the first, and its length.
func step(ns uint64) int {
	if ns < 8 {
		return int(ns)
	}
	shift := bits.Len64(ns) - 4
	return min(8*shift+int(ns>>shift), flightSteps-1)
}

// stepBegin is the least flight time of a step.
func stepBegin(s int) uint64 {
	if s < 16 {
		return uint64(s)
	}
	shift := s/8 - 1
	return uint64(8+s%8) << shift
}

// learn that a flight took between low and high.
func (f *flight) learn(low, high uint64) {
	if f == nil {
		return
	}
	f.low[step(low)]++
	f.high[step(high)]++
	f.total++
	if f.total < flightsKept {
		return
	}
	f.total, f.refresh = 0, 0
	for i := range f.low {
		f.low[i] /= 2
		f.high[i] /= 2
		f.total += uint32(f.low[i])
	}
}

// usual gives the range outside which, at either end, one flight in rare lies.
// Ask always with the same.
func (f *flight) usual(rare uint32) (least, most uint64, known bool) {
	if f == nil || f.total < flightsNeeded {
		return 0, 0, false
	}
	if f.total < f.refresh {
		return f.least, f.most, true
	}
	f.refresh = f.total + f.total/16
	outside := f.total / rare
	low, high := 0, flightSteps-1
	for n := uint32(f.low[low]); n <= outside && low < flightSteps-1; n += uint32(f.low[low]) {
		low++
	}
	for n := uint32(f.high[high]); n <= outside && high > 0; n += uint32(f.high[high]) {
		high--
	}
	f.least, f.most = stepBegin(low), stepBegin(high+1)
	return f.least, f.most, true
}
