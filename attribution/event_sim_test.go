package attribution

import (
	"math/rand/v2"
	"testing"

	"github.com/rdmatrace/rdmatrace/event"
	"pgregory.net/rapid"
)

// eventSim simulates a program that waits for completion events, and all that
// makes it hard to tell what an event was for: several completion queues on one
// channel, events that lag and come when their completion was reaped already,
// handlers that began before the completion they announce, signals, and another
// thread that polls as well. It knows when each completion became visible.
type eventSim struct {
	eventConfig
	rng  *rand.Rand
	tape *tape
	now  uint64
	cqs  []*eventCQ
	todo []eventStep
	// queued[i] events are ready on channel i; a sleeper waits for the channels
	// in waits.
	queued  []int
	truth   map[uint64]uint64 // when the WR with this stack became visible
	nextID  uint64
	call    uint32
	helping bool
	// announced is the queue whose event came last.
	announced uint64
}

type eventConfig struct {
	seed      uint64
	cqs       int
	shared    bool   // one channel for all
	epoll     bool   // sleeps in epoll_wait rather than in a read of the channel
	style     string // how it waits: see wait
	ci        bool   // arming raises an event for a completion that is there already
	task      bool   // a task wakes, not an interrupt
	lag       uint64 // from visibility to the waking, at most
	early     uint64 // the handler begins so long before the waking, at most
	flight    uint64 // at most
	runqueue  uint64 // from the waking to running, at most
	signals   bool
	helper    bool
	stamps    bool
	wqe       bool
	notices   bool // the kernel's handler of events is observed
	found     bool // attached to while it ran
	rounds    int
	preempted uint64 // inside a poll, at most
}

type eventCQ struct {
	addr, qp uint64
	num      uint32
	fd       int
	channel  int
	visible  []eventWR // not reaped
	last     uint64    // when the last one becomes visible
	armed    bool
	empty    uint64
	emptyTID uint32
	wqe      uint16
	inFlight int
}

type eventWR struct {
	id, wrID, done uint64
	wqe            uint16
}

type eventStep struct {
	at   uint64
	what func()
}

func newEventSim(c eventConfig) *eventSim {
	s := &eventSim{eventConfig: c, rng: rand.New(rand.NewPCG(c.seed, 4)), tape: newTape(), now: 1000, truth: make(map[uint64]uint64)}
	what := event.ObjectCreated
	if c.found {
		what = event.ObjectFound
	}
	for i := range c.cqs {
		q := &eventCQ{addr: tapeCQ + uint64(i)*0x100, qp: tapeQP + uint64(i)*0x100, num: tapeNum + uint32(i), channel: i}
		if c.shared {
			q.channel = 0
		}
		q.fd = tapeFD + q.channel
		s.cqs = append(s.cqs, q)
		s.queued = append(s.queued, 0)
		s.tape.add(event.Event{Time: 1, Kind: event.KindCQ, Object: &event.Object{Event: what, CQ: &event.CQ{Addr: q.addr, ChannelFD: int32(q.fd)}}})
		s.tape.add(event.Event{Time: 2, Kind: event.KindQP, Object: &event.Object{Event: what, QP: &event.QP{
			Addr: q.qp, Num: q.num, Type: 2, State: 3, SendCQ: q.addr, RecvCQ: q.addr, MaxSendWR: 64,
		}}})
	}
	s.tape.runs(3, 0, worker, 0)
	s.tape.runs(3, 1, helper, 0)
	return s
}

func (s *eventSim) upTo(n uint64) uint64 { return 1 + s.rng.Uint64N(max(n, 1)) }

func (s *eventSim) at(t uint64, what func()) {
	i := len(s.todo)
	s.todo = append(s.todo, eventStep{})
	for ; i > 0 && s.todo[i-1].at > t; i-- {
		s.todo[i] = s.todo[i-1]
	}
	s.todo[i] = eventStep{t, what}
}

// spend time, in which the device and the helper go on.
func (s *eventSim) spend(ns uint64) {
	end := s.now + ns
	for len(s.todo) > 0 && s.todo[0].at <= end {
		step := s.todo[0]
		s.todo = s.todo[1:]
		s.now = max(s.now, step.at)
		step.what()
	}
	s.now = end
}

// post one WR on a queue pair.
func (s *eventSim) post(q *eventCQ) {
	s.nextID++
	s.call++
	q.wqe++
	q.inFlight++
	begin := s.now
	w := eventWR{id: s.nextID, wrID: s.nextID % 3, wqe: q.wqe}
	flags := uint32(0)
	if s.wqe {
		flags = event.WRWQEValid
	}
	v := event.Verb{QP: q.qp, QPNum: q.num, WRID: w.wrID, Stack: w.id, Begin: begin, Call: s.call, Bytes: 4096, SendFlags: sendSignaled, WQE: w.wqe}
	s.tape.add(event.Event{Time: begin, TID: worker, Kind: event.KindWR, Flags: flags, Verb: v})
	s.spend(s.upTo(400))
	w.done = max(s.now+s.upTo(s.flight), q.last+1)
	q.last = w.done
	s.truth[w.id] = w.done
	s.at(w.done, func() {
		q.visible = append(q.visible, w)
		if q.armed {
			s.announce(q)
		}
	})
	s.spend(s.upTo(400))
	s.tape.add(event.Event{Time: s.now, TID: worker, CPU: 0, Kind: event.KindPostEnd, Verb: event.Verb{QP: q.qp, Begin: begin, Call: s.call, Count: 1, BadIndex: -1}})
}

// announce raises an event, which arrives later.
func (s *eventSim) announce(q *eventCQ) {
	q.armed = false
	s.at(s.now+s.upTo(s.lag), func() {
		s.queued[q.channel]++
		s.announced = q.addr
		if s.notices {
			s.tape.add(event.Event{Time: s.now, TID: nicDaemon, Kind: event.KindCQEvent, Verb: event.Verb{CQ: q.addr}})
		}
	})
}

func (s *eventSim) arm(q *eventCQ) {
	s.tape.add(event.Event{Time: s.now, TID: worker, Kind: event.KindArm, Verb: event.Verb{CQ: q.addr}})
	s.spend(s.upTo(100))
	q.armed = true
	if s.ci && len(q.visible) > 0 {
		s.announce(q)
	}
	s.spend(s.upTo(100))
}

// poll takes what is visible some time after its entry; cpu is that of its thread.
func (s *eventSim) poll(q *eventCQ, tid uint32, begin uint64) (finish func(), n int) {
	n = min(len(q.visible), 1+s.rng.IntN(3))
	taken := append([]eventWR(nil), q.visible[:n]...)
	q.visible = q.visible[n:]
	q.inFlight -= n
	return func() {
		if n == 0 {
			q.empty, q.emptyTID = begin, tid
		}
		for i, w := range taken {
			flags := uint32(0)
			if s.wqe {
				flags |= event.CompletionWQEValid
			}
			v := event.Verb{
				CQ: q.addr, QPNum: q.num, WRID: w.wrID, Begin: begin, LastEmpty: q.empty, LastEmptyTID: q.emptyTID,
				Index: uint16(i), Count: uint16(n), WQE: w.wqe,
			}
			if s.stamps {
				flags |= event.CompletionHWTime
				v.HWTime = eventClock.stamp(w.done)
			}
			s.tape.add(event.Event{Time: s.now, TID: tid, CPU: uint16(tid - worker), Kind: event.KindCompletion, Flags: flags, Verb: v})
		}
	}, n
}

var eventClock = trueClock{begin: 1 << 45, rate: 0.15625}

func (s *eventSim) workerPolls(q *eventCQ) int {
	begin := s.now
	s.spend(s.upTo(150))
	finish, n := s.poll(q, worker, begin)
	if s.helper && s.rng.IntN(4) == 0 {
		s.spend(s.upTo(s.preempted)) // the hypervisor took its CPU
	}
	s.spend(s.upTo(150))
	finish()
	s.spend(s.upTo(50))
	return n
}

// help starts a poll of another thread, now and then: it may be preempted
// between its entry and its look.
func (s *eventSim) help() {
	if !s.helper || s.helping || s.rng.IntN(3) > 0 {
		return
	}
	s.helping = true
	q := s.cqs[s.rng.IntN(len(s.cqs))]
	begin := s.now
	look := begin + s.upTo(150)
	if s.rng.IntN(4) == 0 {
		away, back := look, look+s.upTo(s.preempted)
		s.at(away, func() { s.tape.preempted(away, 1, helper, hog) })
		s.at(back, func() { s.tape.runs(back, 1, helper, hog) })
		look = back + s.upTo(150)
	}
	s.at(look, func() {
		finish, _ := s.poll(q, helper, begin)
		s.at(s.now+s.upTo(150), func() { finish(); s.helping = false })
	})
}

// sleep until an event is ready on one of the channels, or a signal comes.
func (s *eventSim) sleep(channel int) {
	ready := func() bool {
		if !s.epoll {
			return s.queued[channel] > 0
		}
		for _, n := range s.queued {
			if n > 0 {
				return true
			}
		}
		return false
	}
	s.spend(s.upTo(300)) // into the system call
	if ready() {
		return
	}
	call, arg := int32(amd64Read), uint64(tapeFD+channel)
	if s.epoll {
		call, arg = amd64Epoll, 50
	}
	s.tape.sleeps(s.now, 0, worker, call, arg)
	signal := uint64(never)
	if s.signals && s.rng.IntN(4) == 0 {
		signal = s.now + s.upTo(s.flight)
	}
	for !ready() && len(s.todo) > 0 && s.todo[0].at < signal {
		s.spend(max(s.todo[0].at, s.now) - s.now)
	}
	kind, begin := event.InterruptDevice, s.now-s.upTo(s.early)
	told := uint64(0)
	if ready() && s.notices {
		told = s.announced
	}
	switch {
	case !ready():
		if signal != never {
			s.spend(max(signal, s.now) - s.now)
		} else {
			s.spend(1_000_000) // nothing will come: the program's own alarm
		}
		kind, begin = event.InterruptTimer, s.now-100
		if s.rng.IntN(2) == 0 {
			kind, begin = event.InterruptNone, 0
		}
	case s.task:
		kind, begin = event.InterruptNone, 0
	}
	s.tape.wakes(s.now, nicDaemon, worker, kind, 27, begin)
	s.tape.events[len(s.tape.events)-1].Sched.CQ = told
	s.spend(s.upTo(s.runqueue))
	s.tape.runs(s.now, 0, worker, 0)
	s.spend(s.upTo(500))
}

// take an event from the channel if there is one.
func (s *eventSim) take(channel int) bool {
	if s.queued[channel] == 0 {
		return false
	}
	s.queued[channel]--
	s.spend(s.upTo(200))
	return true
}

// run the program.
func (s *eventSim) run() []event.Event {
	for range s.rounds {
		for range s.rng.IntN(3) {
			if q := s.cqs[s.rng.IntN(len(s.cqs))]; q.inFlight < 32 {
				s.post(q)
			}
			s.help()
		}
		s.wait(s.cqs[s.rng.IntN(len(s.cqs))])
		s.help()
		s.spend(s.upTo(3000))
	}
	return s.tape.events
}

// wait for completions in one of the ways that programs have.
func (s *eventSim) wait(q *eventCQ) {
	switch s.style {
	case "perftest": // event, arm, then poll until there is one
		if q.inFlight == 0 {
			return
		}
		s.sleep(q.channel)
		s.take(q.channel)
		for _, each := range s.cqs {
			if s.epoll || s.shared || each == q {
				s.take(each.channel)
				s.arm(each)
			}
		}
		for range 5 {
			s.help()
			if s.workerPolls(q) > 0 {
				break
			}
		}
	case "drain": // poll until empty, arm, poll again, and only then sleep
		found := 0
		for _, each := range s.cqs {
			for s.workerPolls(each) > 0 {
				found++
			}
			s.arm(each)
			for s.workerPolls(each) > 0 {
				found++
			}
			s.help()
		}
		if found > 0 && s.rng.IntN(2) == 0 {
			return
		}
		s.sleep(q.channel)
		for _, each := range s.cqs {
			s.take(each.channel)
		}
	default: // now this, now that
		switch s.rng.IntN(4) {
		case 0:
			s.arm(q)
		case 1:
			s.sleep(q.channel)
		case 2:
			s.take(q.channel)
		default:
			s.workerPolls(q)
		}
	}
}

func anyEventSim() *rapid.Generator[eventConfig] {
	return rapid.Custom(func(t *rapid.T) eventConfig {
		return eventConfig{
			seed:      rapid.Uint64().Draw(t, "seed"),
			cqs:       rapid.IntRange(1, 3).Draw(t, "cqs"),
			shared:    rapid.Bool().Draw(t, "shared"),
			epoll:     rapid.SampledFrom([]bool{false, false, true}).Draw(t, "epoll"),
			style:     rapid.SampledFrom([]string{"perftest", "drain", "drain", "any"}).Draw(t, "style"),
			ci:        rapid.Bool().Draw(t, "ci"),
			task:      rapid.SampledFrom([]bool{false, false, true}).Draw(t, "task"),
			lag:       rapid.SampledFrom([]uint64{1, 1500, 30_000}).Draw(t, "lag"),
			early:     rapid.SampledFrom([]uint64{1, 1000, 20_000}).Draw(t, "early"),
			flight:    rapid.SampledFrom([]uint64{500, 5000, 100_000}).Draw(t, "flight"),
			runqueue:  rapid.SampledFrom([]uint64{2000, 50_000}).Draw(t, "runqueue"),
			signals:   rapid.Bool().Draw(t, "signals"),
			helper:    rapid.Bool().Draw(t, "helper"),
			stamps:    rapid.Bool().Draw(t, "stamps"),
			wqe:       rapid.Bool().Draw(t, "wqe"),
			notices:   rapid.Bool().Draw(t, "notices"),
			found:     rapid.Bool().Draw(t, "found"),
			preempted: rapid.SampledFrom([]uint64{1000, 100_000}).Draw(t, "preempted"),
			rounds:    300,
		}
	})
}

// checkDone fails where a completion became visible outside what is said of it.
func checkDone(t reporter, truth map[uint64]uint64, rec *recorder) {
	for i := range rec.wrs {
		m := &rec.wrs[i]
		checkCut(t, m)
		if done := truth[m.stack]; done < m.doneLow || done > m.doneHigh {
			t.Fatalf("WR %d posted at %d was done %d later, said to be in [%d, %d] of %d by %s",
				m.stack, m.postBegin, done-m.postBegin, m.doneLow-m.postBegin, m.doneHigh-m.postBegin, m.reap-m.postBegin, m.doneSource)
		}
	}
}

// TestDoneIsNeverFalse: whatever the program waits for and however events lag,
// the truth about done lies in the range that is said to be certain.
func TestDoneIsNeverFalse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newEventSim(anyEventSim().Draw(t, "sim"))
		e, rec := playEvents(t, s.run(), Config{})
		checkBooks(t, e)
		checkDone(t, s.truth, rec)
	})
}
