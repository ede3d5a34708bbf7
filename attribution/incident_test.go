package attribution

import (
	"fmt"
	"slices"
	"testing"

	"github.com/rdmatrace/rdmatrace/event"
)

// incidentRun feeds WRs that are given by their segments.
type incidentRun struct {
	agg *aggregates
	qps map[uint32]*queuePair
}

func newIncidentRun() *incidentRun {
	return &incidentRun{newAggregates(Config{}, nil), map[uint32]*queuePair{}}
}

func task(name string, pid uint32) culprit {
	c := culprit{kind: culpritTask, id: pid, pid: pid}
	copy(c.name[:], name)
	return c
}

// wr posts at begin; each part follows the last.
func (r *incidentRun) wr(qp uint32, begin uint64, demand Demand, parts ...segment) {
	if r.qps[qp] == nil {
		r.qps[qp] = testQP(qp)
	}
	m := measured{qp: r.qps[qp], bytes: 64, chained: 1, postTID: 7, reapTID: 7, demand: demand, doneSource: DoneCQE,
		postBegin: begin, postEnd: begin + parts[0].end}
	at := begin
	for _, p := range parts {
		p.begin, p.end = at, at+p.end
		at = p.end
		m.segments = append(m.segments, p)
	}
	m.done, m.reap = m.postEnd, at
	m.doneLow, m.doneHigh = m.done, m.done
	r.agg.add(&m)
}

// fresh is a copy of m that may be given away.
func fresh(m *measured) *measured {
	c := *m
	c.segments = slices.Clone(m.segments)
	return &c
}

// kept is a copy of a culprit as segments have it.
func kept(who culprit) *culprit {
	if who.kind == nobody {
		return nil
	}
	return &who
}

func seg(cause Cause, ns uint64, who culprit, tid uint32) segment {
	return segment{end: ns, cause: cause, who: kept(who), tid: tid, cpu: -1}
}

func (r *incidentRun) incidents() []Incident {
	return r.agg.finish(&event.Context{}, nil).Incidents
}

// Sixteen WRs that one preemption delays are one incident, with the WR that
// was delayed longest and its timeline.
func TestIncidentMergesOnePreemption(t *testing.T) {
	r := newIncidentRun()
	hog := task("stress-ng", 312)
	const preempted, resumed = 1_000_000, 5_000_000
	for i := range uint64(16) {
		// Posted 20 us apart, done on the way: those done before the
		// preemption are delayed by all of it, the later ones by the rest.
		done := 900_000 + i*20_000
		parts := []segment{seg(Submit, 200, culprit{}, 7), seg(Base, 30_000, culprit{}, 0)}
		begin := done - 30_200
		if done < preempted {
			parts = append(parts, seg(LatePoll, preempted-done, culprit{}, 7))
			done = preempted
		}
		parts = append(parts, seg(Preempted, resumed-done, hog, 7), seg(Reap, 100*(i+1), culprit{}, 7))
		r.wr(1+uint32(i%3), begin, Waited, parts...)
	}
	got := r.incidents()
	if len(got) == 0 {
		t.Fatal("no incident")
	}
	in := got[0]
	if in.Cause != Preempted || in.Who != "stress-ng (pid 312)" || in.Begin != preempted || in.End != resumed || in.WRs != 16 {
		t.Errorf("got %s by %s [%d,%d) of %d WRs", in.Cause, in.Who, in.Begin, in.End, in.WRs)
	}
	want := int64(0)
	for i := range uint64(16) {
		want += int64(resumed - max(900_000+i*20_000, preempted))
	}
	if in.DelayNS != want {
		t.Errorf("delay %d, want %d", in.DelayNS, want)
	}
	if len(in.Timeline) != 5 || in.Timeline[0].Begin != in.Worst.PostBegin || in.Timeline[4].End != in.Worst.Reap {
		t.Errorf("timeline %+v of %+v", in.Timeline, in.Worst)
	}
	for _, other := range got[1:] {
		if other.Cause == Preempted {
			t.Errorf("a second incident of the same preemption: %+v", other)
		}
	}
}

func TestIncidentsAreToldApart(t *testing.T) {
	hog, other := task("hog", 1), task("cron", 2)
	for _, c := range []struct {
		name string
		feed func(r *incidentRun)
		want []string
	}{
		{"two preemptions by the same task", func(r *incidentRun) {
			r.wr(1, 0, Waited, seg(Submit, 100, culprit{}, 7), seg(Preempted, 50_000, hog, 7))
			r.wr(1, 100_000, Waited, seg(Submit, 100, culprit{}, 7), seg(Preempted, 40_000, hog, 7))
		}, []string{"preempted hog (pid 1) 1", "preempted hog (pid 1) 1"}},
		{"two culprits at the same time", func(r *incidentRun) {
			r.wr(1, 0, Waited, seg(Submit, 100, culprit{}, 7), seg(Preempted, 50_000, hog, 7))
			r.wr(1, 0, Waited, seg(Submit, 100, culprit{}, 8), seg(Preempted, 40_000, other, 8))
		}, []string{"preempted hog (pid 1) 1", "preempted cron (pid 2) 1"}},
		{"the same culprit on two threads", func(r *incidentRun) {
			r.wr(1, 0, Waited, seg(Submit, 100, culprit{}, 7), seg(Preempted, 50_000, hog, 7))
			r.wr(1, 0, Waited, seg(Submit, 100, culprit{}, 8), seg(Preempted, 40_000, hog, 8))
		}, []string{"preempted hog (pid 1) 1", "preempted hog (pid 1) 1"}},
		{"wire stalls of two queue pairs", func(r *incidentRun) {
			r.wr(1, 0, Waited, seg(Submit, 100, culprit{}, 7), seg(Excess, 50_000, culprit{}, 0))
			r.wr(2, 0, Waited, seg(Submit, 100, culprit{}, 7), seg(Excess, 40_000, culprit{}, 0))
		}, []string{"excess  1", "excess  1"}},
		{"reaped in the other order", func(r *incidentRun) {
			r.wr(1, 200_000, Waited, seg(Submit, 100, culprit{}, 7), seg(Preempted, 40_000, hog, 7))
			r.wr(2, 0, Waited, seg(Submit, 100, culprit{}, 7), seg(Preempted, 50_000, hog, 7), seg(LatePoll, 10, culprit{}, 7))
			r.wr(3, 10_000, Waited, seg(Submit, 100, culprit{}, 7), seg(Preempted, 40_000, hog, 7))
		}, []string{"preempted hog (pid 1) 2", "preempted hog (pid 1) 1"}},
		{"a poller that is always late is no single endless incident", func(r *incidentRun) {
			for i := range uint64(4) {
				r.wr(1, i*40_000, Waited, seg(Submit, 100, culprit{}, 7), seg(LatePoll, 50_000-i, culprit{}, 7))
			}
		}, []string{"late-poll  1", "late-poll  1", "late-poll  1", "late-poll  1"}},
		{"lazily reaped sends that nobody waits for", func(r *incidentRun) {
			r.wr(1, 0, Unproven, seg(Submit, 100, culprit{}, 7), seg(LatePoll, 5_000_000, culprit{}, 7))
		}, nil},
		{"inside the posting call demand does not matter", func(r *incidentRun) {
			r.wr(1, 0, Unproven, seg(Preempted, 60_000, hog, 7), seg(Reap, 100, culprit{}, 7))
		}, []string{"preempted hog (pid 1) 1"}},
		{"the job's own depth, and the floor", func(r *incidentRun) {
			r.wr(1, 0, Waited, seg(Submit, 100, culprit{}, 7), seg(SendQueue, 5_000_000, culprit{}, 0), seg(Base, 900_000, culprit{}, 0), seg(Transmit, 90_000, culprit{}, 0))
		}, nil},
		{"less than a tenth of the median", func(r *incidentRun) {
			r.wr(1, 0, Waited, seg(Submit, 100, culprit{}, 7), seg(Base, 900_000, culprit{}, 0), seg(IRQOnTop, 5_000, culprit{kind: culpritTimer}, 7))
		}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newIncidentRun()
			c.feed(r)
			var got []string
			for _, in := range r.incidents() {
				got = append(got, fmt.Sprintf("%s %s %d", in.Cause, in.Who, in.WRs))
			}
			if fmt.Sprint(got) != fmt.Sprint(c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

// The worst are kept exactly, however many others there are.
func TestWorstIncidentsAreExact(t *testing.T) {
	r := newIncidentRun()
	const n = 50_000
	for i := range uint64(n) {
		// A permutation of n lengths from 2 us on.
		ns := 2_000 + i*7919%n*10
		who := task("hog", uint32(1+i%3000)) // more culprits than can be open
		r.wr(1+uint32(i%8), i*1_000_000, Waited, seg(Submit, 100, culprit{}, 7), seg(Preempted, ns, who, 7))
	}
	got := r.incidents()
	if len(got) != incidentsKept {
		t.Fatalf("%d incidents", len(got))
	}
	for i, in := range got {
		if want := uint64(2_000 + (n-1-i)*10); in.End-in.Begin != want || in.WRs != 1 || in.DelayNS != int64(want) {
			t.Errorf("place %d: %d ns of %d WRs, want %d", i, in.End-in.Begin, in.WRs, want)
		}
		if len(in.Timeline) != 2 || in.Timeline[1].End-in.Timeline[1].Begin != in.End-in.Begin {
			t.Errorf("place %d: timeline %+v", i, in.Timeline)
		}
	}
}

// WRs that waited together through one long delay and a thousand short ones
// are delayed by the same long one: they come one after the other, each with
// all of them.
func TestLongWaitsAreMerged(t *testing.T) {
	r := newIncidentRun()
	timer := culprit{kind: culpritTimer}
	for i := range uint64(20) {
		parts := []segment{seg(Submit, 100, culprit{}, 7), seg(Base, 50_000-i*1000, culprit{}, 0), seg(LatePoll, 878_000_000, culprit{}, 7)}
		for j := range uint64(1000) {
			parts = append(parts, seg(IRQOnTop, 2_000, timer, 7), seg(LatePoll, 18_000+j%7, culprit{}, 7))
		}
		r.wr(1, i*1000, Waited, parts...)
	}
	got := r.incidents()
	if in := got[0]; in.Cause != LatePoll || in.WRs != 20 || in.End-in.Begin != 878_000_000 || in.DelayNS != 20*878_000_000 {
		t.Errorf("%s of %d ns delays %d WRs", in.Cause, in.End-in.Begin, in.WRs)
	}
	if len(got) > 1 && got[1].End-got[1].Begin > 100_000_000 {
		t.Errorf("a second one of %d ns", got[1].End-got[1].Begin)
	}
}

// A WR that was disturbed a thousand times keeps the longest segments.
func TestLongTimelineKeepsTheLongest(t *testing.T) {
	r := newIncidentRun()
	parts := []segment{seg(Submit, 100, culprit{}, 7)}
	for i := range uint64(1000) {
		parts = append(parts, seg(LatePoll, 10+i%2, culprit{}, 7), seg(IRQOnTop, 2_000+i, culprit{kind: culpritTimer}, 7))
	}
	r.wr(1, 0, Waited, append(parts, seg(Preempted, 9_000_000, task("hog", 3), 7))...)
	in := r.incidents()[0]
	if len(in.Timeline) != timelineMost || in.Omitted != int64(len(parts)+1-timelineMost) {
		t.Fatalf("%d segments, %d omitted", len(in.Timeline), in.Omitted)
	}
	for i, s := range in.Timeline {
		if s.End-s.Begin < 2_000+1000-timelineMost+1 {
			t.Errorf("segment %d of %d ns was kept", i, s.End-s.Begin)
		}
	}
}

// A wait that many made is listed once, with the worst of them.
func TestOneWaitIsOneIncident(t *testing.T) {
	r := newIncidentRun()
	hog, other := task("hog", 1), task("cron", 2)
	thread := hog
	thread.id = 77 // another thread of the same process
	r.wr(1, 0, Waited, seg(Submit, 100, culprit{}, 7), seg(LatePoll, 20_000, culprit{}, 7), seg(Preempted, 50_000, hog, 7), seg(Preempted, 30_000, thread, 7),
		seg(LatePoll, 10_000, culprit{}, 7), seg(Preempted, 40_000, other, 7), seg(Preempted, 20_000, hog, 7), seg(LatePoll, 15_000, culprit{}, 7))
	r.wr(1, 500_000, Waited, seg(Submit, 100, culprit{}, 7), seg(Preempted, 60_000, other, 7))
	got := r.incidents()
	if len(got) != 2 {
		t.Fatalf("%d incidents: %+v", len(got), got)
	}
	in := got[0]
	if in.Cause != Preempted || in.Who != "hog (pid 1)" || in.End-in.Begin != 80_000 || in.DelayNS != 80_000 || in.WRs != 1 {
		t.Errorf("the worst: %s by %s, %d ns, %d of %d WRs", in.Cause, in.Who, in.End-in.Begin, in.DelayNS, in.WRs)
	}
	want := []Another{{Cause: LatePoll, Parts: 3, NS: 45_000, DelayNS: 45_000}, {Cause: Preempted, Who: "cron (pid 2)", Parts: 1, NS: 40_000, DelayNS: 40_000},
		{Cause: Preempted, Who: "hog (pid 1)", Parts: 1, NS: 20_000, DelayNS: 20_000}}
	if !slices.Equal(in.Also, want) {
		t.Errorf("with it %+v, want %+v", in.Also, want)
	}
	if len(got[1].Also) != 0 || got[1].Who != "cron (pid 2)" {
		t.Errorf("another wait: %+v", got[1])
	}
}

// A pause that is cut in pieces is one incident, of the length that it had.
func TestPiecesAreOneIncident(t *testing.T) {
	timer, kernel, hog := culprit{kind: culpritTimer}, task("ksoftirqd", 15), task("hog", 1)
	for _, c := range []struct {
		cause, cut Cause
		who, by    culprit
	}{{LatePoll, IRQOnTop, culprit{}, timer}, {Preempted, Preempted, hog, kernel}} {
		r := newIncidentRun()
		for i := range uint64(3) { // posted one after the other, and delayed by the same
			parts := []segment{seg(Submit, 100, culprit{}, 7), seg(Base, 3000-i*1000, culprit{}, 0)}
			for range 4 {
				parts = append(parts, seg(c.cause, 4_000_000, c.who, 7), seg(c.cut, 9_000, c.by, 7))
			}
			r.wr(1, i*1000, Waited, parts...)
		}
		in := r.incidents()[0]
		if in.Cause != c.cause || in.End-in.Begin != 4*4_000_000+3*9_000 || in.WRs != 3 || in.DelayNS != 3*4*4_000_000 {
			t.Errorf("%s: %s of %d ns, %d WRs delayed by %d", c.cause, in.Cause, in.End-in.Begin, in.WRs, in.DelayNS)
		}
	}
}
