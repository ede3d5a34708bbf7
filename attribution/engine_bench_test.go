package attribution

import (
	"testing"

	"github.com/rdmatrace/rdmatrace/event"
)

// stream is a realistic flow of events without end: per round, on each of
// several queue pairs a list of an unsignalled and a signalled WR, their
// completions, and now and then a sleep on the CQ, a preemption, an interrupt, a sample.
// CPUs' records come one CPU after the other, as rings are drained. It is made
// once; each time it is played again it is shifted in time.
type stream struct {
	round  uint64
	calls  uint32
	events []event.Event
	next   int
}

const (
	streamQPs    = 16
	streamRound  = 40_000 // ns
	streamBatch  = 50     // rounds that are drained together
	streamRounds = 100
)

func newStream() *stream {
	s := new(stream)
	for s.round < streamRounds {
		first := s.round
		for cpu := range 2 {
			s.round = first
			for range streamBatch {
				s.round++
				if cpu == 0 {
					s.verbs()
				} else {
					s.host()
				}
			}
		}
	}
	return s
}

// event gives the next one.
func (s *stream) event() *event.Event {
	ev := &s.events[s.next]
	if s.next++; s.next == len(s.events) {
		s.next = 0
	}
	return ev
}

// shift an event that was played to the next time round.
func (s *stream) shift(ev *event.Event) {
	const period = streamRounds * streamRound
	ev.Time += period
	ev.Verb.Begin += period
	ev.Verb.LastEmpty += period
	ev.Verb.HWTime += period
	ev.Verb.Call += s.calls
	ev.Verb.WQE += 2 * streamRounds & 0xffff
	ev.IRQ.Begin += period
	ev.Sched.InterruptBegin += period
}

func (s *stream) setUp(e *Engine) {
	for i := range uint64(streamQPs) {
		qp := &event.QP{Addr: tapeQP + i*0x100, Num: tapeNum + uint32(i), Type: 2, State: 3, SendCQ: tapeCQ, RecvCQ: tapeCQ, MaxSendWR: 128}
		e.Add(&event.Event{Time: 1, PID: tapePID, Kind: event.KindQP, Object: &event.Object{Event: event.ObjectCreated, QP: qp}})
	}
}

func (s *stream) add(at uint64, kind event.Kind, flags uint32, v event.Verb) {
	s.events = append(s.events, event.Event{
		Time: s.round*streamRound + at, PID: tapePID, TID: worker, Kind: kind, Flags: flags, Verb: v,
	})
}

func (s *stream) verbs() {
	begin := s.round * streamRound
	for i := range uint64(streamQPs) {
		at := 100 + i*800
		s.calls++
		v := event.Verb{
			QP: tapeQP + i*0x100, QPNum: tapeNum + uint32(i), Call: s.calls, Begin: begin + at, Bytes: 65536, WRID: 7,
			Count: 2, BadIndex: -1, WQE: uint16(2 * s.round), Stack: 1 + i%4, Traps: 2,
		}
		s.add(at, event.KindWR, event.WRWQEValid, v)
		v.Index, v.WQE, v.SendFlags, v.Bytes, v.Opcode = 1, v.WQE+1, sendSignaled, 0, 1
		s.add(at, event.KindWR, event.WRWQEValid, v)
		s.add(at+500, event.KindPostEnd, 0, v)
	}
	for i := range uint64(streamQPs) {
		at := 20_000 + i*700
		s.add(at+600, event.KindCompletion, event.CompletionWQEValid|event.CompletionHWTime, event.Verb{
			CQ: tapeCQ, QPNum: tapeNum + uint32(i), WRID: 7, Begin: begin + at + 400, LastEmpty: begin + at + 100,
			LastEmptyTID: worker, HWTime: begin + at + 300, Count: 1, WQE: uint16(2*s.round + 1), Traps: 1,
		})
	}
}

// host is what another CPU sees of the worker: it comes and goes.
func (s *stream) host() {
	base := s.round * streamRound
	sw := func(at uint64, prev, next uint32, state uint32, flags uint32) {
		s.events = append(s.events, event.Event{
			Time: base + at, PID: groupOf(prev), TID: prev, CPU: 1, Kind: event.KindSwitch, Flags: flags,
			Sched: event.Sched{
				PrevTID: prev, PrevPID: groupOf(prev), NextTID: next, NextPID: groupOf(next), PrevState: state,
				Syscall: -1, PrevComm: event.Comm{'a'}, NextComm: event.Comm{'b'}, PrevStack: 1 + s.round%5,
			},
		})
	}
	switch s.round % 8 {
	case 0:
		sw(15_000, worker, hog, 0, event.SwitchPrevTarget|event.SwitchPreempt)
		sw(17_000, hog, worker, 0, event.SwitchNextTarget)
	case 4:
		sw(15_000, worker, 0, 1, event.SwitchPrevTarget)
		s.events = append(s.events, event.Event{Time: base + 16_000, PID: 0, TID: 0, CPU: 1, Kind: event.KindWaking, Sched: event.Sched{
			NextTID: worker, NextPID: tapePID, Interrupt: event.InterruptDevice, Vec: 27, InterruptBegin: base + 15_900,
		}})
		sw(17_000, 0, worker, 0, event.SwitchNextTarget)
	case 5:
		s.events = append(s.events, event.Event{Time: base + 20_350, PID: tapePID, TID: worker, CPU: 1, Kind: event.KindSample, Sample: event.Sample{
			Stack: 1 + s.round%5, Period: 5_000_000,
		}})
	default:
		s.events = append(s.events, event.Event{Time: base + 25_000, PID: tapePID, TID: worker, CPU: 1, Kind: event.KindInterrupt, IRQ: event.Interrupt{
			Begin: base + 24_000, Kind: event.InterruptTimer, Vec: 236,
		}})
	}
}

// nothing is a sink that forgets.
type nothing struct{ wrs int64 }

func (n *nothing) add(m *measured)                                         { n.wrs++ }
func (n *nothing) posted(*queuePair, uint64, uint32, uint8, uint64, int32) {}
func (n *nothing) lost(*queuePair, uint64)                                 {}
func (n *nothing) gone(*queuePair, uint64)                                 {}
func (n *nothing) paused(uint64)                                           {}
func (n *nothing) retired(*queuePair, uint64, int32, uint64, int32)        {}

// BenchmarkEngine is the engine without the aggregates: an event a time.
func BenchmarkEngine(b *testing.B) { benchmarkEngine(b, newEngine(Config{}, new(nothing))) }

// BenchmarkEngineAndAggregates is all that analysis does per event.
func BenchmarkEngineAndAggregates(b *testing.B) { benchmarkEngine(b, New(Config{})) }

func benchmarkEngine(b *testing.B, e *Engine) {
	s := newStream()
	s.setUp(e)
	play := func() {
		ev := s.event()
		e.Add(ev)
		s.shift(ev)
	}
	for range 1_000_000 { // to steady state
		play()
	}
	b.ReportAllocs()
	for b.Loop() {
		play()
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds()/1e6, "Mevents/s")
}

// TestSteadyState: after a while no event costs an allocation, and all of the
// stream is measured.
func TestSteadyState(t *testing.T) {
	s, out := newStream(), new(nothing)
	e := newEngine(Config{}, out)
	s.setUp(e)
	play := func() {
		ev := s.event()
		e.Add(ev)
		s.shift(ev)
	}
	for range 400_000 {
		play()
	}
	if n := testing.AllocsPerRun(100_000, play); n != 0 {
		t.Errorf("%v allocations an event", n)
	}
	e.close()
	if b := e.ledger.books[0]; b.Excluded+b.Lost+b.Flushed > 0 || out.wrs != (b.Posted-b.Outstanding)/2 {
		t.Errorf("%d measured, books %+v", out.wrs, b)
	}
}
