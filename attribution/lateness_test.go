package attribution

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/rdmatrace/rdmatrace/event"
	"pgregory.net/rapid"
)

// samples adds looks at what a thread runs, each for a period, in us.
func (t *tape) samples(tid uint32, stack, period uint64, times ...uint64) {
	for _, at := range times {
		t.add(event.Event{Time: at, TID: tid, Kind: event.KindSample, Sample: event.Sample{Stack: stack, Period: period * us}})
	}
}

// from gives the latest switch the stack with which its thread left the CPU.
func (t *tape) from(stack uint64) { t.events[len(t.events)-1].Sched.PrevStack = stack }

// waitingWR is a work request: when its completion was visible for certain, and reaped.
type waitingWR struct {
	done, reap uint64
	low        uint64 // not before that; 0: done
	reaper     uint32 // 0: worker
	unneeded   bool   // nobody was seen to need it
}

// cutAll cuts work requests whose times are in units, and are posted at 1.
func cutAll(e *Engine, unit uint64, wrs ...waitingWR) (cut []measured) {
	cq := e.objects.cq(tapePID, tapeCQ)
	for _, wr := range wrs {
		low := wr.done
		if wr.low != 0 {
			low = wr.low
		}
		tid := uint32(worker)
		if wr.reaper != 0 {
			tid = wr.reaper
		}
		m := &measured{postBegin: unit, postEnd: unit, reap: wr.reap * unit, postTID: worker, reapTID: tid,
			doneLow: low * unit, likelyLow: low * unit, done: low * unit, likelyHigh: low * unit, doneHigh: wr.done * unit}
		c := &verbRecord{stamp: stamp{time: m.reap, pid: tapePID, tid: tid}}
		c.Begin = m.reap
		e.cut(m, &pending{postBegin: unit, postEnd: unit, tid: worker}, c, cq)
		if m.demand = Waited; wr.unneeded {
			m.demand = Unproven
		}
		e.keptWaiting(m)
		cut = append(cut, *m)
	}
	return cut
}

func describeLate(l *Late, unit int64) string {
	list := []string{fmt.Sprintf("ran %d slept %d waited %d", l.RanNS/unit, l.SleptNS/unit, l.WaitedNS/unit)}
	if l.UnknownNS > 0 {
		list = append(list, fmt.Sprintf("unknown %d", l.UnknownNS/unit))
	}
	if l.NotLookedAtNS > 0 {
		list = append(list, fmt.Sprintf("not looked at %d", l.NotLookedAtNS/unit))
	}
	if l.UnprovenNS > 0 {
		list = append(list, fmt.Sprintf("unproven %d", l.UnprovenNS/unit))
	}
	for _, s := range l.Stacks {
		list = append(list, fmt.Sprintf("%s %d %d", s.Doing, s.Stack, s.NS/unit))
		if s.Samples > 0 {
			list[len(list)-1] += fmt.Sprintf(" of %d", s.Samples)
		}
	}
	if l.UnsampledNS > 0 {
		list = append(list, fmt.Sprintf("unsampled %d", l.UnsampledNS/unit))
	}
	return strings.Join(list, ", ")
}

// Times are in us.
var lates = []struct {
	name string
	tape func(t *tape)
	wrs  []waitingWR
	want string
}{
	{
		name: "computes between two polls",
		tape: func(t *tape) { t.samples(worker, 7, 20, 5, 30, 50, 70, 95) },
		wrs:  []waitingWR{{done: 20, reap: 90}},
		want: "ran 70 slept 0 waited 0, ran 7 60 of 3, unsampled 10",
	},
	{
		name: "a sample at done counts, one at the reap does not",
		tape: func(t *tape) { t.samples(worker, 7, 1, 20, 90) },
		wrs:  []waitingWR{{done: 20, reap: 90}},
		want: "ran 70 slept 0 waited 0, ran 7 1 of 1, unsampled 69",
	},
	{
		name: "several at once count once",
		tape: func(t *tape) { t.samples(worker, 7, 20, 30, 50); t.samples(worker, 8, 20, 70) },
		wrs:  []waitingWR{{done: 20, reap: 90}, {done: 40, reap: 91}, {done: 20, reap: 92}, {done: 10, reap: 92}},
		want: "ran 82 slept 0 waited 0, ran 7 40 of 2, ran 8 20 of 1, unsampled 22",
	},
	{
		name: "samples that would be more than the time",
		tape: func(t *tape) { t.samples(worker, 7, 100, 30, 50, 70); t.samples(worker, 8, 100, 71) },
		wrs:  []waitingWR{{done: 20, reap: 60}, {done: 60, reap: 100}},
		want: "ran 80 slept 0 waited 0, ran 7 60 of 3, ran 8 20 of 1",
	},
	{
		name: "sleeps for a reason of its own, and waits for a CPU then",
		tape: func(t *tape) {
			t.sleeps(10, 0, worker, amd64Sleep, 0)
			t.from(5)
			t.wakes(60, 0, worker, event.InterruptTimer, 0, 60)
			t.runs(70, 0, worker, hog)
		},
		wrs:  []waitingWR{{done: 20, reap: 90}, {done: 30, reap: 90}},
		want: "ran 20 slept 40 waited 10, slept 5 40, waited for a CPU 5 10, unsampled 20",
	},
	{
		name: "preempted",
		tape: func(t *tape) {
			t.preempted(30, 0, worker, hog)
			t.from(6)
			t.runs(80, 0, worker, hog)
			t.yields(85, 0, worker, hog)
			t.runs(88, 0, worker, hog)
		},
		wrs:  []waitingWR{{done: 20, reap: 90}},
		want: "ran 17 slept 0 waited 53, waited for a CPU 6 50, waited for a CPU 0 3, unsampled 17",
	},
	{
		name: "asleep on the CQ it is not late: the delivery is",
		tape: func(t *tape) {
			t.sleeps(10, 0, worker, amd64Read, tapeFD)
			t.from(5)
			t.wakes(60, 0, worker, event.InterruptDevice, 27, 50)
			t.runs(70, 0, worker, hog)
		},
		wrs:  []waitingWR{{done: 20, reap: 71}},
		want: "ran 1 slept 0 waited 10, waited for a CPU 5 10, unsampled 1",
	},
	{
		name: "samples are taken in an interrupt",
		tape: func(t *tape) {
			t.interrupt(30, 50, worker, event.InterruptTimer, 236)
			t.samples(worker, 7, 20, 40, 60)
		},
		wrs:  []waitingWR{{done: 20, reap: 90}},
		want: "ran 70 slept 0 waited 0, ran 7 40 of 2, unsampled 30",
	},
	{
		name: "of uncertain ones what is proven",
		tape: func(t *tape) { t.samples(worker, 7, 20, 30, 70) },
		wrs:  []waitingWR{{low: 20, done: 60, reap: 90}},
		want: "ran 30 slept 0 waited 0, ran 7 20 of 1, unsampled 10",
	},
	{
		name: "of two threads each its own",
		tape: func(t *tape) { t.samples(worker, 7, 20, 30, 70); t.samples(helper, 8, 20, 30, 70) },
		wrs:  []waitingWR{{done: 20, reap: 80}, {done: 60, reap: 80, reaper: helper}},
		want: "ran 80 slept 0 waited 0, ran 7 40 of 2, ran 8 20 of 1, unsampled 20",
	},
	{
		name: "one that waited while others came and went",
		tape: func(t *tape) { t.samples(worker, 7, 10, 15, 25, 35, 45, 55) },
		wrs:  []waitingWR{{done: 18, reap: 20}, {done: 38, reap: 40}, {done: 10, reap: 60}},
		want: "ran 50 slept 0 waited 0, ran 7 50 of 5",
	},
	{
		name: "nobody needs them",
		tape: func(t *tape) { t.samples(worker, 7, 10, 15, 25, 35, 45, 55) },
		wrs:  []waitingWR{{done: 10, reap: 60, unneeded: true}, {done: 20, reap: 70, unneeded: true}},
		want: "ran 0 slept 0 waited 0, unproven 60",
	},
	{
		name: "of several at once, one is needed",
		tape: func(t *tape) { t.samples(worker, 7, 10, 15, 25, 35, 45, 55) },
		wrs:  []waitingWR{{done: 10, reap: 60, unneeded: true}, {done: 40, reap: 60}, {done: 20, reap: 60, unneeded: true}},
		want: "ran 20 slept 0 waited 0, unproven 50, ran 7 20 of 2",
	},
	{
		name: "nothing waits",
		tape: func(t *tape) { t.samples(worker, 7, 10, 15, 25, 35, 45, 55) },
		wrs:  []waitingWR{{done: 20, reap: 20}},
		want: "ran 0 slept 0 waited 0",
	},
}

// lateTape begins with two threads that run.
func lateTape() *tape {
	tp := newTape()
	tp.cq(0, tapeFD)
	tp.qp(0, event.ObjectCreated, nil)
	for _, tid := range []uint32{worker, helper} {
		tp.add(event.Event{Time: 1, TID: tid, CPU: uint16(tid - worker), Kind: event.KindArm, Verb: event.Verb{CQ: 0x9999}})
	}
	return tp
}

func (t *tape) inMicroseconds() *tape {
	for i := range t.events {
		ev := &t.events[i]
		ev.Time *= us
		ev.IRQ.Begin *= us
		ev.Loss.Begin *= us
		ev.Sched.InterruptBegin *= us
		ev.Verb.Begin *= us
		ev.Verb.End *= us
		ev.Verb.LastEmpty *= us
	}
	return t
}

func TestLate(t *testing.T) {
	for _, test := range lates {
		t.Run(test.name, func(t *testing.T) {
			tp := lateTape()
			test.tape(tp)
			e, _ := tp.inMicroseconds().play(t, Config{})
			cutAll(e, us, test.wrs...)
			l := e.lateness.report()
			checkLate(t, &l)
			if got := describeLate(&l, us); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}

// checkLate fails if the parts do not add up.
func checkLate(t reporter, l *Late) {
	sums := [numDoings]int64{Ran: l.UnsampledNS}
	for i := range l.Stacks {
		sums[l.Stacks[i].Doing] += l.Stacks[i].NS
	}
	if want := [numDoings]int64{l.RanNS, l.SleptNS, l.WaitedNS}; sums != want {
		t.Fatalf("sums %v, want %v: %+v", sums, want, *l)
	}
	if len(l.Stacks) > lateMost+int(numDoings) {
		t.Fatalf("%d stacks", len(l.Stacks))
	}
}

// TestLateAgainstReference: of random histories, with several pollers and completions
// that are reaped in any order, each nanosecond is asked by itself.
func TestLateAgainstReference(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newRefWorld(rapid.Uint64().Draw(t, "seed"))
		var left [refThreads][refTime]uint64 // stack with which a thread left the CPU last
		for i := range w.tape.events {
			ev := &w.tape.events[i]
			if ev.Kind == event.KindSwitch && ev.Flags&event.SwitchPrevTarget != 0 {
				ev.Sched.PrevStack = 1 + ev.Time%4
				for at := ev.Time; at < refTime; at++ {
					left[ev.Sched.PrevTID-worker][at] = ev.Sched.PrevStack
				}
			}
		}
		sampledAt := map[[2]uint64]uint64{}
		for range rapid.IntRange(0, 80).Draw(t, "samples") {
			at, th := rapid.Uint64Range(2, refTime-1).Draw(t, "at"), rapid.Uint64Range(0, refThreads-1).Draw(t, "thread")
			if _, twice := sampledAt[[2]uint64{th, at}]; twice || w.states[th][at].state != stateRunning {
				continue
			}
			sampledAt[[2]uint64{th, at}] = 10 + at%3
			w.tape.add(event.Event{Time: at, TID: worker + uint32(th), Kind: event.KindSample, Sample: event.Sample{Stack: 10 + at%3, Period: 1}})
		}
		e, _ := w.tape.play(t, Config{})
		want := newLateness()
		var covered, unneeded [refThreads][refTime]bool
		for range rapid.IntRange(1, 20).Draw(t, "wrs") {
			reap := rapid.Uint64Range(10, refTime-1).Draw(t, "reap")
			wr := waitingWR{done: rapid.Uint64Range(2, reap).Draw(t, "done"), reap: reap, reaper: rapid.SampledFrom([]uint32{worker, helper, third}).Draw(t, "reaper"),
				unneeded: rapid.Bool().Draw(t, "unneeded")}
			for _, m := range cutAll(e, 1, wr) {
				for _, s := range m.segments {
					for at := max(s.begin, wr.done); at < s.end && keepsWaiting[s.cause]; at++ {
						if wr.unneeded {
							unneeded[s.tid-worker][at] = true
							continue
						}
						covered[s.tid-worker][at] = true
						if delays[s.cause] {
							want.delay++
						}
					}
				}
			}
		}
		for th := range covered {
			for at, is := range covered[th] {
				if unneeded[th][at] {
					want.unneeded++
				}
				if !is {
					continue
				}
				switch w.states[th][at].state {
				case stateRunning:
					want.ns[Ran]++
					if stack, ok := sampledAt[[2]uint64{uint64(th), uint64(at)}]; ok {
						want.sum(lateKey{stack, tapePID, Ran}).merge(&lateSum{1, 1})
					}
				case stateAsleep:
					want.left(anyThread, Slept, left[th][at], 1)
				case stateRunnable:
					want.left(anyThread, WaitedForCPU, left[th][at], 1)
				}
			}
		}
		got, expected := e.lateness.report(), want.report()
		checkLate(t, &got)
		if !reflect.DeepEqual(got, expected) {
			t.Fatalf("got  %s\nwant %s", describeLate(&got, 1), describeLate(&expected, 1))
		}
	})
}

var anyThread = &thread{pid: tapePID}

// lateJob is a job of two threads that post, compute, sleep and reap, by the tape.
func lateJob(rounds, stacks uint64) *tape {
	tp := lateTape()
	for i := range rounds {
		at, tid := 100+i*200, worker+uint32(i%2)
		tp.post(tid, at, at+2, wr{id: i, bytes: 64, wqe: 1 + int(i)})
		tp.writes(at+9, at+10, i, 0)
		tp.samples(tid, 1000+i*7%stacks, 20, at+20, at+60)
		tp.sleeps(at+70, uint16(i%2), tid, amd64Sleep, 0)
		tp.from(1 + i%stacks)
		tp.wakes(at+80, 0, tid, event.InterruptTimer, 0, at+80)
		tp.runs(at+81, uint16(i%2), tid, 0)
		tp.reap(tid, at+99, at+100, event.Verb{WRID: i, WQE: 1 + uint16(i), LastEmpty: at + 5, LastEmptyTID: tid}, event.CompletionWQEValid)
	}
	return tp.inMicroseconds()
}

func lateReport(t *testing.T, events []event.Event) *Report {
	e := New(Config{})
	for i := range events {
		e.Add(&events[i])
	}
	r := e.Finish(&event.Context{})
	checkLate(t, &r.Late)
	return r
}

// The order of arrival does not matter, the number of stacks is bounded, and nothing
// gets lost by that but names.
func TestLateIsBounded(t *testing.T) {
	const rounds = 3 * lateMost
	for _, stacks := range []uint64{3, rounds} {
		events := lateJob(rounds, stacks).events
		r := lateReport(t, events)
		if r.Latency.Count != rounds || r.Late.Samples == 0 || r.Late.SleptNS == 0 || r.Late.UnknownNS > 0 {
			t.Fatalf("%d work requests, %s", r.Latency.Count, describeLate(&r.Late, us))
		}
		folded := false
		for _, s := range r.Late.Stacks {
			folded = folded || s.Rest
		}
		if said := strings.Contains(strings.Join(r.Doubts, "\n"), "call stacks of threads"); folded != (stacks > lateMost) || said != folded {
			t.Errorf("%d stacks: folded %v, said %v", stacks, folded, said)
		}
		rng := rand.New(rand.NewPCG(stacks, 4))
		const piece = 500 // far less than the watermark
		for i := 0; i+piece <= len(events); i += piece {
			some := events[i : i+piece]
			rng.Shuffle(len(some), func(i, j int) { some[i], some[j] = some[j], some[i] })
		}
		if again := lateReport(t, events); !reflect.DeepEqual(r.Late, again.Late) {
			t.Errorf("shuffled: %s\nwas %s", describeLate(&again.Late, us), describeLate(&r.Late, us))
		}
	}
}

// A busy poller also takes a completion that waited all the time: what it did is not
// looked at again where it is forgotten when others waited, and that is said, once.
func TestLateBeyondTheBound(t *testing.T) {
	const waits, apart = 10_000, 10 // us
	e, _ := lateTape().inMicroseconds().play(t, Config{})
	var wrs, unneeded []waitingWR
	for i := range uint64(waits) {
		wr := waitingWR{done: 10 + apart*i, reap: 11 + apart*i}
		wrs = append(wrs, wr)
		wr.unneeded = true
		unneeded = append(unneeded, wr)
	}
	const end = 10 + apart*waits
	for range 64 { // a batch
		wrs = append(wrs, waitingWR{done: 10, reap: end})
		unneeded = append(unneeded, waitingWR{done: 10, reap: end, unneeded: true})
	}
	cutAll(e, us, wrs...)
	cutAll(e, us, unneeded...)
	l := e.lateness.report()
	checkLate(t, &l)
	const looked = waits + (apart-1)*coveredMost
	if l.RanNS != looked*us || l.NotLookedAtNS != (apart*waits-looked)*us || l.UnprovenNS != apart*waits*us {
		t.Errorf("%d ns looked at, not %d: %s", l.RanNS, looked*us, describeLate(&l, us))
	}
	if want := int64((waits + 64*apart*waits) * us); l.DelayNS != want {
		t.Errorf("delays of %d ns, not %d", l.DelayNS, want)
	}
}

// A send that nobody waits for is needed if its reap leads to the next post: that is
// known then, and what threads did is asked then.
func TestLateFollowsTheVerdict(t *testing.T) {
	for _, c := range []struct {
		next uint64 // post, us; 0: none
		want string
	}{
		{210, "ran 100 slept 0 waited 0, ran 7 20 of 1, unsampled 80"},
		{260, "ran 0 slept 0 waited 0, unproven 100"},
		{0, "ran 0 slept 0 waited 0, unproven 100"},
	} {
		tp := lateTape()
		tp.post(worker, 50, 51, wr{id: 1, bytes: 64, wqe: 1})
		tp.writes(100, 100, 1, 0)
		tp.samples(worker, 7, 20, 150, 230)
		tp.reap(worker, 199, 200, event.Verb{WRID: 1, WQE: 1}, event.CompletionWQEValid)
		if c.next != 0 {
			tp.post(worker, c.next, c.next+1, wr{id: 2, bytes: 64, wqe: 2})
		}
		r := lateReport(t, tp.inMicroseconds().events)
		if got := describeLate(&r.Late, us); got != c.want || r.Late.UnprovenNS+r.Late.RanNS == 0 {
			t.Errorf("posted at %d: got  %s\nwant %s; %v", c.next, got, c.want, r.Demands)
		}
	}
}
