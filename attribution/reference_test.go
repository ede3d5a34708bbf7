package attribution

import (
	"math/rand/v2"
	"testing"

	"github.com/rdmatrace/rdmatrace/event"
	"pgregory.net/rapid"
)

// The reference model knows, for every nanosecond of a short random history,
// what each thread did, and classifies each nanosecond by itself. It is slow
// and follows the words of the design, not the engine's data structures.

const (
	refTime    = 600
	refCPUs    = 3
	refThreads = 3
)

// refState is what a thread does in one nanosecond.
type refState struct {
	state threadState
	why   reason
	cpu   int
	sleep *refSleep
	irq   culprit // on top
}

type refSleep struct {
	begin, end uint64
	syscall    int32
	arg        uint64
	seen       bool // the waking was recorded
	waker      uint32
	irq        event.InterruptKind
	vec        uint32
	irqBegin   uint64
}

// refWorld generates a history.
type refWorld struct {
	rng     *rand.Rand
	tape    *tape
	states  [refThreads][refTime]refState
	on      [refCPUs][refTime]uint32 // who occupies the CPU
	now     [refThreads]refState
	current [refCPUs]uint32
	busy    [refCPUs]uint64 // no switch before
	arms    []uint64
	armers  map[uint32]bool
}

func newRefWorld(seed uint64) *refWorld {
	w := &refWorld{rng: rand.New(rand.NewPCG(seed, 3)), tape: newTape(), armers: make(map[uint32]bool)}
	w.tape.cq(0, tapeFD)
	for i := range refThreads {
		w.current[i] = worker + uint32(i)
		w.now[i] = refState{state: stateRunning, cpu: i}
		w.tape.add(event.Event{Time: 0, TID: worker + uint32(i), CPU: uint16(i), Kind: event.KindArm, Verb: event.Verb{CQ: 0x9999}})
	}
	for t := range uint64(refTime) {
		if t > 0 && w.rng.IntN(3) == 0 {
			w.act(t)
		}
		for i := range refThreads {
			w.states[i][t].state, w.states[i][t].why = w.now[i].state, w.now[i].why
			w.states[i][t].cpu, w.states[i][t].sleep = w.now[i].cpu, w.now[i].sleep
		}
		for c := range refCPUs {
			w.on[c][t] = w.current[c]
		}
	}
	return w
}

// act lets one thing happen at t.
func (w *refWorld) act(t uint64) {
	cpu := w.rng.IntN(refCPUs)
	tid := w.current[cpu]
	target := tid >= worker && tid < hog
	switch w.rng.IntN(8) {
	case 0:
		w.wake(t)
	case 6:
		w.move(t)
	case 7:
		w.quota(t)
	case 1:
		if target && w.busy[cpu] <= t {
			w.interrupt(t, cpu, tid)
		}
	case 2:
		if target && len(w.arms) < 3 {
			w.arms = append(w.arms, t)
			w.armers[tid] = true
			w.tape.arm(tid, t)
		}
	default:
		if w.busy[cpu] <= t {
			w.change(t, cpu, tid, target)
		}
	}
}

// interrupt runs on top of tid for a while, perhaps with another nested in it.
func (w *refWorld) interrupt(t uint64, cpu int, tid uint32) {
	end := t + 3 + w.rng.Uint64N(20)
	if end >= refTime {
		return
	}
	w.busy[cpu] = end + 1
	i := int(tid - worker)
	put := func(begin, end uint64, kind event.InterruptKind, vec uint32) {
		for at := begin; at < end; at++ {
			w.states[i][at].irq = interruptCulprit(kind, vec, [16]byte{})
		}
		w.tape.interrupt(begin, end, tid, kind, vec)
	}
	put(t, end, event.InterruptTimer, 236)
	if w.rng.IntN(2) == 0 {
		inner := t + 1 + w.rng.Uint64N(end-t-2)
		put(inner, inner+1+w.rng.Uint64N(end-inner), event.InterruptDevice, 30)
	}
}

// change switches a CPU from tid to another task.
func (w *refWorld) change(t uint64, cpu int, tid uint32, target bool) {
	next := []uint32{0, hog, otherHog}[w.rng.IntN(3)]
	if w.rng.IntN(2) == 0 {
		for i := range refThreads {
			if w.now[i].state == stateRunnable && worker+uint32(i) != tid {
				next = worker + uint32(i)
				break
			}
		}
	}
	if next == tid {
		return
	}
	if next == hog || next == otherHog {
		for c := range refCPUs {
			if w.current[c] == next {
				return
			}
		}
	}
	s, flags := event.Sched{Syscall: -1}, uint32(0)
	if target {
		st := &w.now[tid-worker]
		*st = refState{state: stateRunnable, cpu: cpu}
		switch w.rng.IntN(5) {
		case 0:
			st.why, s.Syscall = yielded, amd64Yield
		case 1:
			st.why, flags = throttled, event.SwitchThrottled
		case 2:
			st.why, flags = preempted, event.SwitchPreempt
			s.PrevState = uint32(w.rng.IntN(2)) // counts for nothing
		default:
			s.PrevState = 1
			s.Syscall = []int32{amd64Read, amd64Epoll, amd64Futex, -1}[w.rng.IntN(4)]
			s.SyscallArg = tapeFD + w.rng.Uint64N(2)
			*st = refState{state: stateAsleep, cpu: cpu, sleep: &refSleep{
				begin: t, end: never, syscall: s.Syscall, arg: s.SyscallArg,
			}}
		}
	}
	if next >= worker && next < hog {
		n := &w.now[next-worker]
		w.queued(t, int(next-worker), cpu)
		*n = refState{state: stateRunning, cpu: cpu}
	}
	w.current[cpu] = next
	w.tape.sw(t, uint16(cpu), tid, next, s, flags)
}

// queued says where thread i, if it was woken, has been queued up to t, unless that is
// known already.
func (w *refWorld) queued(t uint64, i, cpu int) {
	for at := int(t) - 1; at >= 0 && w.states[i][at].state == stateRunnable && w.states[i][at].cpu < 0; at-- {
		w.states[i][at].cpu = cpu
	}
}

// move a thread that waits for a CPU to another one's queue.
func (w *refWorld) move(t uint64) {
	i := w.rng.IntN(refThreads)
	st := &w.now[i]
	if st.state != stateRunnable {
		return
	}
	from := st.cpu
	if from < 0 {
		from = w.rng.IntN(refCPUs)
		w.queued(t, i, from)
	}
	to := (from + 1 + w.rng.IntN(refCPUs-1)) % refCPUs
	st.cpu = to
	w.tape.moved(t, worker+uint32(i), uint16(from), uint16(to))
}

// quota that is used up keeps a thread that waits, or does not any more.
func (w *refWorld) quota(t uint64) {
	i := w.rng.IntN(refThreads)
	st := &w.now[i]
	if st.state != stateRunnable {
		return
	}
	if st.cpu < 0 {
		st.cpu = w.rng.IntN(refCPUs)
		w.queued(t, i, st.cpu)
	}
	flags := uint32(event.QuotaBegin)
	if st.why == throttled {
		st.why, flags = woken, event.QuotaEnd
	} else {
		st.why = throttled
	}
	w.tape.quota(t, uint16(st.cpu), worker+uint32(i), flags)
}

// wake a sleeping thread, from an interrupt or by a task.
func (w *refWorld) wake(t uint64) {
	for i := range refThreads {
		st := &w.now[i]
		if st.state != stateAsleep || w.rng.IntN(2) == 0 {
			continue
		}
		s := st.sleep
		s.end, s.seen = t, true
		s.waker = w.current[w.rng.IntN(refCPUs)]
		if w.rng.IntN(2) == 0 {
			s.irq, s.vec = event.InterruptDevice, 27
			s.irqBegin = t - min(t-1, w.rng.Uint64N(30))
		}
		w.tape.wakes(t, s.waker, worker+uint32(i), s.irq, s.vec, s.irqBegin)
		*st = refState{state: stateRunnable, why: woken, cpu: -1}
		return
	}
}

// refCharge is what one nanosecond is charged to.
type refCharge struct {
	cause Cause
	who   culprit
}

// refWalk says how to classify the time of a reaping thread.
type refWalk struct {
	*refWorld
	from, submitEnd, reapBegin uint64
}

func (w *refWalk) at(tid uint32, t, from uint64, wakers int) refCharge {
	st := &w.states[tid-worker][t]
	switch st.state {
	case stateRunning:
		switch {
		case wakers > 0:
			return refCharge{cause: Handoff}
		case st.irq.kind != nobody:
			return refCharge{IRQOnTop, st.irq}
		case t < w.submitEnd:
			return refCharge{cause: Submit}
		case t >= w.reapBegin:
			return refCharge{cause: Reap}
		}
		return refCharge{cause: LatePoll}
	case stateRunnable:
		who := w.occupant(st.cpu, t, tid)
		switch st.why {
		case throttled:
			return refCharge{cause: Throttled}
		case woken:
			return refCharge{Runqueue, who}
		case yielded:
			if who.kind == nobody {
				return refCharge{cause: Runqueue}
			}
			return refCharge{Yielded, who}
		}
		return refCharge{Preempted, who}
	}
	s := st.sleep
	begin := max(from, s.begin)
	switch {
	case w.onCQ(s):
		switch {
		case !s.seen:
			return refCharge{cause: Delivery}
		case s.irq == event.InterruptNone:
			return refCharge{Delivery, refTask(s.waker)}
		case t < s.irqBegin:
			return refCharge{cause: Delivery}
		}
		return refCharge{Handler, culprit{kind: culpritIRQ, id: s.vec}}
	case w.leadsBack(s, begin, wakers), w.dispatched(s, begin, wakers):
		return w.at(s.waker, t, begin, wakers+1)
	case s.syscall < 0:
		return refCharge{cause: OwnSleep}
	}
	return refCharge{OwnSleep, culprit{kind: culpritSyscall, id: uint32(s.syscall)}}
}

func chargeOf(s *segment) refCharge {
	if s.who == nil {
		return refCharge{cause: s.cause}
	}
	return refCharge{s.cause, *s.who}
}

func refTask(tid uint32) culprit {
	if tid == 0 {
		return culprit{}
	}
	return culprit{kind: culpritTask, id: tid, pid: groupOf(tid), name: [16]byte(commOf(tid))}
}

func (w *refWalk) occupant(cpu int, t uint64, waiter uint32) culprit {
	if cpu < 0 || w.on[cpu][t] == waiter {
		return culprit{}
	}
	return refTask(w.on[cpu][t])
}

func (w *refWalk) onCQ(s *refSleep) bool {
	switch s.syscall {
	case amd64Read:
		return s.arg == tapeFD
	case amd64Epoll:
		for _, at := range w.arms {
			if at <= s.end {
				return true
			}
		}
	}
	return false
}

// leadsBack: the waker was itself woken since begin from a sleep on the CQ, or
// from one that leads back to such a sleep.
func (w *refWalk) leadsBack(s *refSleep, begin uint64, wakers int) bool {
	if !s.seen || s.irq != event.InterruptNone || s.waker < worker || s.waker >= hog || wakers >= maxWakers {
		return false
	}
	var last *refSleep
	for t := uint64(0); t < refTime && t <= s.end; t++ {
		other := w.states[s.waker-worker][t].sleep
		if other == nil || other == last || other.end > s.end || other.end < begin {
			continue
		}
		last = other
		if w.onCQ(other) || w.leadsBack(other, max(begin, other.begin), wakers+1) {
			return true
		}
	}
	return false
}

// dispatched: the waker armed the CQ, or slept on it before, or was itself woken
// since begin by one that did.
func (w *refWalk) dispatched(s *refSleep, begin uint64, wakers int) bool {
	if !s.seen || s.irq != event.InterruptNone || s.waker < worker || s.waker >= hog || wakers >= maxWakers {
		return false
	}
	if w.armers[s.waker] {
		return true
	}
	var last *refSleep
	for t := uint64(0); t < refTime && t <= s.end; t++ {
		other := w.states[s.waker-worker][t].sleep
		if other == nil || other == last || other.end > s.end {
			continue
		}
		last = other
		if w.onCQ(other) || other.end >= begin && w.dispatched(other, max(begin, other.begin), wakers+1) {
			return true
		}
	}
	return false
}

// TestCutAgainstReference compares the engine's cut of one WR with the
// reference, nanosecond by nanosecond.
func TestCutAgainstReference(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newRefWorld(rapid.Uint64().Draw(t, "seed"))
		e, _ := w.tape.play(t, Config{})
		cq := e.objects.cq(tapePID, tapeCQ)
		reaper := rapid.SampledFrom([]uint32{worker, helper}).Draw(t, "reaper")
		m := &measured{postTID: worker, reapTID: reaper}
		m.reap = rapid.Uint64Range(10, refTime-1).Draw(t, "reap")
		for ; m.reap > 2 && w.states[reaper-worker][m.reap-1].state != stateRunning; m.reap-- {
		}
		m.postBegin = rapid.Uint64Range(1, m.reap-1).Draw(t, "postBegin")
		m.postEnd = rapid.Uint64Range(m.postBegin, refTime-1).Draw(t, "postEnd")
		if reaper == worker {
			m.postEnd = min(m.postEnd, m.reap)
		}
		m.done = rapid.Uint64Range(m.postBegin, m.reap).Draw(t, "done")
		m.doneLow, m.doneHigh = m.done, m.done
		pollBegin := rapid.Uint64Range(max(1, m.done), m.reap).Draw(t, "pollBegin")
		other := rapid.SampledFrom([]uint32{0, third}).Draw(t, "other poller")
		if other != 0 {
			cq.polled(other, m.done)
		}
		p := &pending{postBegin: m.postBegin, postEnd: m.postEnd, tid: worker}
		p.submit = e.cutAfterwards(worker, m.postBegin, min(m.postEnd, m.reap))
		c := &verbRecord{stamp: stamp{time: m.reap, pid: tapePID, tid: reaper}}
		c.Begin = pollBegin
		e.cut(m, p, c, cq)
		checkCut(t, m)

		submit := refWalk{refWorld: w, submitEnd: never, reapBegin: never}
		reap := refWalk{refWorld: w, from: m.done, reapBegin: pollBegin}
		if reaper == worker {
			reap.submitEnd = m.postEnd
		}
		elsewhere := refWalk{refWorld: w, from: m.done, reapBegin: never}
		for _, s := range m.segments {
			for at := s.begin; at < s.end; at++ {
				var want refCharge
				switch {
				case at >= m.done:
					want = reap.at(reaper, at, m.done, 0)
					if other != 0 {
						alternative := elsewhere.at(other, at, m.done, 0)
						if availability[alternative.cause] > availability[want.cause] {
							want = alternative
						}
					}
				case at < m.postEnd:
					// Inside the call no sleep is on a CQ.
					want = submit.at(worker, at, m.postBegin, 0)
					if st := w.states[0][at]; st.state == stateAsleep {
						want = refCharge{cause: OwnSleep}
						if st.sleep.syscall >= 0 {
							want.who = culprit{kind: culpritSyscall, id: uint32(st.sleep.syscall)}
						}
					}
				default:
					want = refCharge{cause: WireUnsplit}
				}
				if got := chargeOf(&s); got != want {
					t.Fatalf("at %d: got %s %+v, want %s %+v\n%s", at, got.cause, got.who, want.cause, want.who, describe(m.segments, 0, 1))
				}
			}
		}
	})
}
