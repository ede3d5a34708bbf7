package export

import (
	"encoding/json"
	"io"
	"strings"

	"github.com/rdmatrace/rdmatrace/attribution"
	"github.com/rdmatrace/rdmatrace/event"
)

// JSON writes the report as one object; schema.md describes it.
func JSON(w io.Writer, r *attribution.Report) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", " ")
	return e.Encode(newJSON(r))
}

func newJSON(r *attribution.Report) jsonReport {
	c := context(r)
	j := jsonReport{
		Version: SchemaVersion, Tool: clean(c.Tool), WindowNS: windowNS(c), Start: startTime(c, "2006-01-02T15:04:05.000000000Z"),
		WRs: jsonBooks(r.WRs), Latency: toDistribution(r.Latency), Undecided: toDistribution(r.Undecided),
		Uncertain: toDistribution(r.Doubt), Classes: toClasses(r.Classes),
		AtP50: toSplit(r.AtP50), AtP99: toSplit(r.AtP99), Causes: toCauses(r.Causes), Groups: toGroups(r.Groups),
		Probe: toDistribution(r.Probe), ExposedNS: map[string]int64{}, Kinds: map[string]jsonBooks{},
		DoneSources: toShares(r.DoneSources), Demands: toShares(r.Demands), Doubts: append([]string{}, allDoubts(r)...), Evidence: list(r.Evidence, cleanText), Losses: toLosses(c),
		Cost: jsonCost{finite(c.Cost.TrapNS), finite(c.Cost.PairNS), c.Cost.CPUTime, finite(c.Cost.SteppedTrapNS), finite(c.Cost.SteppedPairNS),
			finite(c.Cost.OfThreads), finite(c.Cost.Limit), finite(c.Cost.Tracepoints), list(c.Costs, cleanText)},
		Host: jsonHost{clean(c.Host.Name), clean(c.Host.Kernel), clean(c.Host.Arch), clean(c.Host.Distribution), c.Host.CPUs, clean(c.Host.Governor)},
	}
	j.Uncertain.Count = r.Uncertain
	j.Verdict = summary(r)
	j.Received, j.Chains = toTotals(r.Receives), jsonChains(r.Chains)
	j.Slow = jsonSlow{r.Slow.ThresholdNS, r.Slow.Bursts, r.Slow.PeriodNS, cleanText(r.Slow.Pattern)}
	j.Floors = list(r.Floors, func(f attribution.Floor) jsonFloor {
		return jsonFloor{clean(f.Device), f.Port, clean(f.Peer), clean(f.Op), clean(f.Transport), f.Learnt, f.Split, f.Known, f.BaseNS,
			f.RateBPS, f.LinkBPS, f.PCIeBPS}
	})
	for _, class := range attribution.Classes {
		j.ExposedNS[class.String()] = r.Exposed[class]
	}
	for name, b := range r.Kinds {
		j.Kinds[clean(name)] = jsonBooks(b)
	}
	frames := newFrames(r)
	j.Incidents = list(r.Incidents, func(in attribution.Incident) jsonIncident { return toIncident(in, c, frames) })
	j.Queues = list(r.Queues, toQueue)
	j.Ports = list(r.Ports, toPort)
	j.EventQueues = list(r.EventQueues, toEventQueues)
	j.Receives = list(r.Receive, func(p attribution.PeerWait) jsonReceive {
		return jsonReceive{p.PID, clean(p.Device), clean(p.Peer), p.QPNum, toDistribution(p.Wait)}
	})
	j.Series = list(r.Series, func(p attribution.SeriesPoint) jsonPoint { return toPoint(p, c) })
	j.Late = toLate(&r.Late, frames)
	j.Sampled = toSampled(r.Sampled)
	j.Probes = list(c.Probes, toProbe)
	j.Devices = list(c.Devices, toDevice)
	j.Targets = list(c.Targets, toTarget)
	if len(j.Targets) > 0 {
		j.Target = &j.Targets[0]
	}
	return j
}

// list converts a slice; an empty one is [], never null.
func list[A, B any](from []A, convert func(A) B) []B {
	to := make([]B, 0, len(from))
	for _, a := range from {
		to = append(to, convert(a))
	}
	return to
}

// relative to the window's start: absolute times exceed what a float64 holds.
func relative(c *event.Context, at uint64) int64 { return int64(at - c.Window.Begin) }

// known is nil where n is the sign of an unknown value.
func known[T int | int32 | int64](n T) *T {
	if n < 0 {
		return nil
	}
	return &n
}

func toDistribution(d attribution.Distribution) jsonDistribution {
	return jsonDistribution{d.Count, d.TotalNS, finite(d.MeanNS), finite(d.StdDevNS), d.P50NS, d.P90NS, d.P99NS, d.P999NS, d.MaxNS, d.MinNS}
}

func toTotals(t attribution.Totals) jsonTotals {
	j := jsonTotals{toDistribution(t.Latency), toDistribution(t.Undecided), toDistribution(t.Doubt), toClasses(t.Classes),
		toDistribution(t.Probe), toSplit(t.AtP50), toSplit(t.AtP99), toCauses(t.Causes)}
	j.Uncertain.Count = t.Uncertain
	return j
}

func toClasses(d [classes]attribution.Distribution) jsonClasses {
	return jsonClasses{toDistribution(d[attribution.Software]), toDistribution(d[attribution.Interrupt]),
		toDistribution(d[attribution.Scheduling]), toDistribution(d[attribution.Wire])}
}

func toParts(ns [classes]float64) jsonParts {
	return jsonParts{finite(ns[attribution.Software]), finite(ns[attribution.Interrupt]), finite(ns[attribution.Scheduling]),
		finite(ns[attribution.Wire]), finite(ns[attribution.Undecided])}
}

func toSplit(s attribution.Split) jsonSplit {
	j := jsonSplit{Count: s.Count, LatencyNS: finite(s.LatencyNS), jsonParts: toParts(s.ClassNS), Causes: map[string]float64{}}
	for cause, ns := range causeMeans(s) {
		j.Causes[cause.FullName()] = finite(ns)
		if cause == attribution.Probe {
			j.ProbeNS = finite(ns)
		}
	}
	return j
}

func toCauses(causes []attribution.CauseTotal) map[string]jsonCause {
	m := map[string]jsonCause{}
	for _, c := range mergeCauses(causes) {
		m[c.Cause.FullName()] = jsonCause{c.TotalNS, c.Count, list(c.Who, toCulprit)}
	}
	return m
}

func toCulprit(c attribution.Culprit) jsonCulprit {
	return jsonCulprit{clean(c.Name), c.TotalNS, c.Count, clean(c.Cgroup.Name)}
}

// dimensions that are always there, if empty.
var dimensions = []string{"op", "size", "qp", "peer", "device", "thread"}

func toGroups(groups []attribution.Group) map[string][]jsonGroup {
	m := map[string][]jsonGroup{}
	for _, d := range dimensions {
		m[d] = []jsonGroup{}
	}
	for _, g := range groups {
		by := strings.ReplaceAll(clean(g.By), "+", "_")
		m[by] = append(m[by], jsonGroup{clean(g.Key), g.Bytes, toDistribution(g.Latency), toDistribution(g.Classes[attribution.Undecided]),
			toClasses(g.Classes), g.ProbeNS, toSplit(g.AtP50), toSplit(g.AtP99)})
	}
	return m
}

func toShares(shares []attribution.Share) map[string]int64 {
	m := map[string]int64{}
	for _, s := range shares {
		m[clean(s.Name)] += s.Count
	}
	return m
}

func toLosses(c *event.Context) map[string]uint64 {
	m := map[string]uint64{}
	for _, n := range c.Counters {
		m[clean(n.Name)] += n.Value
	}
	return m
}

func toIncident(in attribution.Incident, c *event.Context, f *frames) jsonIncident {
	return jsonIncident{
		Cause: in.Cause.FullName(), Who: clean(in.Who), Cgroup: clean(in.Cgroup.Name), BeginNS: relative(c, in.Begin), EndNS: relative(c, in.End),
		WRs: in.WRs, DelayNS: in.DelayNS, Worst: toWR(in.Worst, c, f),
		Timeline: list(in.Timeline, func(s attribution.Segment) jsonSegment {
			return jsonSegment{s.Cause.FullName(), relative(c, s.Begin), relative(c, s.End), clean(s.Who), clean(s.Cgroup.Name), s.TID, known(s.CPU)}
		}),
		Omitted: in.Omitted,
		Also: list(in.Also, func(a attribution.Another) jsonAnother {
			return jsonAnother{a.Cause.FullName(), clean(a.Who), clean(a.Cgroup.Name), a.Parts, a.NS, a.DelayNS}
		}),
	}
}

func toWR(w attribution.WR, c *event.Context, f *frames) jsonWR {
	return jsonWR{
		PID: w.PID, QP: w.QPNum, Index: w.Index, Op: clean(w.Op), Bytes: w.Bytes, Device: clean(w.Device), Peer: clean(w.Peer),
		Transport: clean(w.Transport), PostThread: clean(w.PostThread), ReapThread: clean(w.ReapThread),
		PostBeginNS: relative(c, w.PostBegin), PostEndNS: relative(c, w.PostEnd), DoneLowNS: relative(c, w.DoneLow),
		DoneNS: relative(c, w.Done), DoneHighNS: relative(c, w.DoneHigh), ReapNS: relative(c, w.Reap),
		DoneSource: w.DoneSource.String(), Demand: w.Demand.String(), Status: w.Status,
		Stack: innermostFirst(f.user(attribution.Sample{PID: w.PID, Stack: w.Stack})),
	}
}

// innermostFirst gives functions of root-first frames.
func innermostFirst(frames []frame) []string {
	names := make([]string, 0, len(frames))
	for i := len(frames) - 1; i >= 0; i-- {
		names = append(names, frames[i].name)
	}
	return names
}

// maxLateStacks in the JSON: the profile has all of them.
const maxLateStacks = 100

func toLate(l *attribution.Late, f *frames) jsonLate {
	all := byFunctions(l.Stacks, f)
	shown := all[:min(len(all), maxLateStacks)]
	return jsonLate{l.RanNS, l.SleptNS, l.WaitedNS, l.UnknownNS, l.NotLookedAtNS, l.UnsampledNS, l.DelayNS, l.UnprovenNS, l.Samples, list(shown, func(s *lateSite) jsonLateStack {
		return jsonLateStack{s.PID, s.Doing.String(), s.NS, s.Samples, innermostFirst(s.frames)}
	}), int64(len(all) - len(shown))}
}

func toQueue(q attribution.Queue) jsonQueue {
	return jsonQueue{q.PID, q.QPNum, clean(q.Device), clean(q.Peer), toBacklog(q.Backlog), q.QueueSize, q.Bypass}
}

func toBacklog(b attribution.Backlog) jsonBacklog {
	return jsonBacklog{b.Posted, finite(b.DepthMean), b.DepthMax, b.DepthKnown, b.IdleNS, b.WindowNS, b.IdleRunning, b.IdleRunnable,
		b.IdleAsleep, b.IdleUnknown, list(b.IdleSyscalls, toCulprit), finite(b.BytesPerSec), finite(b.WRsPerSec)}
}

func toPort(p attribution.PortReport) jsonPort {
	return jsonPort{clean(p.Device), p.Port, toBacklog(p.Backlog), p.RateBPS, finite(p.TracedBPS), p.TracedSent, p.TracedRecv,
		known(p.PortSent), known(p.PortRecv)}
}

func toEventQueues(q attribution.EventQueues) jsonEventQueues {
	j := jsonEventQueues{Device: clean(q.Device), Vector: known(q.Vector), Queues: q.Queues, Line: clean(q.LineName), CPUs: clean(q.CPUs), Vectors: q.Vectors}
	if q.LineName != "" {
		j.IRQ = &q.Line
	}
	return j
}

func toPoint(p attribution.SeriesPoint, c *event.Context) jsonPoint {
	var ns [classes]float64
	for i, v := range p.ClassNS {
		ns[i] = float64(v)
	}
	return jsonPoint{relative(c, p.Begin), relative(c, p.End), p.Count, p.LatencyNS, p.MaxNS, toParts(ns)}
}

func toSampled(s *attribution.Sampled) *jsonSampled {
	if s == nil {
		return nil
	}
	return &jsonSampled{s.Stretches, s.ObservedNS, s.LongestUnobservedNS, finite(s.WRsPerSec), finite(s.WRsPerSecError),
		finite(s.BytesPerSec), finite(s.BytesPerSecError)}
}

func toProbe(p event.Probe) jsonProbe {
	return jsonProbe{clean(p.Name), clean(p.Kind), clean(p.Library), clean(p.BuildID), hex(p.Offset), clean(p.Source), p.Hits, p.Misses, cleanText(p.Error), finite(p.RunNS), p.Stepped, p.PID, p.Removed}
}

func toTarget(t event.Target) jsonTarget {
	return jsonTarget{t.PID, clean(t.Comm), clean(t.Exe), list(t.Cmdline, clean), clean(t.Cgroup), known(t.Rank), t.Exited}
}

func toDevice(d event.Device) jsonDevice {
	return jsonDevice{clean(d.Name), clean(d.Driver), clean(d.Firmware), clean(d.PCI), known(d.NUMANode), d.PCIeBPS, d.Software,
		list(d.Ports, func(p event.Port) jsonDevicePort {
			return jsonDevicePort{p.Number, clean(p.LinkLayer), clean(p.State), p.RateBPS}
		})}
}
