package attribution

import (
	"cmp"
	"slices"
	"strings"
	"testing"

	"github.com/rdmatrace/rdmatrace/event"
)

const us = 1000

// traffic adds WRs one after the other, each posted in 1 us and done after
// flight, with a thread that polls every 100 ns. It gives the time at its end.
func (t *tape) traffic(from uint64, n int, flight func(i int) uint64) uint64 {
	for i := range n {
		t.post(worker, from, from+us, wr{id: 7, bytes: 4096})
		done := from + flight(i)
		t.reap(worker, done+50, done+100, event.Verb{WRID: 7, LastEmpty: done - 50, LastEmptyTID: worker}, 0)
		from = done + 200
	}
	return from
}

func always(ns uint64) func(int) uint64 { return func(int) uint64 { return ns } }

// created starts a tape with a CQ and a queue pair made in the window, and the
// worker running.
func created() *tape {
	t := newTape()
	t.cq(1, tapeFD)
	t.qp(1, event.ObjectCreated, nil)
	t.add(event.Event{Time: 1, TID: worker, Kind: event.KindArm, Verb: event.Verb{CQ: 0x9999}})
	return t
}

func (r *recorder) last(t *testing.T) *measured {
	t.Helper()
	if len(r.wrs) == 0 {
		t.Fatal("nothing was measured")
	}
	m := &r.wrs[len(r.wrs)-1]
	checkCut(t, m)
	return m
}

func (m *measured) ns(cause Cause) (sum uint64) {
	for i := range m.segments {
		if m.segments[i].cause == cause {
			sum += m.segments[i].length()
		}
	}
	return sum
}

func near(got, want, tolerance uint64) bool {
	return got+tolerance >= want && got <= want+tolerance
}

func TestBusyPollerIsCertain(t *testing.T) {
	tp := created()
	tp.traffic(1*us, 10, always(5*us))
	_, rec := tp.play(t, Config{})
	m := rec.last(t)
	if m.uncertain || m.doneSource != DoneBracket || m.demand != Waited || !near(m.ns(WireUnsplit), 4*us, 100) {
		t.Errorf("%v %v %v: %s", m.uncertain, m.doneSource, m.demand, describe(m.segments, m.postBegin, 1))
	}
}

// hogged adds a WR whose thread is preempted by a hog for 4 ms just after an
// empty poll at 3 us.
func (t *tape) hogged(at uint64) {
	t.post(worker, at, at+us, wr{id: 7, bytes: 4096})
	t.preempted(at+3100, 0, worker, hog)
	t.runs(at+4003*us, 0, worker, hog)
	t.reap(worker, at+4004*us, at+4004*us+100, event.Verb{WRID: 7, LastEmpty: at + 3000, LastEmptyTID: worker}, 0)
}

// TestTypicalWireDecidesABracket: what is typical decides what the time is
// charged to, and is no proof: the doubt is said.
func TestTypicalWireDecidesABracket(t *testing.T) {
	tp := created()
	tp.hogged(tp.traffic(1*us, 300, func(i int) uint64 { return 5*us + uint64(i%7)*20 }))
	_, rec := tp.play(t, Config{})
	m := rec.last(t)
	if m.ns(CauseUndecided) > 0 || !near(m.ns(Preempted), 3998*us, 2*us) {
		t.Errorf("uncertain %v: %s", m.uncertain, describe(m.segments, m.postBegin, 1))
	}
	if who := (&naming{}).culprit(m.segments[len(m.segments)-3].who); who != "hog (pid 900)" {
		t.Errorf("blamed %q: %s", who, describe(m.segments, m.postBegin, 1))
	}
	if !m.uncertain || m.doneHigh != m.reap {
		t.Errorf("uncertain %v, done in [%d, %d] of %d", m.uncertain, m.doneLow-m.postBegin, m.doneHigh-m.postBegin, m.reap-m.postBegin)
	}
}

// TestTypicalIsNotInherited: what is reaped next may have become visible before
// the time that was typical for the one before it.
func TestTypicalIsNotInherited(t *testing.T) {
	tp := created()
	tp.qp(1, event.ObjectCreated, func(q *event.QP) { q.Addr, q.Num = tapeQP+0x100, tapeNum+1 })
	at := tp.traffic(1*us, 300, func(i int) uint64 { return 50*us + uint64(i%7)*20 })
	tp.events = append(tp.events, event.Event{Time: at, PID: tapePID, TID: worker, Kind: event.KindWR, Verb: event.Verb{
		QP: tapeQP + 0x100, QPNum: tapeNum + 1, Begin: at, Call: 1000, SendFlags: sendSignaled,
	}}, event.Event{Time: at + us, PID: tapePID, TID: worker, Kind: event.KindPostEnd, Verb: event.Verb{
		QP: tapeQP + 0x100, Begin: at, Call: 1000, Count: 1, BadIndex: -1,
	}})
	tp.calls[worker] = 1000
	tp.post(worker, at+2*us, at+3*us, wr{id: 7, bytes: 4096})
	tp.reap(worker, at+800*us, at+801*us, event.Verb{WRID: 7}, 0)
	tp.reap(worker, at+801*us+100, at+802*us, event.Verb{QPNum: tapeNum + 1}, 0)
	_, rec := tp.play(t, Config{})
	m, before := rec.last(t), &rec.wrs[len(rec.wrs)-2]
	if m.doneLow != before.postBegin || m.doneHigh != m.reap {
		t.Errorf("done in [%d, %d] of %d, after one in [%d, %d]", m.doneLow-m.postBegin, m.doneHigh-m.postBegin, m.reap-m.postBegin,
			before.doneLow-m.postBegin, before.doneHigh-m.postBegin)
	}
}

// TestDeferredInheritsNothingLater: a WR that is measured when its post call
// returns was reaped before others that were measured earlier.
func TestDeferredInheritsNothingLater(t *testing.T) {
	tp := created()
	tp.qp(1, event.ObjectCreated, func(q *event.QP) { q.Addr, q.Num = tapeQP+0x100, tapeNum+1 })
	tp.post(worker, 10*us, 100*us, wr{id: 7, wqe: 1})
	other := event.Verb{QP: tapeQP + 0x100, QPNum: tapeNum + 1, Begin: 28 * us, Call: 1, Count: 1, BadIndex: -1, SendFlags: sendSignaled, WQE: 1}
	tp.add(event.Event{Time: 28 * us, TID: helper, Kind: event.KindWR, Flags: event.WRWQEValid, Verb: other})
	tp.add(event.Event{Time: 29 * us, TID: helper, Kind: event.KindPostEnd, Verb: other})
	tp.reap(third, 29*us, 30*us, event.Verb{WRID: 7, WQE: 1, LastEmpty: 25 * us, LastEmptyTID: third}, event.CompletionWQEValid)
	tp.reap(third, 39*us, 40*us, event.Verb{QPNum: tapeNum + 1, WQE: 1}, event.CompletionWQEValid)
	_, rec := tp.play(t, Config{})
	i := slices.IndexFunc(rec.wrs, func(m measured) bool { return m.reap == 30*us })
	if i < 0 || rec.wrs[i].doneLow != 25*us || rec.wrs[i].doneHigh != 30*us {
		t.Errorf("reaped at 30 us, after an empty poll at 25 us: %+v", rec.wrs)
	}
}

func TestBracketIsUndecided(t *testing.T) {
	tests := []struct {
		name     string
		teach    int
		flight   func(int) uint64
		flags    uint32
		wire     uint64 // at least that much
		undecide uint64
	}{
		{"nothing was taught", 0, nil, 0, 2 * us, 4001 * us},
		{"too little was taught", 50, always(5 * us), 0, 2 * us, 4001 * us},
		{
			// Three in a hundred are slow: this may be one of them. Up to 5 us, which
			// all take, it is wire; from 3.0 ms on, which none takes, it is not.
			"slow ones are known", 600,
			func(i int) uint64 {
				if i%33 == 0 {
					return 2900 * us
				}
				return 5 * us
			},
			0, 3 * us, 3010 * us,
		},
		{"empty polls are not seen", 0, nil, event.CompletionNoEmpty, 0, 4003 * us},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			tp := created()
			at := uint64(1 * us)
			if test.teach > 0 {
				at = tp.traffic(at, test.teach, test.flight)
			}
			tp.hogged(at)
			tp.events[len(tp.events)-1].Flags |= test.flags
			_, rec := tp.play(t, Config{})
			m := rec.last(t)
			if !m.uncertain || m.ns(WireUnsplit) < test.wire || !near(m.ns(CauseUndecided), test.undecide, 110*us) {
				t.Errorf("uncertain %v: %s", m.uncertain, describe(m.segments, m.postBegin, 1))
			}
		})
	}
}

// event mode: the worker sleeps on the channel and is woken wakeup after the
// post, in an interrupt that began 1 us before.
func (t *tape) eventMode(at, wakeup uint64, irq event.InterruptKind) uint64 {
	t.post(worker, at, at+us, wr{id: 7, bytes: 4096})
	t.arm(worker, at+1100)
	t.sleeps(at+1500, 0, worker, amd64Read, tapeFD)
	begin := uint64(0)
	if irq != event.InterruptNone {
		begin = at + wakeup - us
	}
	t.wakes(at+wakeup, nicDaemon, worker, irq, 27, begin)
	t.runs(at+wakeup+3*us, 0, worker, 0)
	reap := at + wakeup + 5*us
	t.reap(worker, reap-200, reap, event.Verb{WRID: 7, LastEmpty: at + 1200, LastEmptyTID: worker}, 0)
	return reap + us
}

func TestInterruptTellsDone(t *testing.T) {
	tp := created()
	tp.eventMode(1*us, 20*us, event.InterruptDevice)
	_, rec := tp.play(t, Config{})
	m := rec.last(t)
	want := "submit 0-1000, unsplit 1000-19000, handler 19000-20000 irq 27, runqueue 20000-23000, late-poll 23000-24800, reap 24800-25000"
	if got := describe(m.segments, m.postBegin, 1); got != want || m.doneSource != DoneInterrupt || m.demand != Waited {
		t.Errorf("%v %v: got  %s\nwant %s", m.doneSource, m.demand, got, want)
	}
	if low, high := m.doneLow-m.postBegin, m.doneHigh-m.postBegin; low != 1200 || high != 25000 || !m.uncertain {
		t.Errorf("done in [%d, %d], uncertain %v: nothing proves that", low, high, m.uncertain)
	}
}

// TestWakeForSomethingElse: a wakeup is not the completion's if it was not there
// yet when the handler began, or if another CQ of the channel had one first.
func TestWakeForSomethingElse(t *testing.T) {
	const other = tapeCQ + 0x100
	for name, change := range map[string]func(tp *tape, reap *event.Event){
		"an empty poll since": func(tp *tape, reap *event.Event) { reap.Verb.LastEmpty = 20_500 },
		"another thread's empty poll since the handler began": func(tp *tape, reap *event.Event) {
			tp.runs(1, 1, helper, 0)
			reap.Time, reap.Verb.Begin = 50*us, 49*us
			reap.Verb.LastEmpty, reap.Verb.LastEmptyTID = 20_200, helper
		},
		"the channel's other CQ had one": func(tp *tape, reap *event.Event) {
			tp.add(event.Event{Time: 1, Kind: event.KindCQ, Object: &event.Object{Event: event.ObjectCreated, CQ: &event.CQ{Addr: other, ChannelFD: tapeFD}}})
			tp.add(event.Event{Time: 25_500, TID: worker, Kind: event.KindCompletion, Verb: event.Verb{CQ: other, QPNum: 1, Begin: 25_000, Count: 1}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			tp := created()
			tp.eventMode(1*us, 20*us, event.InterruptDevice)
			reap := &tp.events[len(tp.events)-1]
			changed := *reap
			tp.events = tp.events[:len(tp.events)-1]
			change(tp, &changed)
			tp.events = append(tp.events, changed)
			slices.SortStableFunc(tp.events, func(a, b event.Event) int { return cmp.Compare(a.Time, b.Time) })
			_, rec := tp.play(t, Config{})
			if m := rec.last(t); m.doneSource != DoneBracket || m.doneHigh != m.reap {
				t.Errorf("%s: done in [%d, %d]: %s", m.doneSource, m.doneLow, m.doneHigh, describe(m.segments, 0, 1))
			}
		})
	}
}

func TestTaskWakesInsteadOfInterrupt(t *testing.T) {
	tp := created()
	tp.eventMode(1*us, 20*us, event.InterruptNone)
	_, rec := tp.play(t, Config{})
	m := rec.last(t)
	want := "submit 0-1000, unsplit 1000-20000, runqueue 20000-23000, late-poll 23000-24800, reap 24800-25000"
	if got := describe(m.segments, m.postBegin, 1); got != want || m.doneSource != DoneInterrupt {
		t.Errorf("%v: got  %s\nwant %s", m.doneSource, got, want)
	}
}

// TestLateInterruptIsDoubtful: an event that comes much later than others do
// may be wire, or an event that was held back.
func TestLateInterruptIsDoubtful(t *testing.T) {
	tp := created()
	at := uint64(1 * us)
	for i := range 300 {
		at = tp.eventMode(at, 20*us+uint64(i%5)*100, event.InterruptDevice)
	}
	tp.eventMode(at, 5020*us, event.InterruptDevice)
	_, rec := tp.play(t, Config{})
	m := rec.last(t)
	if !m.uncertain || !near(m.ns(CauseUndecided), 5000*us, 10*us) || !near(m.ns(WireUnsplit), 19*us, 5*us) {
		t.Errorf("uncertain %v: %s", m.uncertain, describe(m.segments, m.postBegin, 1))
	}
	if usual := rec.wrs[299]; usual.ns(CauseUndecided) > 0 {
		t.Errorf("a usual one is undecided: %s", describe(usual.segments, usual.postBegin, 1))
	}
}

// TestTimeStampTellsDone: with the CQE's time stamp a late poll is a late poll.
func TestTimeStampTellsDone(t *testing.T) {
	clock := trueClock{begin: 1 << 45, rate: 0.15625, start: 0}
	tp := created()
	at := uint64(1_000_000)
	var dones []uint64
	for i := range 400 {
		// Most are looked for now and then only, so that brackets say little.
		tp.post(worker, at, at+us, wr{id: 7})
		done, reap := at+5*us+uint64(i*37%400), at+60*us
		if i%10 == 0 {
			reap = done + 300
		}
		dones = append(dones, done)
		tp.reap(worker, reap-100, reap, event.Verb{
			WRID: 7, LastEmpty: at + 2*us, LastEmptyTID: worker, HWTime: clock.stamp(done),
		}, event.CompletionHWTime)
		at = reap + us
	}
	_, rec := tp.play(t, Config{})
	stamped := 0
	for i := range rec.wrs {
		m := &rec.wrs[i]
		checkCut(t, m)
		if dones[i] < m.doneLow || dones[i] > m.doneHigh {
			t.Fatalf("WR %d: done at %d, said to be in [%d, %d]", i, dones[i], m.doneLow, m.doneHigh)
		}
		if m.doneSource != DoneCQE {
			continue
		}
		stamped++
		if i > 100 && i%10 != 0 && (m.uncertain || !near(m.ns(LatePoll), m.reap-100-dones[i], 2500)) {
			t.Fatalf("WR %d, done at %d: uncertain %v: %s", i, dones[i]-m.postBegin, m.uncertain, describe(m.segments, m.postBegin, 1))
		}
	}
	if stamped < 330 { // for one in ten the polls say more
		t.Errorf("%d of 400 used the time stamp", stamped)
	}
}

// TestWideTimeStampLeavesItToTheInterrupt: where nobody looks before the event,
// the clock's band is as wide as the flight. Inside it the handler tells more.
func TestWideTimeStampLeavesItToTheInterrupt(t *testing.T) {
	clock := trueClock{begin: 1 << 45, rate: 0.15625}
	tp := created()
	at := uint64(1 * us)
	for range 200 {
		end := tp.eventMode(at, 20*us, event.InterruptDevice)
		reap := &tp.events[len(tp.events)-1]
		reap.Flags, reap.Verb.HWTime = event.CompletionHWTime, clock.stamp(at+18*us)
		at = end
	}
	_, rec := tp.play(t, Config{})
	m := rec.last(t)
	if m.doneSource != DoneInterrupt || m.done != m.postBegin+19*us || m.ns(CauseUndecided) > 0 || !m.uncertain {
		t.Errorf("%s, uncertain %v: %s", m.doneSource, m.uncertain, describe(m.segments, m.postBegin, 1))
	}
	if truth := m.postBegin + 18*us; truth < m.doneLow || truth > m.doneHigh {
		t.Errorf("done in [%d, %d], truth 18000", m.doneLow-m.postBegin, m.doneHigh-m.postBegin)
	}
}

func TestErrorsHaveNoTimeStamp(t *testing.T) {
	tp := created()
	tp.post(worker, 1*us, 2*us, wr{id: 7})
	tp.reap(worker, 8*us, 9*us, event.Verb{WRID: 7, Status: 12, HWTime: 12345}, event.CompletionHWTime)
	e, rec := tp.play(t, Config{})
	if len(rec.wrs) != 1 || rec.wrs[0].status != 12 || e.ledger.books[0].Flushed != 1 || len(e.clocks) != 0 {
		t.Errorf("%d WRs, books %+v, %d clocks", len(rec.wrs), e.ledger.books[0], len(e.clocks))
	}
}

func TestDemand(t *testing.T) {
	tests := []struct {
		name string
		tape func(t *tape)
		want string
	}{
		{"looked for since the post", func(t *tape) {
			t.post(worker, 1*us, 2*us, wr{id: 1})
			t.reap(worker, 90*us, 91*us, event.Verb{WRID: 1, LastEmpty: 5 * us, LastEmptyTID: worker}, 0)
		}, "waited"},
		{"nobody looked", func(t *tape) {
			t.post(worker, 1*us, 2*us, wr{id: 1})
			t.reap(worker, 90*us, 91*us, event.Verb{WRID: 1}, 0)
		}, "unproven"},
		{"the queue was full", func(t *tape) {
			t.qp(1, event.ObjectFound, func(q *event.QP) { q.MaxSendWR = 2 })
			t.post(worker, 1*us, 2*us, wr{id: 1})
			t.post(worker, 3*us, 4*us, wr{id: 2})
			t.reap(worker, 90*us, 91*us, event.Verb{WRID: 1}, 0)
			t.reap(worker, 190*us, 191*us, event.Verb{WRID: 2}, 0)
		}, "dependent unproven"},
		{"a post was refused for want of room", func(t *tape) {
			t.post(worker, 1*us, 2*us, wr{id: 1})
			t.post(worker, 3*us, 4*us, wr{id: 2})
			end := t.post(worker, 5*us, 6*us, wr{id: 3})
			end.Verb.Result, end.Verb.BadIndex = enomem, 0
			t.reap(worker, 90*us, 91*us, event.Verb{WRID: 1}, 0)
			t.reap(worker, 190*us, 191*us, event.Verb{WRID: 2}, 0)
		}, "dependent unproven"},
		{"run dry, and the reap led to the next post", func(t *tape) {
			t.post(worker, 1*us, 2*us, wr{id: 1})
			t.reap(worker, 90*us, 91*us, event.Verb{WRID: 1}, 0)
			t.post(worker, 93*us, 94*us, wr{id: 2})
		}, "dependent"},
		{"run dry, but the next post came after a sleep", func(t *tape) {
			t.post(worker, 1*us, 2*us, wr{id: 1})
			t.reap(worker, 90*us, 91*us, event.Verb{WRID: 1}, 0)
			t.sleeps(92*us, 0, worker, amd64Sleep, 0)
			t.runs(93*us, 0, worker, 0)
			t.post(worker, 95*us, 96*us, wr{id: 2})
		}, "unproven"},
		{"moderated sends reaped lazily", func(t *tape) {
			t.post(worker, 1*us, 2*us, wr{id: 1, unsignalled: true})
			t.post(worker, 3*us, 4*us, wr{id: 2, unsignalled: true})
			t.post(worker, 5*us, 6*us, wr{id: 3})
			t.post(worker, 7*us, 8*us, wr{id: 4, unsignalled: true})
			t.reap(worker, 900*us, 901*us, event.Verb{WRID: 3}, 0)
		}, "unproven"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			tp := created()
			test.tape(tp)
			_, rec := tp.play(t, Config{})
			var got []string
			for i := range rec.wrs {
				checkCut(t, &rec.wrs[i])
				got = append(got, rec.wrs[i].demand.String())
			}
			if strings.Join(got, " ") != test.want {
				t.Errorf("got %v, want %s", got, test.want)
			}
		})
	}
}
