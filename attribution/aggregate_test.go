package attribution

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rdmatrace/rdmatrace/event"
	"pgregory.net/rapid"
)

// anyWR is a WR cut in any legal way: its segments tile [post_begin, reap], or
// [done, reap] of a receive, and the wire lies between post_end and done.
func anyWR(t *rapid.T, qps []*queuePair, at uint64) measured {
	ns := func(name string) uint64 {
		return rapid.Uint64Range(0, 1<<rapid.IntRange(0, 22).Draw(t, name)).Draw(t, name)
	}
	m := measured{
		qp:         qps[rapid.IntRange(0, len(qps)-1).Draw(t, "qp")],
		receive:    rapid.Bool().Draw(t, "receive"),
		opcode:     uint8(rapid.IntRange(0, 6).Draw(t, "opcode")),
		bytes:      rapid.SampledFrom([]uint64{0, 8, 64, 4096, 1 << 20}).Draw(t, "bytes"),
		chained:    int32(rapid.IntRange(1, 3).Draw(t, "chained")),
		postTID:    uint32(rapid.IntRange(1, 4).Draw(t, "tid")),
		reapTID:    uint32(rapid.IntRange(1, 4).Draw(t, "tid")),
		stack:      uint64(rapid.IntRange(0, 3).Draw(t, "stack")),
		demand:     Demand(rapid.IntRange(0, 2).Draw(t, "demand")),
		doneSource: DoneSource(rapid.IntRange(0, int(numDoneSources)-1).Draw(t, "source")),
		uncertain:  rapid.Bool().Draw(t, "uncertain"),
		postBegin:  at,
	}
	m.postEnd = at + ns("post")
	m.doneLow = m.postEnd + ns("wire")
	m.doneHigh = m.doneLow + ns("doubt")
	m.done = m.doneLow + (m.doneHigh-m.doneLow)/2
	end := m.doneHigh
	if m.receive {
		m.opcode = wcReceive
		m.doneLow, m.doneHigh = m.done, m.done
		end = m.done
	} else {
		m.cut(m.postBegin, m.postEnd, Submit)
		m.cut(m.postEnd, m.doneLow, WireUnsplit)
		m.cut(m.doneLow, m.doneHigh, CauseUndecided)
	}
	for range rapid.IntRange(0, 5).Draw(t, "segments") {
		to := end + ns("segment")
		m.cut(end, to, Cause(rapid.IntRange(int(Submit), int(Throttled)).Draw(t, "cause")))
		if n := len(m.segments); n > 0 {
			s := &m.segments[n-1]
			s.tid = uint32(rapid.IntRange(0, 3).Draw(t, "victim"))
			s.who = kept(culprit{kind: culpritKind(rapid.IntRange(0, 6).Draw(t, "kind")), id: uint32(rapid.IntRange(0, 20).Draw(t, "who"))})
		}
		end = to
	}
	m.reap = end
	return m
}

func (m *measured) cut(begin, end uint64, cause Cause) {
	if begin < end {
		m.segments = append(m.segments, segment{begin: begin, end: end, cause: cause, cpu: -1})
	}
}

func anyHistory(t *rapid.T) []measured {
	qps := []*queuePair{testQP(1), testQP(2), testQP(3)}
	qps[2].device, qps[2].peer = "mlx5_1", "lid 7 qp 0x1"
	var all []measured
	at := uint64(1_000_000)
	for range rapid.IntRange(1, 150).Draw(t, "WRs") {
		at += rapid.Uint64Range(0, 50_000).Draw(t, "step")
		all = append(all, anyWR(t, qps, at))
	}
	return all
}

func reportOf(all []measured) *Report {
	a := newAggregates(Config{}, nil)
	for i := range all {
		all[i].qp.aggregate = nil
	}
	for i := range all {
		a.add(fresh(&all[i]))
	}
	return a.finish(&event.Context{}, nil)
}

// Whatever is summed adds up: classes to latency, causes to classes, groups
// and series and samples to the whole.
func TestReportAddsUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := anyHistory(t)
		r := reportOf(all)
		var latency, receives, sends int64
		for i := range all {
			if all[i].receive {
				receives += int64(all[i].latency())
			} else {
				sends++
				latency += int64(all[i].latency())
			}
		}
		equal := func(name string, got, want int64) {
			t.Helper()
			if got != want {
				t.Errorf("%s: %d, want %d", name, got, want)
			}
		}
		equal("latency", r.Latency.TotalNS, latency)
		equal("count", r.Latency.Count, sends)
		equal("receives", r.Receives.Latency.TotalNS, receives)
		equal("receives' count", r.Receives.Latency.Count, int64(len(all))-sends)
		checkTotals(t, "sends", Totals{Latency: r.Latency, Undecided: r.Undecided, Classes: r.Classes, Probe: r.Probe, AtP50: r.AtP50, AtP99: r.AtP99, Causes: r.Causes})
		checkTotals(t, "receives", r.Receives)
		groups, probes := map[string]int64{}, map[string]int64{}
		for _, g := range r.Groups {
			groups[g.By] += g.Latency.TotalNS
			probes[g.By] += g.ProbeNS
			sum := int64(0)
			for _, c := range g.Classes {
				sum += c.TotalNS
				equal("count of a class in "+g.By, c.Count, g.Latency.Count)
			}
			equal("classes of "+g.By+" "+g.Key, sum, g.Latency.TotalNS)
		}
		for _, by := range []string{"size", "qp", "peer", "device", "thread"} {
			equal("groups by "+by, groups[by], latency)
			equal("our probes by "+by, probes[by], r.Probe.TotalNS)
		}
		equal("groups by op", groups["op"], latency+receives)
		equal("our probes by op", probes["op"], r.Probe.TotalNS+r.Receives.Probe.TotalNS)
		equal("groups by op+size", groups["op+size"], latency+receives)
		var series, samples, counted int64
		for _, p := range r.Series {
			series += p.LatencyNS
		}
		equal("series", series, latency)
		for _, s := range r.Samples {
			samples += s.NS
			counted += s.Count
			if s.NS < 0 || s.Leaf && s.Count != 0 || !s.Leaf && s.NS != 0 {
				t.Errorf("sample %+v", s)
			}
		}
		equal("samples", samples, latency+receives)
		equal("counts of samples", counted, int64(len(all)))
		for _, shares := range [][]Share{r.DoneSources, r.Demands} {
			n := int64(0)
			for _, s := range shares {
				n += s.Count
			}
			equal("shares", n, int64(len(all)))
		}
		for _, in := range r.Incidents {
			var delay uint64
			for _, s := range in.Timeline {
				if s.Begin >= s.End {
					t.Errorf("timeline %+v", in.Timeline)
				}
				delay += s.End - s.Begin
			}
			if in.WRs == 1 && uint64(in.DelayNS) > delay {
				t.Errorf("delay %d of a WR of %d", in.DelayNS, delay)
			}
		}
	})
}

func checkTotals(t *rapid.T, name string, r Totals) {
	t.Helper()
	var classes [numClasses]int64
	for _, c := range r.Causes {
		classes[c.Cause.Class()] += c.TotalNS
		who := int64(0)
		for _, w := range c.Who {
			who += w.TotalNS
		}
		if c.TotalNS <= 0 || c.Count <= 0 || who > c.TotalNS || len(c.Who) > whoShown+1 {
			t.Errorf("%s: cause %+v", name, c)
		}
	}
	sum := int64(0)
	for c, d := range r.Classes {
		sum += d.TotalNS
		if d.TotalNS != classes[c] {
			t.Errorf("%s: causes of %s add up to %d, want %d", name, Class(c), classes[c], d.TotalNS)
		}
	}
	if sum != r.Latency.TotalNS {
		t.Errorf("%s: classes add up to %d, want %d", name, sum, r.Latency.TotalNS)
	}
	if r.Undecided != r.Classes[Undecided] {
		t.Errorf("%s: undecided twice, and not the same", name)
	}
}

// The same WRs give the same Report in the same order always, and in any order
// the same sums: floors, incidents and exposed times are made in passing.
func TestOrderOfWRs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := anyHistory(t)
		r := reportOf(all)
		if diff := cmp.Diff(r, reportOf(all)); diff != "" {
			t.Fatalf("a second time: %s", diff)
		}
		seed := rapid.Uint64().Draw(t, "seed")
		rand.New(rand.NewPCG(seed, 1)).Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		s := reportOf(all)
		for _, pair := range []struct {
			name      string
			got, want any
		}{
			{"latency", s.Latency, r.Latency},
			{"classes", s.Classes, r.Classes},
			{"receives", s.Receives.Latency, r.Receives.Latency},
			{"who", whoOf(s), whoOf(r)},
			{"series", s.Series, r.Series},
			{"slow", s.Slow, r.Slow},
			{"demands", s.Demands, r.Demands},
			{"sources", s.DoneSources, r.DoneSources},
			{"groups", latenciesOf(s), latenciesOf(r)},
		} {
			if !reflect.DeepEqual(pair.got, pair.want) {
				t.Errorf("%s: %s", pair.name, cmp.Diff(pair.want, pair.got))
			}
		}
	})
}

func whoOf(r *Report) map[string][]Culprit {
	m := map[string][]Culprit{}
	for _, c := range r.Causes {
		if c.Cause.Class() != Wire {
			m[c.Cause.FullName()] = c.Who
		}
	}
	return m
}

func latenciesOf(r *Report) map[string]string {
	m := map[string]string{}
	for _, g := range r.Groups {
		m[g.By+" "+g.Key] = fmt.Sprint(g.Latency, g.Classes, g.Bytes)
	}
	return m
}

// Keys beyond the bounds share an entry, and nothing is lost there.
func TestBoundsLoseNothing(t *testing.T) {
	a := newAggregates(Config{}, nil)
	const wrs = 60_000
	for i := range uint64(wrs) {
		qp := testQP(uint32(i % (queuesMost + 500)))
		if i >= queuesMost+500 {
			qp = a.queues[i%(queuesMost+1)].qp
		}
		m := measured{
			qp: qp, opcode: uint8(i % 3), bytes: i % 3000, chained: 1, stack: i % 7000, postTID: uint32(1 + i%9000), reapTID: 3, doneSource: DoneBracket,
			postBegin: i * 1000, postEnd: i*1000 + 100, doneLow: i*1000 + 900, doneHigh: i*1000 + 900, done: i*1000 + 900, reap: i*1000 + 2000 + i%7,
		}
		m.cut(m.postBegin, m.postEnd, Submit)
		m.cut(m.postEnd, m.done, WireUnsplit)
		m.cut(m.done, m.reap, Preempted)
		m.segments[2].who, m.segments[2].tid = kept(task("many", uint32(i%5000))), uint32(1+i%9000)
		a.add(&m)
	}
	r := a.finish(&event.Context{}, nil)
	sums := map[string]int64{}
	for _, g := range r.Groups {
		sums[g.By] += g.Latency.Count
	}
	for by, n := range sums {
		if n != wrs {
			t.Errorf("groups by %s have %d WRs of %d", by, n, wrs)
		}
	}
	var samples, who int64
	for _, s := range r.Samples {
		samples += s.NS
	}
	for _, c := range r.Causes {
		if c.Cause == Preempted {
			for _, w := range c.Who {
				who += w.TotalNS
			}
			if who != c.TotalNS {
				t.Errorf("culprits of %d ns, want %d", who, c.TotalNS)
			}
		}
	}
	if samples != r.Latency.TotalNS {
		t.Errorf("samples of %d ns, latency %d", samples, r.Latency.TotalNS)
	}
	if n := len(a.sites.byKey); n > sitesMost {
		t.Errorf("%d sites", n)
	}
	if len(r.Doubts) < 5 {
		t.Errorf("the bounds are not said: %q", r.Doubts)
	}
}
