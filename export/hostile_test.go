package export

import (
	"math"
	"strings"

	"github.com/rdmatrace/rdmatrace/attribution"
	"github.com/rdmatrace/rdmatrace/event"
)

// nasty strings: terminal escapes, markup, separators, numbers at the end, right
// to left overrides, a comm cut inside a rune, an unbroken kilobyte.
var nasty = []string{
	"\x1b[2J\x1b]0;owned\x07",
	`<script>alert("1")</script>&amp;]]>`,
	"a;b;c 905",
	"line\nbreak\r\ttab\x00nul",
	"\u202egnp.exe\u2066",
	"Schl\xc3",
	strings.Repeat("x", 5000),
	"runq wait 905 3000",
	"'\"`${HOME}%s%d%!",
	"\u2028\u00a0\ufeff\U000e0041",
	"汉字テスト",
	"",
}

// hostile has every string of a report set to something nasty.
func hostile() *attribution.Report {
	n := func(i int) string { return nasty[i%len(nasty)] }
	const pid = 666
	c := testContext(pid, n(0), nasty...)
	c.Tool, c.Host.Name, c.Host.Kernel, c.Host.Distribution, c.Host.Governor = n(1), n(3), n(4), n(6), n(2)
	c.Targets[0].Exe = "/tmp/" + n(1)
	c.Devices[0].Name, c.Devices[0].Firmware, c.Devices[0].Ports[0].LinkLayer, c.Devices[0].Ports[0].State = n(1), n(0), n(5), n(3)
	c.Mappings[0].Path, c.Mappings[1].Path, c.Mappings[1].BuildID = n(4), c.Targets[0].Exe, n(1)
	c.Notes, c.Costs = nasty, nasty
	c.Counters = []event.Counter{{Name: n(0), Value: math.MaxUint64}, {Name: n(6), Value: 7}}
	c.Probes = []event.Probe{{Name: n(0), Kind: n(1), Library: n(6), Error: n(3), Hits: math.MaxUint64, Misses: math.MaxUint64}}
	b := &builder{}
	at := uint64(origin)
	for i := range len(nasty) {
		stack := addStack(c, pid, uint64(i+1), i%2 == 0, n(i), n(i+1), n(i+2))
		wr := attribution.WR{PID: pid, QPNum: math.MaxUint32, Index: math.MaxInt64, Op: n(i), Bytes: 1 << 40, Device: n(i + 1), Peer: n(i + 2), Transport: n(i + 3),
			PostThread: n(i + 4), ReapThread: n(i + 5), PostBegin: at, Stack: stack, Status: 200 + uint32(i)}
		b.add(wr, part{attribution.Submit, 1000, ""}, part{attribution.WireUnsplit, 5000, n(i)}, part{attribution.Preempted, 20_000, n(i + 1)})
		at += 100_000
	}
	b.incident(0, attribution.Preempted, 1, 20_000)
	b.incident(6, attribution.Preempted, 1, 20_000)
	b.r.Doubts, b.r.Evidence = nasty, nasty
	b.r.Slow.Pattern = n(1)
	b.r.Floors = []attribution.Floor{{Device: n(0), Peer: n(6), Op: n(1), Transport: n(2), Known: true}}
	b.r.WRs = attribution.Books{Posted: 12, Completed: 12}
	b.r.Kinds = map[string]attribution.Books{n(1): b.r.WRs}
	b.r.Queues = []attribution.Queue{{PID: pid, QPNum: 1, Device: n(0), Peer: n(6),
		Backlog: attribution.Backlog{Posted: 12, WindowNS: second,
			IdleNS: second, IdleAsleep: second,
			IdleSyscalls: []attribution.Culprit{{Name: n(1), TotalNS: second}, {Name: n(6)}}}}}
	b.r.Ports = []attribution.PortReport{{Device: n(6), Port: 1, Backlog: b.r.Queues[0].Backlog}, {Device: n(1), Port: 2, Backlog: b.r.Queues[0].Backlog}}
	b.r.EventQueues = []attribution.EventQueues{{Device: n(2), Queues: 2, LineName: n(3), CPUs: n(4), Vectors: 9}}
	b.r.Receive = []attribution.PeerWait{{Peer: n(0), Wait: distribution([]int64{1})}}
	r := b.report(c)
	for i, who := range nasty {
		inCgroup(r, who, attribution.Cgroup{Name: "/" + n(i+7), Apart: true})
	}
	r.DoneSources = append(r.DoneSources, attribution.Share{Name: n(6), Count: 3})
	r.Late = lateOf(7, attribution.LateStack{PID: pid, Stack: 1, Doing: attribution.Ran, NS: 900, Samples: 1}, attribution.LateStack{PID: pid, Stack: 2, Doing: attribution.Slept, NS: 800})
	r.Late.DelayNS = r.Latency.TotalNS
	return r
}

// huge has numbers at the ends of their ranges, and some beyond reason.
func huge() *attribution.Report {
	c := testContext(math.MaxUint32, "huge", "huge")
	c.Host.RealtimeOffset = math.MaxInt64 - origin
	c.Window = event.Window{Begin: origin, End: origin + 400*86_400*second}
	c.Devices[0].PCIeBPS, c.Devices[0].Ports[0].RateBPS = math.MaxUint64, math.MaxUint64
	c.Cost = event.Cost{TrapNS: math.Inf(1), PairNS: math.NaN(), CPUTime: math.MaxUint64}
	c.Probes[0].Hits = math.MaxUint64
	d := attribution.Distribution{Count: math.MaxInt64, TotalNS: math.MaxInt64, MeanNS: math.Inf(1), StdDevNS: math.NaN(), P50NS: 1, P90NS: math.MaxInt64,
		P99NS: math.MaxInt64, P999NS: math.MaxInt64, MinNS: math.MinInt64, MaxNS: math.MaxInt64}
	r := &attribution.Report{Context: c, Latency: d, Uncertain: math.MaxInt64, Undecided: d, Probe: d, Doubt: d}
	for i := range r.Classes {
		r.Classes[i], r.Exposed[i] = d, math.MaxInt64
	}
	r.Late = hugeLate()
	r.WRs = attribution.Books{Posted: math.MaxInt64, Completed: math.MaxInt64, Bytes: math.MaxInt64, Unsignalled: math.MaxInt64}
	r.AtP50 = attribution.Split{Count: 1, LatencyNS: math.NaN()}
	r.AtP99 = attribution.Split{Count: math.MaxInt64, LatencyNS: math.MaxFloat64, ClassNS: [classes]float64{math.Inf(1), -5, math.NaN(), 1e300, 1e300},
		Causes: []attribution.CauseTotal{{Cause: attribution.Base, TotalNS: math.MaxInt64, Count: math.MaxInt64}}}
	r.Causes = []attribution.CauseTotal{{Cause: attribution.Base, TotalNS: math.MaxInt64, Count: math.MaxInt64}, {Cause: attribution.Reap, TotalNS: -7}}
	r.Groups = []attribution.Group{{By: "op+size", Key: "WRITE 8EiB", Bytes: math.MaxInt64, Latency: d, Classes: r.Classes}}
	r.Incidents = []attribution.Incident{{Cause: attribution.RNR, Begin: 10, End: 5, WRs: math.MaxInt64, DelayNS: math.MaxInt64,
		Worst: attribution.WR{PostBegin: 9, Reap: 3}, Timeline: []attribution.Segment{{Begin: 9, End: 2, CPU: -1}, {Begin: 0, End: math.MaxUint64, TID: 1, CPU: math.MaxInt32}}}}
	r.Queues = []attribution.Queue{{QueueSize: math.MaxInt64,
		Backlog: attribution.Backlog{Posted: math.MaxInt64, DepthMean: math.Inf(1), DepthMax: math.MaxInt64, DepthKnown: math.MaxInt64,
			IdleNS: math.MaxInt64, WindowNS: math.MaxInt64, IdleRunning: math.MaxInt64, IdleUnknown: -1,
			BytesPerSec: math.Inf(1), WRsPerSec: math.NaN()}}}
	r.Ports = []attribution.PortReport{{Device: "mlx5_0", Port: 255, RateBPS: math.MaxUint64, TracedBPS: math.NaN(), TracedSent: math.MaxInt64, TracedRecv: math.MinInt64, PortSent: math.MaxInt64, PortRecv: -1, Backlog: r.Queues[0].Backlog}}
	r.EventQueues = []attribution.EventQueues{{Vector: math.MinInt64, Queues: -1, LineName: "\x1b[2J\n|", CPUs: "\x00", Vectors: math.MaxInt64}}
	stack := addStack(c, math.MaxUint32, math.MaxUint64, false, "main")
	for i, ns := range []int64{math.MaxInt64, -1, 0, 1} {
		r.Samples = append(r.Samples, attribution.Sample{Stack: stack, PID: math.MaxUint32, Leaf: true, Cause: attribution.Cause(i + 1), Count: math.MaxInt64, NS: ns})
	}
	return r
}
