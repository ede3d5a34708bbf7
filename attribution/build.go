package attribution

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/rdmatrace/rdmatrace/event"
)

// finish makes the Report, all of it but WRs, Kinds and the engine's own
// doubts. qps are all queue pairs seen, those without traffic included.
func (a *aggregates) finish(ctx *event.Context, qps []*queuePair) *Report {
	for _, f := range a.lines {
		f.fitLine(&a.fits, a.port(portName{f.key.device, f.key.port}).link)
	}
	for a.line.used > 0 {
		a.settle(a.line.take())
	}
	a.sum()
	for _, qp := range qps {
		a.queue(qp)
	}
	names := newNaming(ctx)
	called, why := newRenaming(ctx, a.ports)
	r := &Report{Context: ctx}
	a.totals(r, called, names)
	r.Groups = a.groups(called, names)
	r.Exposed = a.exposure.report(a.queues)
	r.Series = a.series.report()
	r.Slow = a.series.slowPattern(r.Latency.P50NS)
	r.Incidents = a.incidentReport(max(r.Latency.P50NS, r.Receives.Latency.P50NS), called, names)
	r.Samples = a.sites.report(a, called, names)
	r.Floors = a.floorReport()
	r.Receive = a.peerWaits()
	r.Evidence = why
	r.Doubts = append(a.describeQueues(r, names), a.doubts(r)...)
	return r
}

// totals over all sends, and over all receives.
func (a *aggregates) totals(r *Report, called *renaming, names *naming) {
	const fine = 4
	sends, receives := newCell(fine), newCell(fine)
	for _, c := range a.ops {
		if c.key.receive {
			receives.merge(&c.cell)
		} else {
			sends.merge(&c.cell)
		}
	}
	t := a.sends.report(sends, called, names)
	r.Latency, r.Undecided, r.Uncertain, r.Doubt = t.Latency, t.Undecided, t.Uncertain, t.Doubt
	r.Classes, r.Probe, r.AtP50, r.AtP99, r.Causes = t.Classes, t.Probe, t.AtP50, t.AtP99, t.Causes
	r.Receives = a.receives.report(receives, called, names)
	r.Chains = Chains{Count: sends.latency.count, WRs: a.sends.chained, Bytes: sends.bytes}
	for i := range a.sends.sources {
		if n := a.sends.sources[i] + a.receives.sources[i]; n > 0 {
			r.DoneSources = append(r.DoneSources, Share{DoneSource(i).String(), n})
		}
	}
	for i := range a.sends.demands {
		if n := a.sends.demands[i] + a.receives.demands[i]; n > 0 {
			r.Demands = append(r.Demands, Share{Demand(i).String(), n})
		}
	}
}

func (k *kind) report(c *cell, called *renaming, names *naming) Totals {
	t := Totals{
		Latency:   c.latency.report(c.latency.count),
		Classes:   c.classReport(),
		Uncertain: k.uncertain,
		Doubt:     k.doubt.report(k.doubt.count),
		Probe:     k.probe.report(c.latency.count),
		AtP50:     c.splitReport(500, called),
		AtP99:     c.splitReport(990, called),
	}
	t.Undecided = t.Classes[Undecided]
	all := c.split.all()
	sums := called.apply(&all.causes)
	var touched [numCauses]int64
	for i, n := range c.touched {
		// A work request with two marks of one name has touched it once; of which
		// that is true nobody knows any more.
		touched[called[i]] = min(touched[called[i]]+n, c.latency.count)
	}
	who := k.who.report(called, names)
	for i, ns := range sums {
		if ns > 0 {
			t.Causes = append(t.Causes, CauseTotal{Cause: Cause(i), TotalNS: int64(ns), Count: touched[i], Who: who[i]})
		}
	}
	sortCauses(t.Causes)
	return t
}

// incidentReport leaves out what did not matter to the WR it delayed most: less than a
// tenth of the median latency. A wait that several intervals made is listed once, with
// the worst of them.
func (a *aggregates) incidentReport(median int64, called *renaming, names *naming) []Incident {
	least := uint64(max(median/10, incidentLeast))
	var list []Incident
	listed := make(map[wrKey]int)
	for _, s := range a.incidents.finish() {
		if s.worstDelay < least {
			break
		}
		cause, who, key := called[s.key.cause], names.culprit(&s.key.who), s.worst.m.wrKey()
		if at, known := listed[key]; known {
			list[at].also(Another{cause, who, names.cgroup(s.cgroup), 1, int64(s.end - s.begin), int64(s.delay)})
			continue
		}
		listed[key] = len(list)
		i := Incident{
			Cause:   cause,
			Who:     who,
			Cgroup:  names.cgroup(s.cgroup),
			Begin:   s.begin,
			End:     s.end,
			WRs:     s.wrs,
			DelayNS: int64(s.delay),
			Worst:   a.describe(&s.worst.m, names),
			Omitted: int64(s.worst.omitted),
		}
		for _, seg := range s.worst.m.segments {
			i.Timeline = append(i.Timeline, Segment{
				Cause: called[seg.cause], Begin: seg.begin, End: seg.end,
				Who: names.culprit(seg.who), Cgroup: names.cgroup(seg.who.home()), TID: seg.tid, CPU: int32(seg.cpu),
			})
		}
		list = append(list, i)
	}
	for i := range list {
		slices.SortStableFunc(list[i].Also, func(x, y Another) int { return cmp.Compare(y.NS, x.NS) })
	}
	return list
}

// also adds what else its worst WR waited for, by culprit.
func (i *Incident) also(other Another) {
	for k := range i.Also {
		if a := &i.Also[k]; a.Cause == other.Cause && a.Who == other.Who {
			a.Parts, a.NS, a.DelayNS = a.Parts+1, a.NS+other.NS, a.DelayNS+other.DelayNS
			return
		}
	}
	i.Also = append(i.Also, other)
}

// wrKey tells WRs apart: those of a list begin together, and a receive whose post was
// not seen has no index.
type wrKey struct {
	qp              *queuePair
	receive         bool
	index           int64
	postBegin, reap uint64
}

func (m *measured) wrKey() wrKey { return wrKey{m.qp, m.receive, m.index, m.postBegin, m.reap} }

func (a *aggregates) describe(m *measured, names *naming) WR {
	return WR{
		PID: m.qp.pid, QPNum: m.qp.num, Index: m.index,
		Op: opName(m.opcode, m.receive), Bytes: int64(m.bytes),
		Device: m.qp.device, Peer: validText(m.qp.peer), Transport: transportName(m.qp.qpType),
		PostThread: names.thread(m.postTID), ReapThread: names.thread(m.reapTID),
		PostBegin: m.postBegin, PostEnd: m.postEnd,
		DoneLow: m.doneLow, DoneHigh: m.doneHigh, Done: m.done, Reap: m.reap,
		DoneSource: m.doneSource, Demand: m.demand, Status: m.status, Stack: m.stack,
	}
}

func (a *aggregates) floorReport() []Floor {
	var list []Floor
	for _, f := range a.lines {
		port := a.port(portName{f.key.device, f.key.port})
		l := Floor{
			Device: f.key.device, Port: int(f.key.port), Peer: f.key.peer,
			Op: opName(f.key.opcode, false), Transport: transportName(f.key.qpType),
			Learnt: f.count, Split: f.split, Known: f.fit.known, BaseNS: int64(f.fit.base),
			LinkBPS: port.linkBPS, PCIeBPS: port.pcieBPS,
		}
		if f.fit.fitted {
			l.RateBPS = f.fit.perByte.rate()
		}
		list = append(list, l)
	}
	slices.SortFunc(list, func(x, y Floor) int {
		return cmp.Or(cmp.Compare(y.Split, x.Split), cmp.Compare(x.Device, y.Device), cmp.Compare(x.Port, y.Port),
			cmp.Compare(x.Peer, y.Peer), cmp.Compare(x.Op, y.Op), cmp.Compare(x.Transport, y.Transport))
	})
	return list
}

func (a *aggregates) peerWaits() []PeerWait {
	var list []PeerWait
	for _, q := range a.queues {
		if n := q.peerWait.count; n > 0 {
			list = append(list, PeerWait{q.qp.pid, q.port.name.device, validText(q.qp.peer), q.qp.num, q.peerWait.report(n)})
		}
	}
	slices.SortStableFunc(list, func(x, y PeerWait) int {
		return cmp.Or(cmp.Compare(x.Device, y.Device), cmp.Compare(x.QPNum, y.QPNum), cmp.Compare(x.PID, y.PID))
	})
	return list
}

// describeQueues fills Queues and Ports, and tells what bypasses the library.
func (a *aggregates) describeQueues(r *Report, names *naming) []string {
	window := r.Context.Window
	for _, p := range a.ports {
		b := &p.backlog.backlog
		a.gapBefore(&a.none, &b.gaps, window.End, b.lastTID)
		r.Ports = append(r.Ports, p.report(r.Context, b.report(window.Begin, window.End, &a.unseen, a.observed, names)))
	}
	slices.SortFunc(r.Ports, func(x, y PortReport) int {
		return cmp.Or(cmp.Compare(x.Device, y.Device), cmp.Compare(x.Port, y.Port))
	})
	states := slices.Clone(a.queues)
	states = slices.DeleteFunc(states, func(q *queueState) bool { return q.shared })
	slices.SortStableFunc(states, func(x, y *queueState) int {
		return cmp.Or(cmp.Compare(x.port.name.device, y.port.name.device), cmp.Compare(x.qp.num, y.qp.num),
			cmp.Compare(x.qp.pid, y.qp.pid), cmp.Compare(x.qp.generation, y.qp.generation))
	})
	for _, q := range states {
		begin, end := max(window.Begin, q.qp.created), window.End
		if q.qp.ended != 0 {
			end = max(begin, min(end, q.qp.ended))
		}
		a.gapBefore(&q.backlog.gaps, &a.none, end, q.backlog.lastTID)
		r.Queues = append(r.Queues, Queue{
			PID: q.qp.pid, QPNum: q.qp.num, Device: q.port.name.device, Peer: validText(q.qp.peer),
			QueueSize: int64(q.qp.maxSendWR), Backlog: q.backlog.report(begin, end, &a.unseen, a.observed, names),
		})
	}
	return markBypass(r.Context, r.Queues, states, r.Ports)
}

// doubts are what a bound or too few samples cost.
func (a *aggregates) doubts(r *Report) (list []string) {
	say := func(format string, args ...any) { list = append(list, fmt.Sprintf(format, args...)) }
	if wire := r.Classes[Wire].TotalNS; a.unsplit.ns > 0 && a.unsplit.ns*100 >= wire {
		say("%d %% of the wire time is not split: too few work requests without doubt for their peer and operation, or none posted to an idle queue",
			a.unsplit.ns*100/wire)
	}
	if why := a.stolen.doubt(r.Context); why != "" {
		list = append(list, why)
	}
	for _, status := range sortedKeys(a.errors) {
		say("%d work requests completed in error %s: they are in no distribution", a.errors[status], StatusName(status))
	}
	for _, bound := range []struct {
		hit  bool
		text string
	}{
		{len(a.queues) > queuesMost, fmt.Sprintf("more than %d queue pairs: the others are summed as %s, their wire unsplit", queuesMost, other)},
		{len(a.byQueue) > queueCellsMost, fmt.Sprintf("more than %d pairs of queue pair and thread: the others are summed as %s", queueCellsMost, other)},
		{len(a.ops) > opSizesMost, fmt.Sprintf("more than %d sizes: the others are rounded up to powers of two", opSizesMost)},
		{a.noFloor > 0, fmt.Sprintf("more than %d peers and operations: the wire of the others is unsplit", floorsMost)},
		{a.sites.folded > 0, fmt.Sprintf("more than %d sites in the profile: the smaller ones lost labels", sitesMost)},
		{a.incidents.evicted > 0, fmt.Sprintf("%d culprits of incidents were closed early: an incident of theirs may be listed in parts", a.incidents.evicted)},
		{a.sends.who.foldedKinds+a.receives.who.foldedKinds > 0, fmt.Sprintf("more than %d culprits: the smaller ones are summed as %s", maxWho, other)},
		{len(a.exposure.threads) >= threadsMost, fmt.Sprintf("more than %d threads: exposed time of the others is a lower bound", threadsMost)},
	} {
		if bound.hit {
			list = append(list, bound.text)
		}
	}
	return list
}

func sortedKeys(m map[uint32]int64) []uint32 {
	keys := make([]uint32, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
