package export

import (
	"testing"

	"github.com/rdmatrace/rdmatrace/attribution"
)

// splitOf classes in ns, with the causes that make them up.
func splitOf(ns [classes]float64, causes ...attribution.CauseTotal) attribution.Split {
	s := attribution.Split{Count: 1, ClassNS: ns, Causes: causes}
	for _, v := range ns {
		s.LatencyNS += v
	}
	return s
}

func ns(software, interrupt, scheduling, wire, undecided float64) (n [classes]float64) {
	n[attribution.Software], n[attribution.Interrupt], n[attribution.Scheduling], n[attribution.Wire], n[attribution.Undecided] =
		software, interrupt, scheduling, wire, undecided
	return n
}

func took(c attribution.Cause, total int64, who ...attribution.Culprit) attribution.CauseTotal {
	return attribution.CauseTotal{Cause: c, TotalNS: total, Count: 1, Who: who}
}

func TestVerdict(t *testing.T) {
	hog := attribution.Culprit{Name: "hog (pid 7)", TotalNS: 9000}
	for name, c := range map[string]struct {
		at50, at99 attribution.Split
		overall    []attribution.CauseTotal
		want       string
	}{
		"alike": {
			at50: splitOf(ns(100, 0, 0, 900, 0)), at99: splitOf(ns(200, 0, 0, 1000, 0)),
			want: "At the median (1.00 us) 90 % is wire (NIC, PCIe, fabric, peer), and at p99 (1.20 us) 83 %.",
		},
		"the tail is another class, by a named culprit": {
			at50: splitOf(ns(100, 0, 0, 900, 0)), at99: splitOf(ns(100, 0, 9000, 900, 0), took(attribution.Preempted, 9000, hog)),
			want: "At the median (1.00 us) 90 % is wire (NIC, PCIe, fabric, peer); at p99 (10.0 us) 90 % is scheduling, mostly preempted by hog (pid 7).",
		},
		"the culprit is only known over all": {
			at50: splitOf(ns(0, 0, 0, 1000, 0)), at99: splitOf(ns(0, 0, 9000, 0, 0), took(attribution.Runqueue, 9000)),
			overall: []attribution.CauseTotal{took(attribution.Runqueue, 9000, hog)},
			want:    "At the median (1.00 us) 100 % is wire (NIC, PCIe, fabric, peer); at p99 (9.00 us) 100 % is scheduling, mostly waiting for a CPU while hog (pid 7) ran.",
		},
		"many culprits, none leads": {
			at50: splitOf(ns(0, 0, 0, 1000, 0)), at99: splitOf(ns(0, 0, 99_000, 0, 0), took(attribution.Preempted, 99_000, hog)),
			want: "At the median (1.00 us) 100 % is wire (NIC, PCIe, fabric, peer); at p99 (99.0 us) 100 % is scheduling, mostly preempted.",
		},
		"no class has half": {
			at50: splitOf(ns(400, 300, 300, 0, 0)), at99: splitOf(ns(300, 400, 300, 0, 0)),
			want: "At the median (1.00 us) 40 % is software, the largest part; at p99 (1.00 us) 40 % is interrupt, the largest part.",
		},
		"a long wire leads, but the tail is made by something else": {
			at50: splitOf(ns(0, 0, 0, 100_000, 0)), at99: splitOf(ns(0, 0, 60_000, 110_000, 0), took(attribution.Throttled, 60_000)),
			want: "At the median (100 us) 100 % is wire (NIC, PCIe, fabric, peer), and at p99 (170 us) 65 %; what p99 adds to the median is 86 % scheduling, mostly throttled by its cgroup's CPU quota.",
		},
		"undecided could turn the order": {
			at50: splitOf(ns(100, 0, 0, 400, 500)), at99: splitOf(ns(100, 0, 0, 400, 500)),
			want: "At the median (1.00 us) 50 % and at p99 (1.00 us) 50 % is undecided between wire and late polling, so the largest part is not known.",
		},
		"undecided cannot turn the order": {
			at50: splitOf(ns(100, 0, 0, 700, 200)), at99: splitOf(ns(100, 0, 0, 400, 500)),
			want: "At the median (1.00 us) 70-90 % is wire (NIC, PCIe, fabric, peer); at p99 (1.00 us) 50 % is undecided between wire and late polling, so the largest part is not known.",
		},
		"our own probes are not the job's software": {
			at50: splitOf(ns(900, 0, 0, 300, 0), took(attribution.Probe, 800)), at99: splitOf(ns(900, 0, 0, 300, 0), took(attribution.Probe, 800)),
			want: "At the median (1.20 us) 75 % is wire (NIC, PCIe, fabric, peer), and at p99 (1.20 us) 75 %.",
		},
	} {
		r := &attribution.Report{AtP50: c.at50, AtP99: c.at99, Causes: c.overall,
			Latency: attribution.Distribution{Count: 1, P50NS: int64(c.at50.LatencyNS), P99NS: int64(c.at99.LatencyNS)}}
		if got := verdict(r); got != c.want {
			t.Errorf("%s:\ngot  %s\nwant %s", name, got, c.want)
		}
	}
}

func TestIdleness(t *testing.T) {
	busy := attribution.Backlog{Posted: 9, IdleNS: 400, WindowNS: 1000, IdleRunning: 400}
	idle := attribution.Backlog{Posted: 9, IdleNS: 900, WindowNS: 1000, IdleRunnable: 900}
	asleep := attribution.Backlog{Posted: 9, IdleNS: 600, WindowNS: 1000, IdleAsleep: 500, IdleRunning: 100, IdleSyscalls: []attribution.Culprit{{Name: "futex"}}}
	unused := attribution.Backlog{IdleNS: 1000, WindowNS: 1000}
	for want, ports := range map[string][]attribution.Backlog{
		"": {busy, idle, unused},
		"Nothing was in flight for 90 % of the window; meanwhile its posting thread was mostly waiting for a CPU.":                     {idle},
		"Even the busiest port had nothing in flight for 60 % of the window; meanwhile its posting thread was mostly asleep in futex.": {idle, asleep, unused},
	} {
		// Queue pairs that are used in turn idle, one by one.
		r := &attribution.Report{Queues: []attribution.Queue{{Backlog: idle}, {Backlog: idle}}}
		for _, b := range ports {
			r.Ports = append(r.Ports, attribution.PortReport{Backlog: b})
		}
		if got := idleness(r); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// A culprit's cgroup is named where it tells something, of a long path the part
// that does.
func TestWhoIn(t *testing.T) {
	const container = "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod2c48913c.slice/cri-containerd-62ab7eb5cdf5a32a4b1e32c9d60d65de.scope"
	for _, c := range []struct {
		in   attribution.Cgroup
		want string
	}{
		{attribution.Cgroup{}, "hog (pid 7)"},
		{attribution.Cgroup{Name: "/job"}, "hog (pid 7)"},
		{attribution.Cgroup{Name: "/batch.slice", Apart: true}, "hog (pid 7) in cgroup /batch.slice"},
		{attribution.Cgroup{Name: "(removed, id 44)", Apart: true}, "hog (pid 7) in cgroup (removed, id 44)"},
		{attribution.Cgroup{Name: container, Apart: true}, "hog (pid 7) in cgroup .../cri-containerd-62ab7eb5cdf5a32a4b..."},
		{attribution.Cgroup{Name: "/a\x1b[31m\n", Apart: true}, "hog (pid 7) in cgroup /a\uFFFD[31m\uFFFD"},
	} {
		if got := whoIn("hog (pid 7)", 60, c.in); got != c.want {
			t.Errorf("%q\nwant %q", got, c.want)
		}
	}
	if got := whoIn("a-very-long-name-of-a-hog", 10, attribution.Cgroup{}); got != "a-very-..." {
		t.Error(got)
	}
	if got, want := tell(attribution.Preempted, "hog (pid 7)", attribution.Cgroup{Name: "/b", Apart: true}, columnsOfWho), "preempted by hog (pid 7) in cgroup /b"; got != want {
		t.Error(got)
	}
}
