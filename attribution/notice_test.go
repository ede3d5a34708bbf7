package attribution

import (
	"strings"
	"testing"

	"github.com/rdmatrace/rdmatrace/event"
)

// told adds that the kernel told the channel of a completion queue.
func (t *tape) told(at, cq uint64) {
	t.add(event.Event{Time: at, TID: nicDaemon, Kind: event.KindCQEvent, Verb: event.Verb{CQ: cq}})
}

// wokenFor says for which completion queue the latest waking was.
func (t *tape) wokenFor(cq uint64) {
	for i := len(t.events) - 1; ; i-- {
		if e := &t.events[i]; e.Kind == event.KindWaking {
			e.Sched.CQ = cq
			return
		}
	}
}

// reaper is a tape on which one thread has reaped often enough for a queue to be its
// own, and goes on at the time that is given.
func reaper() (tp *tape, at uint64) {
	tp = created()
	return tp, tp.traffic(1*us, soleReaper, always(5*us))
}

// busy adds a work request whose completion the kernel tells of at 20 us, while the
// thread does other things: it looks at 90.
func (t *tape) busy(at uint64) {
	t.post(worker, at, at+us, wr{id: 7})
	t.arm(worker, at+2*us)
	t.told(at+20*us, tapeCQ)
	t.reap(worker, at+90*us, at+91*us, event.Verb{WRID: 7, LastEmpty: at + 3*us, LastEmptyTID: worker}, 0)
}

// TestNoticeBoundsDone: what the kernel has told the channel of was done by then,
// however late a busy thread looks.
func TestNoticeBoundsDone(t *testing.T) {
	const far = 2 * onTheWay
	tests := []struct {
		name string
		tape func(tp *tape, at uint64)
		high uint64 // from the post, us
	}{
		{"busy", func(tp *tape, at uint64) { tp.busy(at) }, 20},
		{"armed twice, long before", func(tp *tape, at uint64) { tp.arm(worker, at); tp.busy(at + far) }, 20},
		{"which of two armings it is for is not known", func(tp *tape, at uint64) { tp.arm(worker, at); tp.busy(at + us) }, 91},
		{"each arming had its event", func(tp *tape, at uint64) { tp.arm(worker, at); tp.told(at+1, tapeCQ); tp.busy(at + us) }, 20},
		{"another queue's", func(tp *tape, at uint64) {
			tp.busy(at)
			tp.events[len(tp.events)-2].Verb.CQ++
		}, 91},
		{"records were lost", func(tp *tape, at uint64) {
			tp.busy(at)
			tp.loss(at+10*us, at+11*us, event.KindArm, 1)
		}, 91},
		{"the CQ was found empty since", func(tp *tape, at uint64) {
			tp.busy(at)
			tp.events[len(tp.events)-1].Verb.LastEmpty = at + 30*us
		}, 91},
		{"another one was reaped since it was armed", func(tp *tape, at uint64) {
			tp.post(worker, at, at+100, wr{id: 8})
			tp.post(worker, at+200, at+us, wr{id: 7})
			tp.arm(worker, at+2*us)
			tp.told(at+20*us, tapeCQ)
			tp.reap(worker, at+30*us, at+31*us, event.Verb{WRID: 8}, 0)
			tp.reap(worker, at+90*us, at+91*us, event.Verb{WRID: 7}, 0)
		}, 90},
		{"another thread reaps too", func(tp *tape, at uint64) {
			tp.runs(at, 1, helper, 0)
			tp.post(worker, at, at+100, wr{id: 8})
			tp.reap(helper, at+3*us, at+4*us, event.Verb{WRID: 8}, 0)
			tp.busy(at + 20_000*us)
		}, 91},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			tp, at := reaper()
			test.tape(tp, at)
			_, rec := tp.play(t, Config{})
			m := rec.last(t)
			if got := m.doneHigh - m.postBegin; got/us != test.high {
				t.Errorf("done by %d ns after the post, %d us wanted: %s", got, test.high, describe(m.segments, m.postBegin, 1))
			}
		})
	}
}

// TestNoticeTellsWhoseWakeup: on a channel of two queues the event of the one is no
// evidence for the other's completion, and what woke for a queue is called so.
func TestNoticeTellsWhoseWakeup(t *testing.T) {
	const other = tapeCQ + 0x100
	tests := []struct {
		name   string
		cq     uint64
		others bool // the channel's other queue is reaped from first
		source DoneSource
		who    string
	}{
		{"its own", tapeCQ, false, DoneInterrupt, "irq 27 > CQ event"},
		{"its own, the other's completion came along", tapeCQ, true, DoneInterrupt, "irq 27 > CQ event"},
		{"the other's", other, false, DoneBracket, ""},
		{"not known", 0, false, DoneInterrupt, "irq 27"},
		{"not known, and the other had one", 0, true, DoneBracket, ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			tp := created()
			tp.add(event.Event{Time: 1, Kind: event.KindCQ, Object: &event.Object{Event: event.ObjectCreated, CQ: &event.CQ{Addr: other, ChannelFD: tapeFD}}})
			tp.eventMode(1*us, 20*us, event.InterruptDevice)
			tp.wokenFor(test.cq)
			if test.others {
				tp.add(event.Event{Time: 25_500, TID: worker, Kind: event.KindCompletion, Verb: event.Verb{CQ: other, QPNum: 1, Begin: 25_000, Count: 1}})
			}
			_, rec := tp.play(t, Config{Watermark: 1000 * us})
			m := rec.last(t)
			names := newNaming(&event.Context{})
			var who []string
			for i := range m.segments {
				if s := &m.segments[i]; s.cause == Handler {
					who = append(who, names.culprit(s.who))
				}
			}
			if m.doneSource != test.source {
				t.Errorf("done comes from %s, want %s", m.doneSource, test.source)
			}
			if got := strings.Join(who, ", "); got != test.who {
				t.Errorf("handled by %q, want %q: %s", got, test.who, describe(m.segments, m.postBegin, 1))
			}
		})
	}
}
