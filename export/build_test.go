package export

import (
	"fmt"
	"math"
	"sort"

	"github.com/rdmatrace/rdmatrace/attribution"
	"github.com/rdmatrace/rdmatrace/event"
)

// builder makes Reports out of work requests one by one, slowly and obviously,
// so that every number of a fixture fits every other one.
type builder struct {
	r   attribution.Report
	wrs []builtWR
}

// builtWR is a work request cut into segments, in order.
type builtWR struct {
	wr       attribution.WR
	segments []attribution.Segment
	labels   attribution.Labels
}

func (b builtWR) latency() int64 { return int64(b.wr.Reap - b.wr.PostBegin) }

func (b builtWR) total(match func(attribution.Cause) bool) (ns int64) {
	for _, s := range b.segments {
		if match(s.Cause) {
			ns += int64(s.End - s.Begin)
		}
	}
	return ns
}

func ofClass(c attribution.Class) func(attribution.Cause) bool {
	return func(x attribution.Cause) bool { return x.Class() == c }
}

func ofCause(c attribution.Cause) func(attribution.Cause) bool {
	return func(x attribution.Cause) bool { return x == c }
}

// part of a work request to be added.
type part struct {
	cause attribution.Cause
	ns    uint64
	who   string
}

// add one WR that was posted at begin and went through the parts.
func (b *builder) add(wr attribution.WR, parts ...part) {
	built := builtWR{wr: wr}
	at := wr.PostBegin
	for _, p := range parts {
		if p.ns == 0 {
			continue
		}
		built.segments = append(built.segments, attribution.Segment{Cause: p.cause, Begin: at, End: at + p.ns,
			Who: p.who, TID: tidOf(p.cause, wr), CPU: 3})
		at += p.ns
	}
	built.wr.Reap = at
	built.labels = attribution.Labels{Op: wr.Op, Size: sizeName(wr.Bytes), QP: hex(uint64(wr.QPNum)), Peer: wr.Peer, Device: wr.Device,
		Transport: wr.Transport, PostThread: wr.PostThread, ReapThread: wr.ReapThread, DoneSource: wr.DoneSource, Demand: wr.Demand}
	b.wrs = append(b.wrs, built)
}

func tidOf(c attribution.Cause, wr attribution.WR) uint32 {
	if c.Class() == attribution.Wire || c == attribution.CauseUndecided {
		return 0
	}
	return wr.PID
}

func sizeName(n int64) string {
	switch {
	case n >= 1<<20:
		return fmt.Sprintf("%dMiB", n>>20)
	case n >= 1<<10:
		return fmt.Sprintf("%dKiB", n>>10)
	}
	return fmt.Sprintf("%dB", n)
}

func distribution(values []int64) (d attribution.Distribution) {
	if len(values) == 0 {
		return d
	}
	sorted := append([]int64(nil), values...)
	sort.Slice(sorted, func(i, j int) bool { return sorted[i] < sorted[j] })
	for _, v := range sorted {
		d.TotalNS += v
	}
	d.Count, d.MinNS, d.MaxNS = int64(len(sorted)), sorted[0], sorted[len(sorted)-1]
	d.MeanNS = float64(d.TotalNS) / float64(d.Count)
	for _, v := range sorted {
		d.StdDevNS += (float64(v) - d.MeanNS) * (float64(v) - d.MeanNS)
	}
	d.StdDevNS = math.Sqrt(d.StdDevNS / float64(d.Count))
	at := func(q float64) int64 { return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)] }
	d.P50NS, d.P90NS, d.P99NS, d.P999NS = at(0.5), at(0.9), at(0.99), at(0.999)
	return d
}

func distributions(wrs []builtWR) (latency attribution.Distribution, by [classes]attribution.Distribution) {
	var all []int64
	for _, w := range wrs {
		all = append(all, w.latency())
	}
	for _, c := range attribution.Classes {
		var values []int64
		for _, w := range wrs {
			values = append(values, w.total(ofClass(c)))
		}
		by[c] = distribution(values)
	}
	return distribution(all), by
}

// split of the WRs ranked between two quantiles.
func split(wrs []builtWR, low, high float64) (s attribution.Split) {
	ranked := append([]builtWR(nil), wrs...)
	sort.SliceStable(ranked, func(i, j int) bool { return ranked[i].latency() < ranked[j].latency() })
	n := float64(len(ranked))
	from := min(int(low*n), len(ranked)-1)
	ranked = ranked[from:max(int(high*n), from+1)]
	s.Count = int64(len(ranked))
	for _, w := range ranked {
		s.LatencyNS += float64(w.latency()) / float64(s.Count)
		for _, c := range attribution.Classes {
			s.ClassNS[c] += float64(w.total(ofClass(c))) / float64(s.Count)
		}
	}
	s.Causes = causeTotals(ranked)
	return s
}

func causeTotals(wrs []builtWR) (list []attribution.CauseTotal) {
	byCause := map[attribution.Cause]*attribution.CauseTotal{}
	who := map[attribution.Cause]map[string]*attribution.Culprit{}
	for _, w := range wrs {
		touched := map[attribution.Cause]bool{}
		for _, s := range w.segments {
			if byCause[s.Cause] == nil {
				byCause[s.Cause], who[s.Cause] = &attribution.CauseTotal{Cause: s.Cause}, map[string]*attribution.Culprit{}
			}
			ns := int64(s.End - s.Begin)
			byCause[s.Cause].TotalNS += ns
			if !touched[s.Cause] {
				touched[s.Cause] = true
				byCause[s.Cause].Count++
			}
			if s.Who != "" {
				if who[s.Cause][s.Who] == nil {
					who[s.Cause][s.Who] = &attribution.Culprit{Name: s.Who}
				}
				who[s.Cause][s.Who].TotalNS += ns
				who[s.Cause][s.Who].Count++
			}
		}
	}
	for c, t := range byCause {
		for _, w := range who[c] {
			t.Who = append(t.Who, *w)
		}
		sort.Slice(t.Who, func(i, j int) bool {
			return t.Who[i].TotalNS > t.Who[j].TotalNS || t.Who[i].TotalNS == t.Who[j].TotalNS && t.Who[i].Name < t.Who[j].Name
		})
		t.Who = t.Who[:min(len(t.Who), 8)]
		list = append(list, *t)
	}
	sort.Slice(list, func(i, j int) bool {
		return list[i].TotalNS > list[j].TotalNS || list[i].TotalNS == list[j].TotalNS && list[i].Cause < list[j].Cause
	})
	return list
}

// groupKeys of a WR, by dimension.
var groupKeys = []struct {
	by  string
	key func(builtWR) string
}{
	{"op", func(w builtWR) string { return w.labels.Op }},
	{"size", func(w builtWR) string { return w.labels.Size }},
	{"qp", func(w builtWR) string { return w.labels.QP }},
	{"peer", func(w builtWR) string { return w.labels.Peer }},
	{"device", func(w builtWR) string { return w.labels.Device }},
	{"thread", func(w builtWR) string { return w.labels.PostThread }},
	{"op+size", func(w builtWR) string { return w.labels.Op + " " + w.labels.Size }},
}

func groups(wrs []builtWR) (list []attribution.Group) {
	for _, dim := range groupKeys {
		by := map[string][]builtWR{}
		for _, w := range wrs {
			by[dim.key(w)] = append(by[dim.key(w)], w)
		}
		var some []attribution.Group
		for key, members := range by {
			g := attribution.Group{By: dim.by, Key: key, AtP50: split(members, 0.45, 0.55), AtP99: split(members, 0.985, 0.995)}
			g.Latency, g.Classes = distributions(members)
			for _, m := range members {
				g.Bytes += m.wr.Bytes
				g.ProbeNS += m.total(ofCause(attribution.Probe))
			}
			some = append(some, g)
		}
		sort.Slice(some, func(i, j int) bool {
			a, b := some[i], some[j]
			return a.Latency.Count > b.Latency.Count || a.Latency.Count == b.Latency.Count && a.Key < b.Key
		})
		list = append(list, some...)
	}
	return list
}

// report computes everything that follows from the WRs.
func (b *builder) report(c *event.Context) *attribution.Report {
	r := &b.r
	r.Context = c
	r.Latency, r.Classes = distributions(b.wrs)
	r.Undecided = r.Classes[attribution.Undecided]
	var probes, doubt []int64
	done, demand := map[string]int64{}, map[string]int64{}
	for _, w := range b.wrs {
		probes = append(probes, w.total(ofCause(attribution.Probe)))
		if w.total(ofClass(attribution.Undecided)) > 0 {
			doubt = append(doubt, int64(w.wr.DoneHigh-w.wr.DoneLow))
		}
		done[w.wr.DoneSource.String()]++
		demand[w.wr.Demand.String()]++
	}
	r.Probe, r.Doubt, r.Uncertain = distribution(probes), distribution(doubt), int64(len(doubt))
	r.DoneSources, r.Demands = shareSlice(done), shareSlice(demand)
	if len(b.wrs) > 0 {
		r.AtP50, r.AtP99 = split(b.wrs, 0.45, 0.55), split(b.wrs, 0.985, 0.995)
	}
	r.Causes = causeTotals(b.wrs)
	r.Groups = groups(b.wrs)
	r.Samples = samples(b.wrs)
	return r
}

func shareSlice(m map[string]int64) (list []attribution.Share) {
	for name, n := range m {
		list = append(list, attribution.Share{Name: name, Count: n})
	}
	sort.Slice(list, func(i, j int) bool {
		return list[i].Count > list[j].Count || list[i].Count == list[j].Count && list[i].Name < list[j].Name
	})
	return list
}

func samples(wrs []builtWR) (list []attribution.Sample) {
	index := map[attribution.Sample]int{}
	add := func(s attribution.Sample, count, ns int64) {
		i, known := index[s]
		if !known {
			i = len(list)
			index[s], list = i, append(list, s)
		}
		list[i].Count += count
		list[i].NS += ns
	}
	for _, w := range wrs {
		base := attribution.Sample{Stack: w.wr.Stack, PID: w.wr.PID, Labels: w.labels}
		add(base, 1, 0)
		base.Leaf = true
		for _, s := range w.segments {
			base.Cause, base.Who = s.Cause, s.Who
			add(base, 1, int64(s.End-s.Begin))
		}
	}
	return list
}

// incident made of the nth WR's segment of that cause.
func (b *builder) incident(nth int, cause attribution.Cause, wrs, delay int64) {
	w := b.wrs[nth]
	for _, s := range w.segments {
		if s.Cause == cause {
			b.r.Incidents = append(b.r.Incidents, attribution.Incident{Cause: cause, Who: s.Who, Begin: s.Begin, End: s.End,
				WRs: wrs, DelayNS: delay, Worst: w.wr, Timeline: w.segments})
			return
		}
	}
	panic("no such segment")
}

// inCgroup puts a culprit into a cgroup wherever the report names it.
func inCgroup(r *attribution.Report, who string, c attribution.Cgroup) *attribution.Report {
	for _, causes := range [][]attribution.CauseTotal{r.Causes, r.AtP50.Causes, r.AtP99.Causes} {
		for _, cause := range causes {
			for i := range cause.Who {
				if cause.Who[i].Name == who {
					cause.Who[i].Cgroup = c
				}
			}
		}
	}
	for i := range r.Incidents {
		in := &r.Incidents[i]
		if in.Who == who {
			in.Cgroup = c
		}
		for k := range in.Timeline {
			if in.Timeline[k].Who == who {
				in.Timeline[k].Cgroup = c
			}
		}
	}
	for i := range r.Samples {
		if r.Samples[i].Who == who {
			r.Samples[i].Cgroup = c
		}
	}
	return r
}
