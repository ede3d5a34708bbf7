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
	depth  uint8 // bit length of the depth at the post: it waits behind those
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
	k := flightKey{m.qp, m.opcode, uint8(bits.Len64(m.bytes)), uint8(bits.Len32(uint32(m.depth))), kind}
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

// flight knows the least and the distribution of the most that flights can have
// taken, with the past fading.
type flight struct {
	floor   [2]uint64 // the least, of this generation and of the one before
	high    [flightSteps]uint16
	total   uint32
	learned uint32 // ever, up to flightsKept
	missed  uint32 // flights that were over before the CQ was looked at
	most    uint64 // valid until total reaches refresh
	refresh uint32
}

const (
	flightSteps = 16 * 40 // a sixteenth of an octave each, up to 2^41 ns
	// floorNeeded flights before the least is believed, flightsNeeded before
	// the most.
	floorNeeded   = 32
	flightsNeeded = 200
	// fewMissed: one in so many may be missed.
	fewMissed = 100
	// flightsKept: then all counts are halved, and a generation ends.
	flightsKept = 8192
	// One flight in rareFlight may be longer than the most: a late poll is then
	// mistaken for wire in fewer than one WR in a hundred. Of wakeups one in ten
	// may: what is above is doubt.
	rareFlight = 200
	rareWakeup = 10
)

// step of a flight time: its four leading bits below the first, and its length.
func step(ns uint64) int {
	if ns < 16 {
		return int(ns)
	}
	shift := bits.Len64(ns) - 5
	return min(16*shift+int(ns>>shift), flightSteps-1)
}

// stepBegin is the least flight time of a step.
func stepBegin(s int) uint64 {
	if s < 32 {
		return uint64(s)
	}
	shift := s/16 - 1
	return uint64(16+s%16) << shift
}

// learn that a flight took between low and high.
func (f *flight) learn(low, high uint64) {
	if f == nil {
		return
	}
	if f.learned == 0 {
		f.floor = [2]uint64{low, low}
	}
	f.floor[0] = min(f.floor[0], low)
	f.high[step(high)]++
	f.total++
	f.learned = min(f.learned+1, flightsKept)
	if f.total < flightsKept {
		return
	}
	f.floor = [2]uint64{never, f.floor[0]}
	f.total, f.refresh, f.missed = 0, 0, f.missed/2
	for i := range f.high {
		f.high[i] /= 2
		f.total += uint32(f.high[i])
	}
}

// miss takes that a flight was over when the CQ was first looked at after its
// post. If that is frequent, only the longer ones teach anything.
func (f *flight) miss() {
	if f != nil {
		f.missed++
	}
}

// least is what no flight is expected to fall below, some way below the
// shortest one seen; 0: not known.
func (f *flight) least() uint64 {
	if f == nil || f.learned < floorNeeded || f.missed > f.total/fewMissed {
		return 0
	}
	shortest := min(f.floor[0], f.floor[1])
	return shortest - shortest/16
}

// usual is what only one flight in rare exceeds. Ask always with the same.
func (f *flight) usual(rare uint32) (most uint64, known bool) {
	if f == nil || f.learned < flightsNeeded {
		return 0, false
	}
	if f.total < f.refresh {
		return f.most, true
	}
	f.refresh = f.total + f.total/16
	high := flightSteps - 1
	for n := uint32(f.high[high]); n <= f.total/rare && high > 0; n += uint32(f.high[high]) {
		high--
	}
	f.most = stepBegin(high + 1)
	return f.most, true
}
