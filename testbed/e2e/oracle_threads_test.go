package e2e

import (
	"github.com/rdmatrace/rdmatrace/attribution"
)

// computed is for how long the dispatcher of these computes before it wakes the
// thread that polls, now and then, ns.
const computed = 300_000

// handedOff: the thread that is woken computes now and then before it wakes the one
// that polls.
func handedOff(t *trial, m matrix) {
	d := spinning(t.T, "LAT_NS=4000")
	calm, s := d.watchBoth(t, "oracle-threads shape=dispatcher depth=1", "oracle-threads shape=dispatcher depth=1 every=10 ns=300000", 2000)
	hit := func(w *measuredWR) bool { return w.waited() >= computed }
	if wholeOracle() {
		sameElsewhere(t, calm, s, hit)
	}
	late := where(s.wrs, hit)
	t.enough(100, len(late), "such that waited for the dispatcher")
	t.atLeast(0.99, late, "of the software class", func(w *measuredWR) bool { return w.in(attribution.Software)+w.host() >= computed*95/100 })
	t.atLeast(0.95, late, "handed off for as long as the dispatcher computed", func(w *measuredWR) bool {
		return w.of(attribution.Handoff, "")+w.host()+min(w.doubt(), w.in(attribution.Undecided)) >= computed*95/100
	})
	rest := where(s.wrs, func(w *measuredWR) bool { return !hit(w) })
	t.atLeast(0.98, rest, "not handed off for long", func(w *measuredWR) bool { return w.of(attribution.Handoff, "") < computed/2 })
	m.fill(s, attribution.Handoff, func(w *measuredWR) int64 {
		if !hit(w) {
			return 0
		}
		return computed - w.host()
	})
}

// lay demands that completions which lay there until somebody polled are polled
// late for so long, and gives the matrix all that hit says are such.
func (t *trial) lay(m matrix, s *seen, late []measuredWR, hit func(*measuredWR) bool) {
	t.atLeast(0.95, late, "polled late for as long as they lay there", func(w *measuredWR) bool {
		return w.near(w.of(attribution.LatePoll, "")+w.host(), w.waited())
	})
	m.fill(s, attribution.LatePoll, func(w *measuredWR) int64 {
		if !hit(w) {
			return 0
		}
		return w.waited() - w.host()
	})
}

// reaperLate: one thread posts and another reaps, which computes for long now and then.
func reaperLate(t *trial, m matrix) {
	d := spinning(t.T, "LAT_NS=4000")
	calm, s := d.watchBoth(t, "oracle-threads", "oracle-threads every=10 ns=300000", 3000)
	hit := func(w *measuredWR) bool { return w.waited()-w.host() >= computed/2 }
	sameElsewhere(t, calm, s, hit)
	late := stamped(t, where(s.wrs, hit), 50)
	t.atLeast(0.99, late, "of the software class", func(w *measuredWR) bool { return w.in(attribution.Software)+w.host()+w.doubt() >= w.waited()*95/100 })
	t.lay(m, s, late, hit)
}

// lateProxy: one thread of several queue pairs and CQs computes for long now and
// then; what completes meanwhile is polled late, on whichever it is. There is nothing
// to compare the others with: a pause brings its queue pairs into step, and then each
// waits for the turns of all.
func lateProxy(t *trial, m matrix) {
	const ns = 5_000_000
	d := spinning(t.T, "LAT_NS=4000")
	s := d.watch(t, d.job(t.T, "oracle-proxy size=4096 every=200 ns=5000000"), 4000)
	hit := func(w *measuredWR) bool { return w.waited()-w.host() >= ns/4 }
	late := stamped(t, where(s.wrs, hit), 20)
	t.lay(m, s, late, hit)
	queues := map[uint32]bool{}
	for i := range late {
		queues[late[i].QPNum] = true
	}
	t.within(len(queues) >= 4, "four queue pairs at least are late", "%d", len(queues))
}

// slowProxy: on the queue pairs of one thread notifications are slow on the wire.
func slowProxy(t *trial, m matrix) {
	d := spinning(t.T, "LAT_NS=4000")
	calm, s := d.watchBoth(t, "oracle-proxy size=4096", "oracle-proxy size=4096", 4000, "SLOW_EVERY=20", "SLOW_NS=1000000", "SLOW_OP=WRITE_IMM")
	slow := stamped(t, where(s.wrs, (*measuredWR).slow), 30)
	t.atLeast(0.99, slow, "of the wire class", func(w *measuredWR) bool { return w.in(attribution.Wire) >= w.Row.Injected*95/100 })
	t.atLeast(0.95, slow, "above the wire's floor by what was injected", func(w *measuredWR) bool { return w.above() >= w.Row.Injected*95/100 })
	// What other queue pairs have in flight does not wait for it.
	hit := map[uint32]bool{}
	for i := range slow {
		hit[slow[i].QPNum] = true
	}
	rest := where(s.wrs, func(w *measuredWR) bool { return !hit[w.QPNum] })
	t.enough(50, len(rest), "of queue pairs that were not slowed")
	sameElsewhere(t, calm, s, func(w *measuredWR) bool { return hit[w.QPNum] })
	t.atLeast(0.98, rest, "not held up by others", func(w *measuredWR) bool { return w.above()-max(0, w.late()) < 500_000 })
	m.fill(s, attribution.Excess, func(w *measuredWR) int64 { return w.Row.Injected })
}
