package attribution

import "math/bits"

// flightSource says from what a flight time was learnt.
type flightSource uint8

const (
	fromPolls      flightSource = iota // polls that found the CQ empty just before
	fromStamps                         // time stamps of CQEs
	fromInterrupts                     // the interrupts that led to wakeups
	numFlightSources
)

// flightKey is a kind of work requests that are in flight about equally long.
type flightKey struct {
	qp     *queuePair
	opcode uint8
	size   uint8 // bit length of the bytes
	depth  uint8 // bit length of the depth at the post: it waits behind those
}

// flights are the distributions of post_begin to done.
type flights map[flightKey]*flightKind

// flightKind is what was learnt of one kind of work requests.
type flightKind struct{ by [numFlightSources]*flight }

// flightsMost bounds their memory, at 1.3 KiB for each source of each.
const flightsMost = 4096

// of gives the kind that m belongs to; nil, which knows nothing, for a receive
// and where there are too many kinds.
func (f flights) of(m *measured) *flightKind {
	if m.receive {
		return nil
	}
	k := flightKey{m.qp, m.opcode, uint8(bits.Len64(m.bytes)), uint8(bits.Len32(uint32(m.depth)))}
	if m.qp.flightKey == k {
		return m.qp.flight
	}
	kind := f[k]
	if kind == nil && len(f) < flightsMost {
		kind = new(flightKind)
		f[k] = kind
	}
	m.qp.flightKey, m.qp.flight = k, kind
	return kind
}

// forget the kinds of a queue pair that is gone.
func (f flights) forget(qp *queuePair) {
	for k := range f {
		if k.qp == qp {
			delete(f, k)
		}
	}
	qp.flightKey, qp.flight = flightKey{}, nil
}

// known gives what a source taught, nil if nothing.
func (k *flightKind) known(source flightSource) *flight {
	if k == nil {
		return nil
	}
	return k.by[source]
}

// learn that a flight took between low and high.
func (k *flightKind) learn(source flightSource, low, high uint64) {
	if k == nil {
		return
	}
	if k.by[source] == nil {
		k.by[source] = new(flight)
	}
	k.by[source].learn(low, high)
}

// flight knows the least and the distribution of the most that flights can have
// taken, with the past fading.
type flight struct {
	floor   [2]uint64 // the least, of this generation and of the one before
	high    [flightSteps]uint16
	total   uint32
	learned uint32 // ever, up to flightsKept
	missed  uint32 // flights that were over before the CQ was looked at

	// Quantiles of high, valid until total reaches refresh.
	median, nineTenths, nearlyAll uint64
	refresh                       uint32
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
	// One flight in rareFlight may be longer than nearlyAll: a late poll is then
	// mistaken for wire in fewer than one WR in a hundred.
	rareFlight = 200
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

// least is what no flight is expected to fall below; 0: not known. It lies below
// the shortest one seen by a sixteenth, or by what the shortest of so few may
// still be above the shortest possible if that is more.
func (f *flight) least() uint64 {
	if f == nil || f.learned < floorNeeded || f.missed > f.total/fewMissed {
		return 0
	}
	f.update()
	shortest := min(f.floor[0], f.floor[1])
	spread := max(f.median, shortest) - shortest
	return shortest - min(shortest, max(shortest/16, 4*spread/uint64(f.learned)))
}

// most is what only one flight in rareFlight exceeds.
func (f *flight) most() (ns uint64, known bool) {
	if f == nil || f.learned < flightsNeeded {
		return 0, false
	}
	f.update()
	return f.nearlyAll, true
}

// usual is what one flight in ten exceeds.
func (f *flight) usual() (ns uint64, known bool) {
	if f == nil || f.learned < flightsNeeded {
		return 0, false
	}
	f.update()
	return f.nineTenths, true
}

// update the quantiles, now and then.
func (f *flight) update() {
	if f.total < f.refresh {
		return
	}
	f.refresh = f.total + f.total/16 + 1
	above := uint32(0)
	f.median, f.nineTenths, f.nearlyAll = 0, 0, 0
	for s := flightSteps - 1; s >= 0; s-- {
		above += uint32(f.high[s])
		if f.nearlyAll == 0 && above > f.total/rareFlight {
			f.nearlyAll = stepBegin(s + 1)
		}
		if f.nineTenths == 0 && above > f.total/10 {
			f.nineTenths = stepBegin(s + 1)
		}
		if above > f.total/2 {
			f.median = stepBegin(s + 1)
			return
		}
	}
}
