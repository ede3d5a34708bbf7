package export

import (
	"math"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/rdmatrace/rdmatrace/attribution"
	"github.com/rdmatrace/rdmatrace/event"
)

// replay makes a run without end of a recorded one: what leads to its steady state,
// once, and then a stretch of that again and again, each time later. Times, calls
// and WQE indices move on by what one stretch has of them, so all of it together is
// a run as it could have been.
type replay struct {
	lead   []event.Event // played once
	loop   []replayed    // in the order of arrival
	verbs  []event.Verb
	scheds []event.Sched
	irqs   []event.Interrupt
	sends  int64 // posted in the loop

	period uint64 // ns, and units of the recorded devices' clocks, of 1 GHz
	next   int    // in the loop
	round  uint64
	event  event.Event // the one played last
}

// replayed is an event of the loop without its part, which is the one numbered part
// of its sort: like that, events are read in the order of memory, as from a file.
type replayed struct {
	time     uint64
	pid, tid uint32
	flags    uint32
	part     uint32
	calls    uint32 // by so many its Call moves on in a round
	wqes     uint16 // and its WQE
	cpu      uint16
	kind     event.Kind
}

func newReplay(r *recorded) *replay {
	s := survey(r.events)
	p := &replay{period: s.end - s.begin}
	calls, wqes := s.uses(r.events)
	for i := range r.events {
		switch e := &r.events[i]; {
		case e.Time >= s.end || s.partial[i]:
		case e.Time < s.begin:
			p.lead = append(p.lead, *e)
		default:
			p.add(e, calls[e.TID], wqes[queueOf(e)])
		}
	}
	return p
}

// add an event to the loop.
func (p *replay) add(e *event.Event, calls uint32, wqes uint16) {
	part := 0
	switch e.Kind {
	case event.KindSwitch, event.KindWaking:
		part = len(p.scheds)
		p.scheds = append(p.scheds, e.Sched)
	case event.KindInterrupt:
		part = len(p.irqs)
		p.irqs = append(p.irqs, e.IRQ)
	default:
		part = len(p.verbs)
		p.verbs = append(p.verbs, e.Verb)
	}
	if e.Kind == event.KindWR && !queueOf(e).receive {
		p.sends++
	}
	p.loop = append(p.loop, replayed{e.Time, e.PID, e.TID, e.Flags, uint32(part), calls, wqes, e.CPU, e.Kind})
}

// play gives the next event of the loop. It is valid until the next call.
func (p *replay) play() *event.Event {
	if p.next == len(p.loop) {
		p.next = 0
		p.round++
	}
	r, e := &p.loop[p.next], &p.event
	p.next++
	later := p.round * p.period
	e.Time, e.PID, e.TID, e.Flags, e.CPU, e.Kind = r.time+later, r.pid, r.tid, r.flags, r.cpu, r.kind
	switch r.kind {
	case event.KindSwitch, event.KindWaking:
		e.Sched = p.scheds[r.part]
		delay(&e.Sched.InterruptBegin, later)
		delay(&e.Sched.ChainBegin, later)
		delay(&e.Sched.IdleSince, later)
	case event.KindInterrupt:
		e.IRQ = p.irqs[r.part]
		delay(&e.IRQ.Begin, later)
	default:
		v := &e.Verb
		*v = p.verbs[r.part]
		v.Call += uint32(p.round) * r.calls
		v.WQE += uint16(p.round) * r.wqes
		delay(&v.Begin, later)
		delay(&v.End, later)
		delay(&v.LastEmpty, later)
		delay(&v.HWTime, later)
	}
	return e
}

// delay a time that is known.
func delay(t *uint64, by uint64) {
	if *t != 0 {
		*t += by
	}
}

// played gives what is reported of so many rounds.
func (r *recorded) played(rounds int) *attribution.Report {
	p := newReplay(r)
	engine := r.engine()
	for i := range p.lead {
		engine.Add(&p.lead[i])
	}
	for range rounds * len(p.loop) {
		engine.Add(p.play())
	}
	return engine.Finish(r.last)
}

// What is replayed is a run in which nothing goes missing: each round all sends are
// posted and completed that were so in the recorded one, and nothing else happens to
// them. Receives of a run that began before we looked stay without proof.
func TestReplay(t *testing.T) {
	for _, r := range replayable(t) {
		t.Run(r.name, func(t *testing.T) {
			p := newReplay(&r)
			sends := p.sends
			three, four := r.played(3), r.played(4)
			measured := four.Latency.Count - three.Latency.Count
			t.Logf("%d events, then %d in %d us again and again, with %d sends of which %d are measured",
				len(p.lead), len(p.loop), p.period/1000, sends, measured)
			if sends == 0 || measured < sends/3 {
				t.Errorf("%d of %d sends of a round are measured", measured, sends)
			}
			want, got := three.Kinds["send"], four.Kinds["send"]
			want.Posted, want.Completed = want.Posted+sends, want.Completed+sends
			want.Bytes, want.Unsignalled = got.Bytes, got.Unsignalled
			if got != want {
				t.Errorf("after three rounds and what one has: %+v\nafter four: %+v", want, got)
			}
			if b := four.Kinds["receive"]; b.Lost+b.Flushed > 0 {
				t.Errorf("receives: %+v", b)
			}
		})
	}
}

// replayable are the recorded runs of which most can be repeated: a run that uses up
// what receives it posted cannot.
func replayable(t testing.TB) []recorded {
	all := slices.DeleteFunc(readRecorded(t), func(r recorded) bool {
		return len(newReplay(&r).loop) < len(r.events)/2
	})
	if len(all) < 4 {
		t.Fatalf("%d recorded runs can be repeated", len(all))
	}
	return all
}

// BenchmarkReplay is analysis in the steady state of real runs, and the making of the
// events.
func BenchmarkReplay(b *testing.B) {
	for _, r := range replayable(b) {
		b.Run(r.name, func(b *testing.B) { benchmarkReplay(b, &r, r.engine().Add) })
	}
}

// BenchmarkReplayAlone is the making of the events alone.
func BenchmarkReplayAlone(b *testing.B) {
	for _, r := range replayable(b) {
		b.Run(r.name, func(b *testing.B) { benchmarkReplay(b, &r, func(*event.Event) {}) })
	}
}

// benchmarkReplay plays a round a time. Rounds are alike, so the quickest of them is
// what the work takes, and what is more is what others did on this machine.
func benchmarkReplay(b *testing.B, r *recorded, add func(*event.Event)) {
	p := newReplay(r)
	for i := range p.lead {
		add(&p.lead[i])
	}
	round := func() {
		for range p.loop {
			add(p.play())
		}
	}
	const steady = 500_000 // events
	for range max(3, steady/len(p.loop)) {
		round()
	}
	b.ReportAllocs()
	best, began := time.Duration(math.MaxInt64), userTime(b)
	for b.Loop() {
		start := time.Now()
		round()
		best = min(best, time.Since(start))
	}
	events := float64(len(p.loop))
	b.ReportMetric(events*float64(b.N)/b.Elapsed().Seconds()/1e6, "Mevents/s")
	b.ReportMetric(events/best.Seconds()/1e6, "best-Mevents/s")
	b.ReportMetric(float64(userTime(b)-began)/events/float64(b.N), "cpu-ns/event")
}

// userTime is that of the process, ns: unlike wall time it does not count what other
// programs, or a hypervisor, take of the CPU.
func userTime(b *testing.B) int64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return u.Utime.Nano()
}
