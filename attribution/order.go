package attribution

import (
	"github.com/rdmatrace/rdmatrace/event"
)

const (
	// bucketShift: events are sorted in buckets of about a millisecond.
	bucketShift = 20
	// maxHeld bounds the memory of events held back, at about 150 bytes each:
	// beyond it the watermark is narrower than was asked for.
	maxHeld = 400_000
	// maxTime is 146 years after boot: a later time stamp is damage.
	maxTime = 1 << 62
)

// orderer puts events into the order of their times: it holds each back until
// an event arrives that is later by the watermark. What is later still than
// that is refused. Rings of several CPUs are drained one after the other, and
// even one ring is not in order (an NMI interrupts a reserve).
type orderer struct {
	out       recordHandler
	watermark uint64
	newest    uint64 // the largest time seen
	started   bool
	frontier  uint64   // number of the first bucket not yet handed out
	buckets   []bucket // a ring, indexed by bucket number
	held      int
	most      int   // events held back at most
	narrowed  int64 // buckets handed out before their time, for that

	verbs      arena[verbRecord]
	scheds     arena[schedRecord]
	interrupts arena[interruptRecord]
	samples    arena[sampleRecord]
	rares      arena[rareRecord]

	merged []key // scratch of sort
}

// bucket holds keys of the events of one stretch of time, as they came: each
// CPU's ring gives a run that is in order.
type bucket struct {
	keys []key
	runs []int32 // where runs in order begin, but for the first
	lots [numRooms]lot
}

// key points to a record.
type key struct {
	time uint64
	slot uint32
	room room
}

// room is the arena that a kind of event lives in.
type room uint8

const (
	noRoom room = iota
	roomVerb
	roomSched
	roomInterrupt
	roomSample
	roomRare
	numRooms
)

var roomOf = [event.Kinds]room{
	event.KindWR:            roomVerb,
	event.KindPostEnd:       roomVerb,
	event.KindCompletion:    roomVerb,
	event.KindArm:           roomVerb,
	event.KindCQE:           roomVerb,
	event.KindCQEvent:       roomVerb,
	event.KindSwitch:        roomSched,
	event.KindWaking:        roomSched,
	event.KindMigration:     roomSched,
	event.KindQuota:         roomSched,
	event.KindInterrupt:     roomInterrupt,
	event.KindSample:        roomSample,
	event.KindQP:            roomRare,
	event.KindCQ:            roomRare,
	event.KindDeviceContext: roomRare,
	event.KindTask:          roomRare,
	event.KindLoss:          roomRare,
	event.KindPause:         roomRare,
}

// arrival says what became of an event.
type arrival uint8

const (
	arrivedInTime arrival = iota
	arrivedLate           // later than the watermark: not taken
	arrivedBroken         // not an event: not taken
)

func newOrderer(watermark uint64, out recordHandler) *orderer {
	n := 4
	for uint64(n) < watermark>>bucketShift+3 {
		n *= 2
	}
	return &orderer{out: out, watermark: watermark, buckets: make([]bucket, n), most: maxHeld}
}

func (o *orderer) add(ev *event.Event) arrival {
	if int(ev.Kind) >= len(roomOf) || roomOf[ev.Kind] == noRoom {
		return arrivedBroken
	}
	t := ev.Time
	if ev.Kind == event.KindLoss {
		// A loss is known at its end but counts from its beginning.
		t = min(t, ev.Loss.Begin)
	}
	if ev.Time >= maxTime || isBroken(ev) {
		return arrivedBroken
	}
	if !o.started {
		o.started, o.frontier = true, (t-min(t, o.watermark))>>bucketShift
	}
	if t > o.newest {
		o.newest = t
		o.advance((t - min(t, o.watermark)) >> bucketShift)
	}
	number := t >> bucketShift
	if number < o.frontier {
		return arrivedLate
	}
	b := &o.buckets[number&uint64(len(o.buckets)-1)]
	room := roomOf[ev.Kind]
	k := key{t, o.store(&b.lots[room], ev, t), room}
	if n := len(b.keys); n > 0 && o.less(k, b.keys[n-1]) {
		b.runs = append(b.runs, int32(n))
	}
	b.keys = append(b.keys, k)
	o.held++
	if o.held > o.most && o.frontier < o.newest>>bucketShift {
		o.narrowed++
		o.advance(o.frontier + 1)
	}
	return arrivedInTime
}

// isBroken says that a part the kind needs is missing or contradicts itself.
func isBroken(ev *event.Event) bool {
	switch ev.Kind {
	case event.KindInterrupt:
		return ev.IRQ.Begin > ev.Time
	case event.KindCQE:
		return ev.Verb.End < ev.Time
	case event.KindQP:
		return ev.Object == nil || ev.Object.QP == nil
	case event.KindCQ:
		return ev.Object == nil || ev.Object.CQ == nil
	case event.KindDeviceContext:
		return ev.Object == nil || ev.Object.Context == nil
	case event.KindTask:
		return ev.Object == nil || ev.Object.Task == nil
	case event.KindPause:
		return ev.Flags != event.PauseBegin && ev.Flags != event.PauseEnd
	case event.KindQuota:
		return ev.Flags != event.QuotaBegin && ev.Flags != event.QuotaEnd
	}
	return false
}

func (o *orderer) store(l *lot, ev *event.Event, t uint64) uint32 {
	s := stamp{t, ev.PID, ev.TID, ev.Flags, ev.CPU, ev.Kind}
	switch roomOf[ev.Kind] {
	case roomVerb:
		slot, r := o.verbs.take(l)
		r.stamp, r.Verb = s, ev.Verb
		return slot
	case roomSched:
		slot, r := o.scheds.take(l)
		r.stamp, r.Sched = s, ev.Sched
		return slot
	case roomInterrupt:
		slot, r := o.interrupts.take(l)
		r.stamp, r.Interrupt = s, ev.IRQ
		return slot
	case roomSample:
		slot, r := o.samples.take(l)
		r.stamp, r.Sample = s, ev.Sample
		return slot
	default:
		slot, r := o.rares.take(l)
		*r = rareRecord{stamp: s, object: ev.Object}
		if ev.Kind == event.KindLoss {
			*r = rareRecord{stamp: s, lossEnd: ev.Time, lossCount: ev.Loss.Count, lossOf: ev.Loss.Of}
			r.time = t
		}
		return slot
	}
}

// handedOut is up to when all that came in time has been handed out: later than
// whatever comes late, of which the latest record that was may be long before.
func (o *orderer) handedOut() uint64 { return o.frontier << bucketShift }

// advance hands out all buckets below number.
func (o *orderer) advance(number uint64) {
	for i := 0; o.frontier < number && i < len(o.buckets); i++ {
		b := &o.buckets[o.frontier&uint64(len(o.buckets)-1)]
		o.frontier++
		o.handOut(b)
	}
	o.frontier = max(o.frontier, number)
}

// flush hands out everything.
func (o *orderer) flush() { o.advance(o.newest>>bucketShift + 1) }

// free lets go of the memory for what is held back, when nothing comes any more.
func (o *orderer) free() {
	*o = orderer{narrowed: o.narrowed}
}

func (o *orderer) handOut(b *bucket) {
	o.sort(b)
	for _, k := range b.keys {
		switch k.room {
		case roomVerb:
			o.out.verb(o.verbs.at(k.slot))
		case roomSched:
			o.out.sched(o.scheds.at(k.slot))
		case roomInterrupt:
			o.out.interrupt(o.interrupts.at(k.slot))
		case roomSample:
			o.out.sample(o.samples.at(k.slot))
		case roomRare:
			o.out.rare(o.rares.at(k.slot))
		}
	}
	o.verbs.giveBack(&b.lots[roomVerb])
	o.scheds.giveBack(&b.lots[roomSched])
	o.interrupts.giveBack(&b.lots[roomInterrupt])
	o.samples.giveBack(&b.lots[roomSample])
	o.rares.giveBack(&b.lots[roomRare])
	o.held -= len(b.keys)
	b.keys = b.keys[:0]
}

// sort a bucket by merging neighbouring runs until there is one.
func (o *orderer) sort(b *bucket) {
	for len(b.runs) > 0 {
		o.merged = o.merged[:0]
		starts := b.runs
		b.runs = b.runs[:0]
		begin := int32(0)
		for i := 0; i < len(starts); i += 2 {
			middle, end := starts[i], int32(len(b.keys))
			if i+1 < len(starts) {
				end = starts[i+1]
			}
			o.merge(b.keys[begin:middle], b.keys[middle:end])
			if end < int32(len(b.keys)) {
				b.runs = append(b.runs, end)
			}
			begin = end
		}
		o.merged = append(o.merged, b.keys[begin:]...)
		b.keys, o.merged = o.merged, b.keys
	}
}

func (o *orderer) merge(x, y []key) {
	for len(x) > 0 && len(y) > 0 {
		if o.less(y[0], x[0]) {
			o.merged = append(o.merged, y[0])
			y = y[1:]
		} else {
			o.merged = append(o.merged, x[0])
			x = x[1:]
		}
	}
	o.merged = append(append(o.merged, x...), y...)
}

// less orders records by time, and those of one time by all they hold.
func (o *orderer) less(a, b key) bool {
	return a.time < b.time || a.time == b.time && o.compareContent(a, b) < 0
}

func (o *orderer) compareContent(a, b key) int {
	if a.room != b.room {
		return compareStamp(o.stamp(a), o.stamp(b))
	}
	switch a.room {
	case roomVerb:
		return compareVerb(o.verbs.at(a.slot), o.verbs.at(b.slot))
	case roomSched:
		return compareSched(o.scheds.at(a.slot), o.scheds.at(b.slot))
	case roomInterrupt:
		return compareInterrupt(o.interrupts.at(a.slot), o.interrupts.at(b.slot))
	case roomSample:
		return compareSample(o.samples.at(a.slot), o.samples.at(b.slot))
	default:
		return compareRare(o.rares.at(a.slot), o.rares.at(b.slot))
	}
}

func (o *orderer) stamp(k key) *stamp {
	switch k.room {
	case roomVerb:
		return &o.verbs.at(k.slot).stamp
	case roomSched:
		return &o.scheds.at(k.slot).stamp
	case roomInterrupt:
		return &o.interrupts.at(k.slot).stamp
	case roomSample:
		return &o.samples.at(k.slot).stamp
	default:
		return &o.rares.at(k.slot).stamp
	}
}

// arena lends slots for records. It never moves one and never shrinks: its
// size is that of the most records ever held back at a time. What is in one bucket
// lies together in chunks, in the order of arrival: by the time it is read it has
// left the caches, and memory that is read in order is fetched ahead.
type arena[T any] struct {
	chunks []*[chunkSize]T
	below  []uint32 // by chunk: the one below it in its lot, or among the free, plus 1
	free   uint32   // the uppermost free chunk, plus 1
}

const (
	chunkShift = 5
	chunkSize  = 1 << chunkShift
)

// lot is what one bucket has of an arena: a stack of chunks.
type lot struct {
	top  uint32 // chunk, plus 1; 0: none
	left uint32 // free slots in it
}

func (a *arena[T]) at(slot uint32) *T {
	return &a.chunks[slot>>chunkShift][slot&(chunkSize-1)]
}

func (a *arena[T]) take(l *lot) (uint32, *T) {
	if l.left == 0 {
		a.pile(l)
	}
	slot := l.top<<chunkShift - l.left
	l.left--
	return slot, a.at(slot)
}

// pile a free chunk on a lot.
func (a *arena[T]) pile(l *lot) {
	if a.free == 0 {
		a.chunks = append(a.chunks, new([chunkSize]T))
		a.below = append(a.below, 0)
		a.free = uint32(len(a.chunks))
	}
	chunk := a.free
	a.free = a.below[chunk-1]
	a.below[chunk-1] = l.top
	*l = lot{chunk, chunkSize}
}

// giveBack all of a lot.
func (a *arena[T]) giveBack(l *lot) {
	for l.top != 0 {
		chunk := l.top
		l.top = a.below[chunk-1]
		a.below[chunk-1] = a.free
		a.free = chunk
	}
	l.left = 0
}
