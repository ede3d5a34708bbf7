package attribution

import (
	"fmt"
	"strings"
	"testing"

	"github.com/rdmatrace/rdmatrace/event"
)

func TestEndedThreadsAreForgotten(t *testing.T) {
	tp := created()
	tp.post(worker, 2, 3, wr{id: 1}) // its need reaches back to here, until reaped
	tp.reap(worker, 8, 9, event.Verb{WRID: 1}, 0)
	for i := range uint64(20_000) {
		at := 100 + i*1_000_000
		tid := uint32(1000 + i)
		start := tp.add(event.Event{Time: at, TID: tid, Kind: event.KindTask, Object: &event.Object{Task: &event.Task{Event: event.TaskStarted}}})
		start.PID = tapePID
		tp.add(event.Event{Time: at + 10, TID: 0, CPU: 1, Kind: event.KindSwitch, Flags: event.SwitchNextTarget, Sched: event.Sched{NextTID: tid, NextPID: tapePID}})
		tp.add(event.Event{Time: at + 20, TID: tid, CPU: 1, Kind: event.KindSwitch, Flags: event.SwitchPrevTarget | event.SwitchPrevExited, Sched: event.Sched{PrevTID: tid, PrevPID: tapePID, PrevState: 64}})
	}
	e, _ := tp.play(t, Config{})
	if n := len(e.threads.threads); n > 1100 {
		t.Errorf("%d threads are known", n)
	}
}

// TestTimelineMemoryIsBounded: a thread that switches without end while a WR is
// pending keeps a bounded past.
func TestTimelineMemoryIsBounded(t *testing.T) {
	tp := created()
	tp.post(worker, 2, 3, wr{id: 1})
	for i := range uint64(50_000) {
		tp.preempted(10+4*i, 0, worker, hog)
		tp.runs(12+4*i, 0, worker, hog)
		tp.interrupt(12+4*i, 13+4*i, worker, event.InterruptTimer, 236)
	}
	tp.reap(worker, 900_000, 900_001, event.Verb{WRID: 1, LastEmpty: 100, LastEmptyTID: worker}, 0)
	e, rec := tp.play(t, Config{})
	th := e.threads.known(worker)
	if len(th.spans.buf) > spansMost || len(th.tops.buf) > spansMost || len(e.threads.cpus[0].buf) > spansMost {
		t.Errorf("%d spans, %d interrupts, %d occupants", len(th.spans.buf), len(th.tops.buf), len(e.threads.cpus[0].buf))
	}
	checkCut(t, rec.last(t))
}

// TestWalk is the aggregates' view of a thread's time.
func TestWalk(t *testing.T) {
	tp := created()
	tp.sleeps(10, 0, worker, amd64Futex, 0)
	tp.wakes(20, hog, worker, 0, 0, 0)
	tp.runs(25, 0, worker, 0)
	e, _ := tp.play(t, Config{})
	walk := func(tid uint32, begin, end uint64) string {
		var got []string
		e.threads.walk(tid, begin, end, func(state threadState, begin, end uint64, syscall int32) {
			got = append(got, fmt.Sprint([]string{"unknown", "running", "runnable", "asleep"}[state], begin, "-", end, " ", syscall))
		})
		return strings.Join(got, ", ")
	}
	for _, test := range []struct {
		tid        uint32
		begin, end uint64
		want       string
	}{
		{worker, 5, 30, "running5-10 -1, asleep10-20 202, runnable20-25 -1, running25-30 -1"},
		{worker, 12, 18, "asleep12-18 202"},
		{worker, 0, 3, "unknown0-1 -1, running1-3 -1"},
		{helper, 5, 30, "unknown5-30 -1"},
	} {
		if got := walk(test.tid, test.begin, test.end); got != test.want {
			t.Errorf("thread %d, %d to %d: got %s, want %s", test.tid, test.begin, test.end, got, test.want)
		}
	}
}

// TestWhoRanInstead: a task that came unseen stands for the time before it
// leaves, and the idle task for nobody.
func TestWhoRanInstead(t *testing.T) {
	tp := created()
	tp.preempted(100, 0, worker, hog)
	tp.sw(200, 0, otherHog, 0, event.Sched{PrevState: 1}, 0) // the switch from hog was not recorded
	tp.runs(300, 0, worker, 0)
	e, _ := tp.play(t, Config{})
	var got []string
	e.threads.instead(e.threads.known(worker), 0, 100, 300, func(begin, end uint64, who *culprit) {
		got = append(got, fmt.Sprintf("%d-%d %s", begin, end, (&naming{}).culprit(who)))
	})
	if s := strings.Join(got, ", "); s != "100-200 hog2 (pid 902), 200-300 " {
		t.Error(s)
	}
}

// TestWhoRanBeforeAnInferredSwitch: it does not say who left, so who came last
// keeps the blame.
func TestWhoRanBeforeAnInferredSwitch(t *testing.T) {
	tp := created()
	tp.preempted(100, 0, worker, hog)
	tp.sw(300, 0, 0, worker, event.Sched{Syscall: -1}, event.SwitchInferred)
	e, _ := tp.play(t, Config{})
	var got []string
	e.threads.instead(e.threads.known(worker), 0, 100, 300, func(begin, end uint64, who *culprit) {
		got = append(got, fmt.Sprintf("%d-%d %s", begin, end, (&naming{}).culprit(who)))
	})
	if s := strings.Join(got, ", "); s != "100-300 hog (pid 900)" {
		t.Error(s)
	}
}

// TestWhoRanInsteadElsewhere: a thread that is moved while it waits waits for those
// of its new CPU, and its old one has seen no switch that was not one.
func TestWhoRanInsteadElsewhere(t *testing.T) {
	tp := created()
	tp.preempted(100, 0, worker, hog)
	tp.moved(200, worker, 0, 1)
	tp.runs(300, 1, worker, otherHog)
	e, _ := tp.play(t, Config{})
	w := walker{tl: e.threads}
	w.thread(e.threads.known(worker), 100, 300)
	var got []string
	for _, s := range w.segments {
		got = append(got, fmt.Sprintf("%s %d-%d %s on %d", s.cause, s.begin, s.end, (&naming{}).culprit(s.who), s.cpu))
	}
	if s := strings.Join(got, ", "); s != "preempted 100-200 hog (pid 900) on 0, preempted 200-300 hog2 (pid 902) on 1" {
		t.Error(s)
	}
	if on := &e.threads.cpus[0]; on.last().tid != hog {
		t.Errorf("thread %d is believed to run on its old CPU", on.last().tid)
	}
}

// TestFoundAsleep: what a thread sleeps in that was asleep when the trace began
// is known, so its first event is one.
func TestFoundAsleep(t *testing.T) {
	for _, c := range []struct {
		sleep *event.SystemCall
		want  string
	}{
		{&event.SystemCall{Number: amd64Read, Arg: tapeFD}, "delivery 100-105, handler 105-110 irq 27, runqueue 110-111 hog (pid 900)"},
		{&event.SystemCall{Number: amd64Read, Arg: tapeFD + 1}, "own-sleep 100-110 read, runqueue 110-111 hog (pid 900)"},
		{nil, "own-sleep 100-110, runqueue 110-111 hog (pid 900)"}, // of an older recorder
	} {
		tp := newTape()
		tp.cq(1, tapeFD)
		tp.qp(1, event.ObjectFound, nil)
		tp.add(event.Event{Time: 2, TID: worker, Kind: event.KindTask, Object: &event.Object{Task: &event.Task{
			Event: event.TaskFound, State: 1, Sleep: c.sleep}}})
		tp.wakes(110, 0, worker, event.InterruptDevice, 27, 105)
		tp.runs(111, 0, worker, hog)
		e, _ := tp.play(t, Config{})
		w := walker{tl: e.threads, cq: e.objects.cq(tapePID, tapeCQ)}
		w.thread(e.threads.known(worker), 100, 111)
		if got := describe(w.segments, 0, 1); got != c.want {
			t.Errorf("%+v: %s", c.sleep, got)
		}
	}
}

// TestThreadedHandler: what a line's threaded handler takes from a running thread is
// an interrupt on top of it; a wait for a CPU on which one runs is a wait.
func TestThreadedHandler(t *testing.T) {
	tp := created()
	tp.post(worker, 2, 3, wr{id: 1})
	tp.preempted(100, 0, worker, irqThread)
	tp.runs(200, 0, worker, irqThread)
	tp.preempted(300, 0, worker, hog)
	tp.runs(400, 0, worker, hog)
	tp.sleeps(500, 0, worker, amd64Futex, 0)
	tp.wakes(600, hog, worker, 0, 0, 0)
	tp.sw(610, 0, 0, irqThread, event.Sched{Syscall: -1}, 0)
	tp.runs(700, 0, worker, irqThread)
	e, _ := tp.play(t, Config{})
	var got []string
	for _, stretch := range [][2]uint64{{100, 200}, {300, 400}, {600, 700}} {
		w := walker{tl: e.threads}
		w.thread(e.threads.known(worker), stretch[0], stretch[1])
		for _, s := range w.segments {
			got = append(got, fmt.Sprintf("%s %d-%d %s", s.cause, s.begin, s.end, (&naming{}).culprit(s.who)))
		}
	}
	want := "irq-on-top 100-200 irq/34-virtio4- (pid 903), preempted 300-400 hog (pid 900), runqueue 600-610 , runqueue 610-700 irq/34-virtio4- (pid 903)"
	if s := strings.Join(got, ", "); s != want {
		t.Errorf("got  %s\nwant %s", s, want)
	}
}

// TestTooManySegments: what comes after them is charged to nobody.
func TestTooManySegments(t *testing.T) {
	var all []segment
	const most = maxSegments + 50
	for i := range uint64(most) {
		s := segment{begin: i, end: i + 1, cause: LatePoll, tid: worker}
		if i%2 == 0 {
			s.cause, s.who = Preempted, kept(culprit{kind: culpritTask, id: hog, pid: hog})
		}
		all = appendSegment(all, s)
	}
	if len(all) != maxSegments {
		t.Fatalf("%d segments", len(all))
	}
	if got := all[maxSegments-1]; got.cause != CauseUndecided || got.who != nil || got.begin != maxSegments-1 || got.end != most {
		t.Errorf("the last one is %+v", got)
	}
	if got := all[maxSegments-2]; got.cause == CauseUndecided || got.end != maxSegments-1 {
		t.Errorf("the one before it is %+v", got)
	}
}

// TestExitIsNoRepair: sched_process_exit comes early in do_exit, so the thread is
// seen to leave its CPU, or to be preempted, after it has ended.
func TestExitIsNoRepair(t *testing.T) {
	tp := created()
	tp.post(worker, 2, 3, wr{id: 1})
	exit := tp.add(event.Event{Time: 10, TID: worker, Kind: event.KindTask, Object: &event.Object{Task: &event.Task{Event: event.TaskExited}}})
	exit.PID = tapePID
	tp.preempted(12, 0, worker, hog)
	tp.runs(14, 0, worker, hog)
	tp.sw(20, 0, worker, 0, event.Sched{PrevState: 0x80}, event.SwitchPrevExited)
	e, _ := tp.play(t, Config{})
	if e.threads.repaired != 0 {
		t.Errorf("%d repaired", e.threads.repaired)
	}
	if th := e.threads.known(worker); th.state() != stateAsleep || th.spans.last().why != exited {
		t.Errorf("the thread is in state %d", th.state())
	}
}

// TestWokenAsItLeft: a waker comes while the thread, about to sleep, is still on its CPU,
// where it is held up for long: there is no other waking, and it waits from the switch on.
// One that was woken so and sleeps again, until it is woken once more, does sleep.
func TestWokenAsItLeft(t *testing.T) {
	const ms = 1_000_000
	for _, c := range []struct {
		name  string
		again uint64 // 0: never
		state threadState
	}{
		{"and comes back", 0, stateRunnable},
		{"and sleeps again", 20 * ms, stateAsleep},
	} {
		t.Run(c.name, func(t *testing.T) {
			tp := created()
			tp.runs(ms, 0, worker, hog)
			tp.wakes(2*ms, hog, worker, event.InterruptNone, 0, 0)
			tp.sleeps(6*ms, 0, worker, 0, 0)
			if c.again != 0 {
				tp.wakes(c.again, hog, worker, event.InterruptNone, 0, 0)
			}
			tp.runs(30*ms, 0, worker, hog)
			e, _ := tp.play(t, Config{})
			var in threadState
			e.threads.walk(worker, 10*ms, 11*ms, func(state threadState, _, _ uint64, _ int32) { in = state })
			if in != c.state {
				t.Errorf("10 ms later it is in state %d, want %d", in, c.state)
			}
		})
	}
}
