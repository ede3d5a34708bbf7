package attribution

import (
	"testing"

	"github.com/rdmatrace/rdmatrace/event"
)

// writes adds the entry of a completion, behind so many that are not reaped.
func (t *tape) writes(begin, end, id uint64, ahead uint16) {
	t.add(event.Event{Time: begin, TID: nicDaemon, Kind: event.KindCQE, Verb: event.Verb{
		CQ: tapeCQ, QPNum: tapeNum, WRID: id, End: end, Count: ahead,
	}})
}

// entered is a tape with two sends of one wr_id: written at 20 and 22 us, the
// second one reaped much later.
func entered(tp *tape) {
	tp.post(worker, 10*us, 11*us, wr{id: 7})
	tp.post(worker, 12*us, 13*us, wr{id: 7})
	tp.writes(20*us, 21*us, 7, 0)
	tp.writes(22*us, 23*us, 7, 1)
	tp.reap(worker, 50*us, 51*us, event.Verb{WRID: 7}, 0)
	tp.reap(worker, 90*us, 91*us, event.Verb{WRID: 7}, 0)
}

// opened has what created has, but its CQ was there before.
func opened() *tape {
	t := created()
	t.events[0].Object = &event.Object{Event: event.ObjectFound, CQ: &event.CQ{Addr: tapeCQ, ChannelFD: tapeFD}}
	return t
}

const place = 1 << 14 // of a ring of four

// placed makes of the two completions of entered what the path shows that
// consumes them, which knows the places of their entries: first is that of the
// first of them, the last and the first of the ring are right. Before, so many
// older entries were written, whose completions were not seen. spans are at how
// many places the two entries may be.
func placed(tp *tape, older int, first uint16, spans ...uint16) *tape {
	for i := range uint64(older) {
		tp.writes((1+i)*us, (2+i)*us, 7, 0)
	}
	entered(tp)
	reaped, wrote := uint16(0), 0
	for i := range tp.events {
		switch e := &tp.events[i]; e.Kind {
		case event.KindCompletion:
			e.Flags |= event.CompletionEntryValid | event.CompletionNoEmpty
			e.Verb.Begin, e.Verb.Entry = 0, first+place*reaped
			reaped++
		case event.KindCQE:
			e.Verb.Count = 2 // never none: the places alone tell
			e.Verb.Entry, e.Verb.Entries = place*uint16(3+wrote), place
			if wrote >= older {
				e.Verb.Entries = place * spans[wrote-older]
			}
			wrote++
		}
	}
	return tp
}

type placedTape struct {
	name  string
	tape  func() *tape
	wants [2]uint64
}

var placedTapes = []placedTape{
	{"by place, in a queue found", func() *tape { return placed(opened(), 0, 3*place, 1, 1) }, [2]uint64{20 * us, 22 * us}},
	{"by place, two written together", func() *tape { return placed(opened(), 0, 3*place, 2, 1) }, [2]uint64{20 * us, 22 * us}},
	{"by place, two at the same", func() *tape {
		tp := placed(opened(), 0, 3*place, 2, 2)
		for i := range tp.events {
			if e := &tp.events[i]; e.Kind == event.KindCQE {
				e.Verb.Entry = 3 * place // both CPUs saw the same before
			}
		}
		return tp
	}, [2]uint64{20 * us, 22 * us}},
	{"by place, an entry's completion was not seen", func() *tape { return placed(opened(), 1, 0, 1, 1) }, [2]uint64{20 * us, 22 * us}},
	{"by place, those of a round were not seen", func() *tape { return placed(opened(), 4, 3*place, 1, 1) }, [2]uint64{20 * us, 22 * us}},
	{"by place, the second was never written", func() *tape { return placed(opened(), 0, 0, 1, 1) }, [2]uint64{22 * us, 0}},
	{"by place, after a loss", func() *tape {
		tp := placed(opened(), 0, 3*place, 1, 1)
		tp.loss(1, 21*us, event.KindCQE, 1)
		return tp
	}, [2]uint64{0, 22 * us}},
}

// TestWritten: done is when the kernel wrote the entry, where it is certain
// which one a completion is.
func TestWritten(t *testing.T) {
	const no = 0
	tests := []struct {
		name  string
		tape  func() *tape
		wants [2]uint64 // done of the two; no: the kernel does not tell
	}{
		{"a new queue", func() *tape { tp := created(); entered(tp); return tp }, [2]uint64{20 * us, 22 * us}},
		{"found, and empty at the first entry", func() *tape { tp := opened(); entered(tp); return tp }, [2]uint64{20 * us, 22 * us}},
		{"found, with an older entry", func() *tape {
			tp := opened()
			entered(tp)
			for i := range tp.events {
				if tp.events[i].Kind == event.KindCQE {
					tp.events[i].Verb.Count++
				}
			}
			return tp
		}, [2]uint64{no, no}},
		{"found, and the poll had begun before", func() *tape {
			tp := opened()
			entered(tp)
			tp.events[len(tp.events)-2].Verb.Begin = 19 * us
			return tp
		}, [2]uint64{no, no}},
		{"found empty by a poll", func() *tape {
			tp := opened()
			entered(tp)
			for i := range tp.events {
				if v := &tp.events[i].Verb; tp.events[i].Kind == event.KindCQE {
					v.Count++
				} else if tp.events[i].Kind == event.KindCompletion {
					v.LastEmpty, v.LastEmptyTID = 19*us, worker
				}
			}
			return tp
		}, [2]uint64{20 * us, 22 * us}},
		{"another work request's entry", func() *tape {
			tp := created()
			entered(tp)
			tp.events[len(tp.events)-3].Verb.WRID = 8
			return tp
		}, [2]uint64{20 * us, no}},
		{"an entry is missing", func() *tape {
			tp := created()
			entered(tp)
			tp.loss(1, 30*us, event.KindCQE, 1)
			return tp
		}, [2]uint64{no, no}},
		{"an entry was missing", func() *tape {
			tp := created()
			entered(tp)
			tp.loss(1, 15*us, event.KindCQE, 1)
			return tp
		}, [2]uint64{20 * us, 22 * us}},
	}
	for _, p := range placedTapes {
		tests = append(tests, struct {
			name  string
			tape  func() *tape
			wants [2]uint64
		}(p))
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, rec := test.tape().play(t, Config{})
			if len(rec.wrs) != 2 {
				t.Fatalf("%d were measured", len(rec.wrs))
			}
			for i, want := range test.wants {
				m := &rec.wrs[i]
				checkCut(t, m)
				if (m.doneSource == DoneKernel) != (want != no) {
					t.Errorf("%d: done from %s", i, m.doneSource)
				}
				if want != no && (m.done != want || m.doneLow != want || m.doneHigh != want+us || m.uncertain) {
					t.Errorf("%d: done at %d in [%d, %d], doubt %v, not %d", i, m.done, m.doneLow, m.doneHigh, m.uncertain, want)
				}
			}
		})
	}
}

// A completion is looked for where its place is: not among all entries that were
// written, and among those that two CPUs wrote at once.
func TestTakeAtPlace(t *testing.T) {
	const place = 4
	var w writings
	for i := range int64(10_000) {
		if w.entries.full() {
			w.entries.grow()
		}
		w.entries.push(writing{begin: uint64(i), end: uint64(i) + 1, wrID: uint64(i), at: i * place, entries: place})
	}
	for _, c := range []struct {
		entry int64
		wrID  uint64
		found bool
	}{{7000, 7000, true}, {7000, 7000, false}, {8000, 1, false}, {7001, 7001, true}, {9999, 9999, true}, {9000, 9000, false}} {
		v := verbRecord{stamp: stamp{time: 1 << 20, flags: event.CompletionEntryValid}, Verb: event.Verb{WRID: c.wrID, Entry: uint16(c.entry * place)}}
		if it, ok := w.takeAt(&v); ok != c.found || ok && it.wrID != c.wrID {
			t.Errorf("entry %d: found %t, %d", c.entry, ok, it.wrID)
		}
	}
}
