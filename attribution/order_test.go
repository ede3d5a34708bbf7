package attribution

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/rdmatrace/rdmatrace/event"
	"pgregory.net/rapid"
)

// listener keeps the stamps of records in the order in which they come.
type listener struct {
	stamps []stamp
	tags   []uint64 // tags of the verbs among them
}

func (l *listener) verb(r *verbRecord) {
	l.stamps = append(l.stamps, r.stamp)
	l.tags = append(l.tags, r.WRID)
}
func (l *listener) sched(r *schedRecord)         { l.stamps = append(l.stamps, r.stamp) }
func (l *listener) interrupt(r *interruptRecord) { l.stamps = append(l.stamps, r.stamp) }
func (l *listener) sample(r *sampleRecord)       { l.stamps = append(l.stamps, r.stamp) }
func (l *listener) rare(r *rareRecord)           { l.stamps = append(l.stamps, r.stamp) }

func anyEvent(rng *rand.Rand, t uint64) event.Event {
	ev := event.Event{Time: t, PID: 1, TID: 1 + rng.Uint32N(3), CPU: uint16(rng.IntN(4))}
	switch rng.IntN(5) {
	case 0:
		ev.Kind = event.KindSwitch
	case 1:
		ev.Kind, ev.IRQ.Begin = event.KindInterrupt, t
	case 2:
		ev.Kind, ev.Object = event.KindTask, &event.Object{Task: &event.Task{Event: event.TaskFound}}
	case 3:
		ev.Kind, ev.Sample = event.KindSample, event.Sample{Stack: rng.Uint64N(3), Period: 1}
	default:
		ev.Kind, ev.Verb.WRID = event.KindCompletion, rng.Uint64()
	}
	return ev
}

// TestOrder: what is late by no more than the watermark comes out in order,
// what is later is refused, and nothing else is.
func TestOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 5))
		watermark := rapid.SampledFrom([]uint64{1_000, 5_000_000, 200_000_000}).Draw(t, "watermark")
		gap := rapid.SampledFrom([]uint64{2, 1_000, 3_000_000, 400_000_000}).Draw(t, "gap")
		type arriving struct {
			ev event.Event
			at uint64
		}
		var events []arriving
		at := rapid.Uint64Range(0, 1<<40).Draw(t, "begin")
		for range 2000 {
			at += rng.Uint64N(gap)
			events = append(events, arriving{anyEvent(rng, at), at + rng.Uint64N(watermark)})
		}
		slices.SortStableFunc(events, func(a, b arriving) int { return cmp.Compare(a.at, b.at) })
		out := new(listener)
		o := newOrderer(watermark, out)
		for i := range events {
			if got := o.add(&events[i].ev); got != arrivedInTime {
				t.Fatalf("event %d at %d: %d", i, events[i].ev.Time, got)
			}
		}
		late := anyEvent(rng, o.newest-min(o.newest, watermark+2<<bucketShift))
		if o.newest > watermark+2<<bucketShift {
			if got := o.add(&late); got != arrivedLate {
				t.Fatalf("late by %d: %d", o.newest-late.Time, got)
			}
		}
		o.flush()
		if len(out.stamps) != len(events) || o.held != 0 {
			t.Fatalf("%d events in, %d out, %d held", len(events), len(out.stamps), o.held)
		}
		if !slices.IsSortedFunc(out.stamps, func(a, b stamp) int { return cmp.Compare(a.time, b.time) }) {
			t.Fatal("not in order")
		}
	})
}

func TestOrderBoundsMemory(t *testing.T) {
	out := new(listener)
	o := newOrderer(1<<40, out)
	o.most = 100
	rng := rand.New(rand.NewPCG(1, 6))
	for i := range uint64(1000) {
		ev := anyEvent(rng, i<<bucketShift)
		o.add(&ev)
		if o.held > 101 {
			t.Fatalf("%d held", o.held)
		}
	}
	if o.narrowed == 0 {
		t.Error("not counted")
	}
}

func TestOrderRefusesDamage(t *testing.T) {
	o := newOrderer(1000, new(listener))
	for _, ev := range []event.Event{
		{Time: 1 << 63, Kind: event.KindWR},
		{Time: 1},
		{Time: 1, Kind: event.Kind(event.Kinds)},
		{Time: 1, Kind: event.KindQP},
		{Time: 1, Kind: event.KindTask, Object: &event.Object{QP: &event.QP{}}},
		{Time: 1, Kind: event.KindInterrupt, IRQ: event.Interrupt{Begin: 2}},
	} {
		if got := o.add(&ev); got != arrivedBroken {
			t.Errorf("%+v: %d", ev, got)
		}
	}
}

// TestLossCountsFromItsBeginning: it is known at its end, but what came in
// between cannot be believed.
func TestLossCountsFromItsBeginning(t *testing.T) {
	out := new(listener)
	o := newOrderer(1_000_000, out)
	for _, ev := range []event.Event{
		{Time: 10, Kind: event.KindArm},
		{Time: 30, Kind: event.KindArm},
		{Time: 40, Kind: event.KindLoss, Loss: event.Loss{Begin: 20}},
	} {
		o.add(&ev)
	}
	o.flush()
	if out.stamps[1].kind != event.KindLoss {
		t.Errorf("%+v", out.stamps)
	}
}

// TestTiesDoNotDependOnArrival: events of one instant come out in one order.
func TestTiesDoNotDependOnArrival(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 7))
	var events []event.Event
	for range 200 {
		events = append(events, anyEvent(rng, 1000+rng.Uint64N(3)))
	}
	var want []uint64
	for range 20 {
		out := new(listener)
		o := newOrderer(1000, out)
		for i := range events {
			o.add(&events[i])
		}
		o.flush()
		if want == nil {
			want = out.tags
		} else if !slices.Equal(want, out.tags) {
			t.Fatal("another order")
		}
		rng.Shuffle(len(events), func(i, j int) { events[i], events[j] = events[j], events[i] })
	}
}
