package attribution

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rdmatrace/rdmatrace/event"
	"pgregory.net/rapid"
)

// The reference model of what happens before the post knows, for every
// nanosecond of a short random history, what is in flight on each queue pair and
// what each thread does. It counts nanoseconds, by the words of Backlog.

const (
	backlogTime = 1500
	backlogQPs  = 5
)

// backlogWorld makes a history.
type backlogWorld struct {
	t       *rapid.T
	now     uint64
	tape    *tape
	states  [refThreads][]backlogState // by nanosecond
	current [refThreads]backlogState
	qps     []*backlogQP
	posts   []backlogPost
	blind   [backlogTime + 100]bool // posts and polls are not seen
	paused  bool
	gaps    int // pauses and losses
	calls   uint32
}

type backlogState struct {
	state   threadState
	syscall int32
}

type backlogQP struct {
	addr   uint64
	num    uint32
	device uint64
	flight []backlogWR // oldest first
	depth  [backlogTime + 100]int
	gone   bool
	ended  uint64 // when it went
	made   uint64
	seen   uint64 // the first post that was
	wqe    uint16
}

type backlogWR struct {
	id       uint64
	wqe      uint16
	signaled bool
}

// backlogPost is one WR that was posted and seen.
type backlogPost struct {
	at    uint64
	tid   uint32
	qp    *backlogQP
	bytes int64
	depth int
}

func newBacklogWorld(t *rapid.T, blinding bool) *backlogWorld {
	w := &backlogWorld{t: t, tape: newTape()}
	for i := range refThreads {
		w.current[i] = backlogState{stateRunning, -1}
		w.tape.runs(0, uint16(i), worker+uint32(i), 0)
	}
	for _, device := range []uint64{1, 2} {
		w.tape.add(event.Event{Time: 0, Kind: event.KindDeviceContext, Object: &event.Object{
			Event: event.ObjectFound, Context: &event.DeviceContext{Addr: device, Device: fmt.Sprintf("mlx5_%d", device)}}})
	}
	w.create()
	for w.now < backlogTime {
		w.pass(uint64(rapid.IntRange(1, 12).Draw(t, "time")))
		w.act(rapid.IntRange(0, refThreads-1).Draw(t, "thread"), blinding)
	}
	if w.paused {
		w.tape.pause(w.now+1000, w.now+1001) // keeps it until the end of the window
	}
	return w
}

// pass lets time pass in which nothing changes.
func (w *backlogWorld) pass(ns uint64) {
	for range ns {
		for i := range w.states {
			w.states[i] = append(w.states[i], w.current[i])
		}
		for _, q := range w.qps {
			q.depth[w.now] = len(q.flight)
		}
		w.blind[w.now] = w.paused
		w.now++
	}
}

func (w *backlogWorld) act(i int, blinding bool) {
	tid, cpu := worker+uint32(i), uint16(i)
	choice := rapid.IntRange(0, 11).Draw(w.t, "what")
	switch s := w.current[i]; {
	case s.state == stateAsleep:
		w.tape.wakes(w.now, 0, tid, event.InterruptNone, 0, 0)
		w.current[i] = backlogState{stateRunnable, -1}
	case s.state == stateRunnable:
		w.tape.runs(w.now, cpu, tid, hog)
		w.current[i] = backlogState{stateRunning, -1}
	case choice == 0:
		call := int32(rapid.IntRange(0, 12).Draw(w.t, "system call"))
		w.tape.sleeps(w.now, cpu, tid, call, 99)
		w.current[i] = backlogState{stateAsleep, call}
	case choice == 1:
		w.tape.preempted(w.now, cpu, tid, hog)
		w.current[i] = backlogState{stateRunnable, -1}
	case choice == 2 && len(w.qps) < backlogQPs:
		w.create()
	case choice == 3 && blinding:
		w.blinds()
	case choice == 4:
		w.destroy()
	case choice < 8:
		w.post(tid, cpu)
	default:
		w.poll(tid, cpu)
	}
}

func (w *backlogWorld) create() {
	n := uint64(len(w.qps))
	q := &backlogQP{addr: 0x1000 + n, num: 0x100 + uint32(n), device: 1 + n%2, made: w.now, seen: never}
	w.qps = append(w.qps, q)
	w.object(q, event.ObjectCreated)
}

func (w *backlogWorld) object(q *backlogQP, what event.ObjectEvent) {
	w.tape.add(event.Event{Time: w.now, Kind: event.KindQP, Object: &event.Object{Event: what, QP: &event.QP{
		Addr: q.addr, Num: q.num, Context: q.device, SendCQ: tapeCQ, Type: 2, Port: 1}}})
	w.pass(1)
}

// alive picks a queue pair, nil if there is none.
func (w *backlogWorld) alive(useful func(*backlogQP) bool) *backlogQP {
	var all []*backlogQP
	for _, q := range w.qps {
		if !q.gone && useful(q) {
			all = append(all, q)
		}
	}
	if len(all) == 0 {
		return nil
	}
	return rapid.SampledFrom(all).Draw(w.t, "queue pair")
}

func (w *backlogWorld) destroy() {
	q := w.alive(func(q *backlogQP) bool { return len(q.flight) < 2 })
	if q == nil || w.paused {
		return
	}
	q.flight, q.gone, q.ended = nil, true, w.now
	w.object(q, event.ObjectDestroyed)
}

// post makes a call, the first WRs of which are in flight from its begin on.
func (w *backlogWorld) post(tid uint32, cpu uint16) {
	q := w.alive(func(*backlogQP) bool { return true })
	if q == nil {
		return
	}
	begin, n := w.now, rapid.IntRange(1, 3).Draw(w.t, "WRs")
	w.calls++
	for i := range n {
		q.wqe++
		wr := backlogWR{uint64(w.calls)*10 + uint64(i), q.wqe, rapid.Bool().Draw(w.t, "signaled")}
		bytes := uint32(rapid.IntRange(0, 100).Draw(w.t, "bytes"))
		if !w.paused {
			v := event.Verb{QP: q.addr, QPNum: q.num, WRID: wr.id, Bytes: bytes, Begin: begin, Call: w.calls, Index: uint16(i), WQE: wr.wqe}
			if wr.signaled {
				v.SendFlags = sendSignaled
			}
			w.tape.add(event.Event{Time: begin, TID: tid, CPU: cpu, Kind: event.KindWR, Flags: event.WRWQEValid, Verb: v})
			q.seen = min(q.seen, begin)
			w.posts = append(w.posts, backlogPost{begin, tid, q, int64(bytes), len(q.flight)})
		}
		q.flight = append(q.flight, wr)
	}
	w.pass(uint64(rapid.IntRange(1, 9).Draw(w.t, "in the call")))
	if !w.paused {
		w.tape.add(event.Event{Time: w.now, TID: tid, CPU: cpu, Kind: event.KindPostEnd, Verb: event.Verb{
			QP: q.addr, Begin: begin, Call: w.calls, Count: uint16(n), BadIndex: -1}})
	}
	w.pass(1)
}

// poll reaps the oldest signalled WR of a queue pair, with what is before it.
func (w *backlogWorld) poll(tid uint32, cpu uint16) {
	signaled := func(q *backlogQP) int {
		for i, wr := range q.flight {
			if wr.signaled {
				return i
			}
		}
		return -1
	}
	q := w.alive(func(q *backlogQP) bool { return signaled(q) >= 0 })
	if q == nil {
		return
	}
	begin, i := w.now, signaled(q)
	w.pass(uint64(rapid.IntRange(1, 9).Draw(w.t, "in the poll")))
	if !w.paused {
		w.tape.add(event.Event{Time: w.now, TID: tid, CPU: cpu, Kind: event.KindCompletion, Flags: event.CompletionWQEValid, Verb: event.Verb{
			CQ: tapeCQ, QPNum: q.num, WRID: q.flight[i].id, WQE: q.flight[i].wqe, Begin: begin, Count: 1}})
	}
	q.flight = q.flight[i+1:]
	w.pass(1)
}

// blinds begins or ends the one pause, or loses records once.
func (w *backlogWorld) blinds() {
	flags := uint32(event.PauseBegin)
	switch {
	case w.paused:
		flags = event.PauseEnd
	case w.gaps > 0:
		return
	case rapid.Bool().Draw(w.t, "records are lost"):
		w.gaps++
		w.loses()
		return
	}
	w.gaps++
	w.paused = !w.paused
	w.tape.add(event.Event{Time: w.now, Kind: event.KindPause, Flags: flags})
	w.pass(1)
}

// loses the records of a stretch in which a thread posts and polls.
func (w *backlogWorld) loses() {
	begin := w.now
	w.paused = true
	for range rapid.IntRange(1, 4).Draw(w.t, "lost") {
		w.pass(3)
		if rapid.Bool().Draw(w.t, "a post") {
			w.post(worker, 0)
		} else {
			w.poll(worker, 0)
		}
	}
	w.tape.loss(begin, w.now-1, event.KindWR, 1)
	w.paused = false
	w.pass(1)
}

// until when a queue pair was there.
func (w *backlogWorld) until(q *backlogQP) uint64 {
	if q.gone {
		return q.ended
	}
	return w.now
}

// expect counts the nanoseconds of the queue pairs that holds says are meant.
// seen is where posts and polls were seen.
func (w *backlogWorld) expect(begin, end uint64, together bool, holds func(*backlogQP) bool) (b Backlog) {
	var posts []backlogPost
	for _, p := range w.posts {
		if holds(p.qp) {
			posts = append(posts, p)
		}
	}
	b.Posted, b.WindowNS = int64(len(posts)), int64(end-begin)
	sleeps := map[string]*Culprit{}
	last := -1 // post that comes next, or the last one
	for t := begin; t < end; t++ {
		for last+1 < len(posts) && posts[last+1].at <= t {
			last++
		}
		if w.blind[t] || w.inFlight(t, holds) > 0 {
			continue
		}
		b.IdleNS++
		if last < 0 {
			b.IdleUnknown++ // nobody is asked before the first post
			continue
		}
		s := w.states[posts[min(last+1, len(posts)-1)].tid-worker][t]
		switch s.state {
		case stateRunning:
			b.IdleRunning++
		case stateRunnable:
			b.IdleRunnable++
		case stateAsleep:
			b.IdleAsleep++
			name := (&naming{}).syscall(s.syscall)
			if sleeps[name] == nil {
				sleeps[name] = &Culprit{Name: name}
			}
			sleeps[name].TotalNS++
		}
	}
	for _, p := range posts {
		depth := int64(p.depth)
		if together {
			depth += int64(w.inFlight(p.at, func(q *backlogQP) bool { return holds(q) && q != p.qp }))
		}
		b.DepthKnown++
		b.DepthMean += float64(depth)
		b.DepthMax = max(b.DepthMax, depth)
		b.BytesPerSec += float64(p.bytes)
	}
	if len(posts) > 0 {
		b.DepthMean /= float64(len(posts))
	}
	seconds := float64(b.WindowNS) / 1e9
	b.BytesPerSec, b.WRsPerSec = b.BytesPerSec/seconds, float64(len(posts))/seconds
	for _, s := range sleeps {
		b.IdleSyscalls = append(b.IdleSyscalls, *s)
	}
	return b
}

// inFlight at t on those that holds says are meant, and that were seen to be posted to before.
func (w *backlogWorld) inFlight(t uint64, holds func(*backlogQP) bool) (n int) {
	for _, q := range w.qps {
		if holds(q) && q.seen <= t {
			n += q.depth[t]
		}
	}
	return n
}

func (w *backlogWorld) report() *Report {
	e := New(Config{Arch: "x86_64"})
	for i := range w.tape.events {
		e.Add(&w.tape.events[i])
	}
	return e.Finish(&event.Context{Window: event.Window{Begin: 0, End: w.now}})
}

// inSum leaves out what a reference need not know: how often a thread fell
// asleep, and beyond sleepCalls in what.
func inSum(b Backlog) Backlog {
	var total int64
	for i := range b.IdleSyscalls {
		b.IdleSyscalls[i].Count = 0
		total += b.IdleSyscalls[i].TotalNS
	}
	if len(b.IdleSyscalls) > 0 {
		b.IdleSyscalls = []Culprit{{TotalNS: total}}
	}
	return b
}

// What is said of queue pairs and ports is what a count of nanoseconds gives.
func TestBacklogAgainstReference(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newBacklogWorld(t, false)
		r := w.report()
		if len(r.Queues) != len(w.qps) {
			t.Fatalf("%d queue pairs, want %d", len(r.Queues), len(w.qps))
		}
		for _, q := range r.Queues {
			made := w.qps[q.QPNum-0x100]
			want := w.expect(made.made, w.until(made), false, func(x *backlogQP) bool { return x == made })
			if diff := cmp.Diff(inSum(want), inSum(q.Backlog)); diff != "" {
				t.Errorf("queue pair 0x%x: %s", q.QPNum, diff)
			}
		}
		for _, p := range r.Ports {
			want := w.expect(0, w.now, true, func(q *backlogQP) bool { return fmt.Sprintf("mlx5_%d", q.device) == p.Device })
			if diff := cmp.Diff(inSum(want), inSum(p.Backlog)); diff != "" {
				t.Errorf("port of %s: %s", p.Device, diff)
			}
		}
	})
}

// Where posts and polls were not seen, nothing is said to be idle: with a pause
// or a loss no more is than was.
func TestBacklogUnseen(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newBacklogWorld(t, true)
		r := w.report()
		check := func(what string, got, want Backlog) {
			if got.IdleNS > want.IdleNS || got.Posted != want.Posted {
				t.Errorf("%s: %d ns idle of %d, %d posts of %d", what, got.IdleNS, want.IdleNS, got.Posted, want.Posted)
			}
			if sum := got.IdleRunning + got.IdleRunnable + got.IdleAsleep + got.IdleUnknown; sum != got.IdleNS {
				t.Errorf("%s: %+v do not add up", what, got)
			}
		}
		for _, q := range r.Queues {
			made := w.qps[q.QPNum-0x100]
			check(fmt.Sprintf("queue pair 0x%x", q.QPNum), q.Backlog, w.expect(made.made, w.until(made), false, func(x *backlogQP) bool { return x == made }))
		}
		for _, p := range r.Ports {
			check("port of "+p.Device, p.Backlog, w.expect(0, w.now, true, func(q *backlogQP) bool { return fmt.Sprintf("mlx5_%d", q.device) == p.Device }))
		}
	})
}
