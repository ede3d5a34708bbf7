package export

import (
	"slices"
	"syscall"
	"testing"

	"github.com/rdmatrace/rdmatrace/attribution"
	"github.com/rdmatrace/rdmatrace/event"
)

// replay makes a run without end of a recorded one: what leads to its steady state,
// once, and then a stretch of that again and again, each time later. Times, calls
// and WQE indices move on by what one stretch has of them, so all of it together is
// a run as it could have been.
type replay struct {
	lead   []event.Event // played once
	loop   []event.Event // in the order of arrival, as last played
	steps  []step        // by which the events of the loop move on
	next   int
	period uint64 // ns, and units of the recorded devices' clocks, of 1 GHz
}

type step struct {
	calls uint32
	wqes  uint16
}

func newReplay(r *recorded) *replay {
	s := survey(r.events)
	p := &replay{period: s.end - s.begin}
	for i := range r.events {
		switch e := &r.events[i]; {
		case e.Time >= s.end || s.partial[i]:
		case e.Time < s.begin:
			p.lead = append(p.lead, *e)
		default:
			p.loop = append(p.loop, *e)
		}
	}
	p.findSteps()
	return p
}

// findSteps of the calls of each thread and the WQEs of each queue.
func (p *replay) findSteps() {
	first, last, wqes := map[uint32]uint32{}, map[uint32]uint32{}, map[queueName]uint16{}
	for i := range p.loop {
		e := &p.loop[i]
		if e.Kind != event.KindWR {
			continue
		}
		wqes[queueOf(e)]++ // of one basic block each
		if n := e.Verb.Call; last[e.TID] == 0 {
			first[e.TID], last[e.TID] = n, n
		} else {
			first[e.TID], last[e.TID] = min(first[e.TID], n), max(last[e.TID], n)
		}
	}
	for i := range p.loop {
		e := &p.loop[i]
		p.steps = append(p.steps, step{last[e.TID] - first[e.TID] + 1, wqes[queueOf(e)]})
	}
}

// event gives the next one of the loop.
func (p *replay) event() *event.Event {
	i := p.next
	if p.next++; p.next == len(p.loop) {
		p.next = 0
	}
	e := &p.loop[i]
	e.Time += p.period
	switch e.Kind {
	case event.KindSwitch:
	case event.KindWaking:
		p.delay(&e.Sched.InterruptBegin)
		p.delay(&e.Sched.ChainBegin)
		p.delay(&e.Sched.IdleSince)
	case event.KindInterrupt:
		p.delay(&e.IRQ.Begin)
	default:
		e.Verb.Call += p.steps[i].calls
		e.Verb.WQE += p.steps[i].wqes
		p.delay(&e.Verb.Begin)
		p.delay(&e.Verb.End)
		p.delay(&e.Verb.LastEmpty)
		p.delay(&e.Verb.HWTime)
	}
	return e
}

// delay a time that is known.
func (p *replay) delay(t *uint64) {
	if *t != 0 {
		*t += p.period
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
		engine.Add(p.event())
	}
	return engine.Finish(r.last)
}

// What is replayed is a run in which nothing goes missing: each round all sends are
// posted and completed that were so in the recorded one, and nothing else happens to
// them. Receives of a run that began before we looked stay without proof.
func TestReplay(t *testing.T) {
	for _, r := range replayable(t) {
		t.Run(r.name, func(t *testing.T) {
			p, sends := newReplay(&r), int64(0)
			for i := range p.loop {
				if e := &p.loop[i]; e.Kind == event.KindWR && !queueOf(e).receive {
					sends++
				}
			}
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

func benchmarkReplay(b *testing.B, r *recorded, add func(*event.Event)) {
	p := newReplay(r)
	for i := range p.lead {
		add(&p.lead[i])
	}
	const steady = 500_000 // events
	for range max(steady, 3*len(p.loop)) {
		add(p.event())
	}
	b.ReportAllocs()
	b.ResetTimer()
	begin := userTime(b)
	for b.Loop() {
		add(p.event())
	}
	used := float64(userTime(b) - begin)
	b.ReportMetric(used/float64(b.N), "cpu-ns/event")
	b.ReportMetric(float64(b.N)/used*1e3, "Mevents/cpu-s")
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
