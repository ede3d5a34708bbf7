package e2e

import (
	"strings"

	"github.com/rdmatrace/rdmatrace/attribution"
)

// quiet requires that the wire of work requests is its floor by the median: none
// of it queues, and none is above it but for the device's own lateness.
func quiet(t *trial, s *seen) {
	t.Helper()
	usual := quantile(collect(s.wrs, (*measuredWR).late), 0.1)
	wire := quantile(collect(s.wrs, func(w *measuredWR) int64 { return w.in(attribution.Wire) }), 0.5)
	for what, of := range map[string]func(w *measuredWR) int64{
		"above the floor": func(w *measuredWR) int64 { return w.above() - max(0, w.late()-usual) },
		"send-queue":      func(w *measuredWR) int64 { return w.of(attribution.SendQueue, "") },
	} {
		got := quantile(collect(s.wrs, of), 0.5)
		t.within(got <= max(wire/10, 1_000), what+": next to nothing by the median", "%d ns, of %d ns of wire; floors: %+v", got, wire, s.Causes)
	}
	for _, c := range []attribution.Cause{attribution.Congestion, attribution.RNR, attribution.Retransmit} {
		if got := s.Causes[c.FullName()].TotalNS; got != 0 {
			t.Errorf("%s is %d ns of the report, without having been", c.FullName(), got)
		}
	}
}

// unblamed requires that no incident is made of a habit of the job, of ns at a
// time, but for the few that a machine which stands still now and then makes.
func unblamed(t *trial, s *seen, ns int64) {
	t.Helper()
	incidents := 0
	for _, cause := range []attribution.Cause{attribution.OwnSleep, attribution.LatePoll} {
		for _, i := range s.Incidents {
			if i.Cause == cause.FullName() && i.EndNS-i.BeginNS >= ns/2 {
				incidents++
			}
			for _, a := range i.Also {
				if a.Cause == cause.FullName() && a.TotalNS >= ns/2 {
					incidents++
				}
			}
		}
	}
	t.within(incidents <= len(s.wrs)/50, "next to no incidents are of the job's own making", "%d of %d: %+v", incidents, len(s.Incidents), s.Incidents)
}

func nobody(*measuredWR) int64 { return 0 }

// silent is a job none of whose work requests waits behind another.
func silent(device, job string, completions int) func(*trial, matrix) {
	return func(t *trial, m matrix) {
		d := spinning(t.T, device)
		s := d.watch(t, d.job(t.T, job), completions)
		quiet(t, s)
		m.fill(s, attribution.SendQueue, nobody)
	}
}

// lazy: completions are taken late, and nobody needs them.
func lazy(t *trial, m matrix) {
	d := spinning(t.T, "LAT_NS=4000")
	s := d.watch(t, d.job(t.T, "oracle-poller lazy=16 between=compute ns=20000"), 2000)
	unblamed(t, s, 16*20_000)
	t.atLeast(0.9, s.wrs, "not proven to be needed", func(w *measuredWR) bool { return w.Demand == attribution.Unproven })
	text, stderr, code := say(t.T, "report", s.file)
	if code != 0 {
		t.Fatalf("report: %s", stderr)
	}
	t.within(!strings.Contains(text, "WHILE COMPLETIONS WAITED"), "nothing is said of what it did meanwhile", "late %+v:\n%s", s.Late, text)
	t.within(s.Late.UnprovenNS > s.WindowNS/2 && s.Late.RanNS+s.Late.SleptNS+s.Late.WaitedNS <= s.Late.UnprovenNS/10,
		"nearly all that waited is nobody's need", "of %d ns: %+v", s.WindowNS, s.Late)
	quiet(t, s)
}

// idle: a job that sleeps with nothing in flight is not late.
func idle(t *trial, m matrix) {
	d := spinning(t.T, "LAT_NS=4000")
	s := d.watch(t, d.job(t.T, "oracle-poller idle=5000000"), 150)
	unblamed(t, s, 5_000_000)
	for _, cause := range []attribution.Cause{attribution.OwnSleep, attribution.LatePoll} {
		t.atLeast(0.98, s.wrs, "without its sleep in "+cause.FullName(), func(w *measuredWR) bool { return w.of(cause, "") < 2_500_000 })
	}
	quiet(t, s)
	for _, q := range s.Queues {
		if q.Posted > 0 {
			t.within(q.IdleNS >= s.WindowNS*8/10, "it is idle most of the time", "queue pair %#x for %d of %d ns", q.QP, q.IdleNS, s.WindowNS)
		}
	}
	m.fill(s, attribution.OwnSleep, nobody)
}
