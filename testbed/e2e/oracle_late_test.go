package e2e

import (
	"github.com/rdmatrace/rdmatrace/attribution"
)

// rounds are the work requests of every Nth round of an oracle-poller that has
// one of 64 bytes a round: it takes one block of the queue.
func rounds(every uint64) func(w *measuredWR) bool {
	return func(w *measuredWR) bool { return (w.Row.Index+1)%every == 0 }
}

// intended is how much later than done the job was to poll: it does something
// else for ns from the end of its post on.
func (w *measuredWR) intended(ns int64) int64 { return int64(w.PostEnd) + ns - w.Row.CQE }

// polledLate requires that those hit were late for ns, and that all of it but
// what happened to the thread meanwhile is called a late poll.
// It returns how many were hit by little else.
func polledLate(t *trial, hit []measuredWR, ns int64) int {
	t.Helper()
	late := func(w *measuredWR) int64 { return w.of(attribution.LatePoll, "") }
	t.atLeast(0.99, hit, "of the software class", func(w *measuredWR) bool {
		return w.in(attribution.Software)+w.host()+w.doubt() >= w.intended(ns)-w.intended(ns)/20
	})
	// Where the device is late, the job is not.
	calm := where(hit, func(w *measuredWR) bool { return w.host() <= ns/100 && w.intended(ns) >= ns/2 })
	if t.Logf("to %d of them little else happened", len(calm)); len(calm) > 0 {
		// To poll takes time as well, of which the job knows nothing.
		t.atLeast(0.95, calm, "polled late by what was intended", func(w *measuredWR) bool {
			return w.near(late(w), min(max(late(w), w.intended(ns)), max(w.intended(ns), int64(w.Reap)-w.Row.CQE)))
		})
	}
	return len(calm)
}

// intendedIn is intended of those rounds, 0 of others.
func intendedIn(every uint64, ns int64) func(w *measuredWR) int64 {
	return func(w *measuredWR) int64 {
		if !rounds(every)(w) {
			return 0
		}
		return w.intended(ns) - w.host()
	}
}

// latePoll: now and then it computes between posting and polling.
func latePoll(t *trial, m matrix) {
	d := spinning(t.T, "LAT_NS=4000")
	calm, s := d.watchBoth(t, "oracle-poller", "oracle-poller between=compute ns=200000 every=10", 2000)
	sameElsewhere(t, calm, s, rounds(10))
	polledLate(t, stamped(t, where(s.wrs, rounds(10)), 100), 200_000)
	rest := where(s.wrs, func(w *measuredWR) bool { return !rounds(10)(w) })
	t.atLeast(0.95, rest, "not polled late", func(w *measuredWR) bool { return w.of(attribution.LatePoll, "") < 20_000 })
	m.fill(s, attribution.LatePoll, intendedIn(10, 200_000))
}

// lateByLittle: by the least that has to be found.
func lateByLittle(t *trial, m matrix) {
	d := spinning(t.T, "LAT_NS=4000")
	calm, s := d.watchBoth(t, "oracle-poller", "oracle-poller between=compute ns=14000 every=10", 2000)
	sameElsewhere(t, calm, s, rounds(10))
	polledLate(t, stamped(t, where(s.wrs, rounds(10)), 100), 14_000)
	m.fill(s, attribution.LatePoll, intendedIn(10, 14_000))
}

// alwaysLate: no poll is ever soon after a completion, so nothing tells when
// the device's clock was what. The range that is printed must hold the truth; see() demands it. Doubt of less than a tenth is not said.
func alwaysLate(t *trial, _ matrix) {
	d := spinning(t.T, "LAT_NS=4000")
	s := d.watch(t, d.job(t.T, "oracle-poller between=compute ns=50000"), 2000)
	t.atLeast(0.99, s.wrs, "of the software class, or said not to be sure", func(w *measuredWR) bool {
		return w.in(attribution.Software)+w.in(attribution.Undecided)+w.host()+min(w.doubt(), w.latency()/10) >= w.intended(50_000)
	})
}

// longPause: once in a while it computes for long.
func longPause(t *trial, m matrix) {
	d := spinning(t.T, "LAT_NS=4000")
	calmly, s := d.watchBoth(t, "oracle-poller", "oracle-poller between=compute ns=20000000 every=200", 2000)
	sameElsewhere(t, calmly, s, rounds(200))
	calm := polledLate(t, stamped(t, where(s.wrs, rounds(200)), 5), 20_000_000)
	found := calm == 0 // others of the machine, that cut the pauses in pieces, may then be worse
	for _, i := range s.Incidents {
		found = found || i.Cause == "software.late-poll"
		for _, a := range i.Also {
			found = found || a.Cause == "software.late-poll" && a.TotalNS >= 10_000_000
		}
	}
	t.within(found, "a pause is among the incidents", "%+v", s.Incidents)
	m.fill(s, attribution.LatePoll, intendedIn(200, 20_000_000))
}

// ownSleep: it sleeps between posting and polling, in a system call that has a name.
func ownSleep(t *trial, m matrix) {
	const ns = 1_000_000
	d := spinning(t.T, "LAT_NS=4000")
	calm, s := d.watchBoth(t, "oracle-poller", "oracle-poller between=sleep ns=1000000 every=10", 2000)
	sameElsewhere(t, calm, s, rounds(10))
	hit := stamped(t, where(s.wrs, rounds(10)), 100)
	slept := func(w *measuredWR) int64 { return w.of(attribution.OwnSleep, "clock_nanosleep") }
	// It begins a little after the post and ends when its timer is served.
	least := func(w *measuredWR) int64 { return w.intended(ns) }
	t.atLeast(0.99, hit, "of the software class", func(w *measuredWR) bool { return w.in(attribution.Software) >= least(w)*95/100 })
	t.atLeast(0.95, hit, "asleep in clock_nanosleep for its time", func(w *measuredWR) bool { return slept(w) >= least(w)*98/100 })
	got, want := quantile(collect(hit, slept), 0.5), quantile(collect(hit, least), 0.5)
	t.within(abs(got-want) <= want/20, "it slept as long as asked for by the median", "%d of %d ns", got, want)
	rest := where(s.wrs, func(w *measuredWR) bool { return !rounds(10)(w) })
	t.atLeast(1, rest, "never asleep", func(w *measuredWR) bool { return w.of(attribution.OwnSleep, "") == 0 })
	m.fill(s, attribution.OwnSleep, intendedIn(10, ns))
}
