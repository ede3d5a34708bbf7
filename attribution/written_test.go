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
