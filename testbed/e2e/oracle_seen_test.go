package e2e

import (
	"fmt"
	"github.com/rdmatrace/rdmatrace/attribution"
	"github.com/rdmatrace/rdmatrace/testbed/softmlx5/truth"
)

// seen is a trace beside the truth.
type seen struct {
	*traced
	wrs []measuredWR // sends
}

// watch traces a job on a device until so many completions, ends both and
// compares. What any trace has to be is demanded here.
func (d *device) watch(t *trial, p *program, completions int) *seen {
	t.Helper()
	tr := traceFor(t.T, p.Process.Pid, completions)
	p.running(t.T)
	p.stop()
	return see(t, tr, d.truth(t.T))
}

// watchBoth traces a job without any fault, and then one with a habit, or with
// faults of the device that are set in between, or both.
func (d *device) watchBoth(t *trial, calmJob, job string, completions int, faults ...string) (calm, s *seen) {
	t.Helper()
	first, second := d.traceBoth(t, calmJob, job, completions, faults...)
	queues := d.truth(t.T)
	return see(t, first, queues), see(t, second, queues)
}

func (d *device) traceBoth(t *trial, calmJob, job string, completions int, faults ...string) (first, second *traced) {
	t.Helper()
	trace := func(job string) *traced {
		p := d.job(t.T, job)
		tr := traceFor(t.T, p.Process.Pid, completions)
		p.running(t.T)
		p.stop()
		return tr
	}
	first = trace(calmJob)
	if len(faults) > 0 {
		d.set(t.T, faults...)
	}
	return first, trace(job)
}

// sameElsewhere requires that work requests into which nothing was injected have no
// more software, interrupts and wire than those of a run beside it without faults.
// What others of the machine did meanwhile is scheduling, and left out. But others
// leave cold caches behind, the more the longer the job slept for its faults, and a
// virtual CPU that stands still is software to the guest: on a machine that is not
// idle, as the one of make test may be, the median is up to two and a half times as long.
func sameElsewhere(t *trial, calm, s *seen, hit func(w *measuredWR) bool) {
	t.Helper()
	rest := where(s.wrs, func(w *measuredWR) bool { return !hit(w) })
	quantiles, more := []float64{0.5}, int64(150)
	if wholeOracle() {
		quantiles, more = []float64{0.5, 0.9}, 10
	}
	for class, of := range map[attribution.Class]func(w *measuredWR) int64{
		attribution.Software:  func(w *measuredWR) int64 { return w.in(attribution.Software) },
		attribution.Interrupt: func(w *measuredWR) int64 { return w.in(attribution.Interrupt) },
		attribution.Wire:      func(w *measuredWR) int64 { return w.in(attribution.Wire) - w.late() },
	} {
		a, b := collect(calm.wrs, of), collect(rest, of)
		for _, q := range quantiles {
			x, y := quantile(a, q), quantile(b, q)
			t.within(y <= x+x*more/100+3_000, fmt.Sprintf("what was not hit has no more %s than without faults, at %.0f %%", class, 100*q), "%d ns, %d without", y, x)
		}
	}
}

// see compares a trace with the truth: it has lost nothing, its books balance,
// its parts add up, each work request is the one that the truth log has, and
// what is said for certain of when it was done is right.
func see(t *trial, tr *traced, queues map[truth.Queue][]truth.Row) *seen {
	t.Helper()
	tr.balance(t.T)
	tr.addUp(t.T)
	dropped := tr.dropped()
	if tr.WRs.Lost != 0 && len(dropped) == 0 {
		t.Errorf("%d lost, and nothing was dropped", tr.WRs.Lost)
	}
	if !t.within(tr.WRs.Lost == 0 && len(dropped) == 0, "nothing is lost", "%d of %d, dropped: %v", tr.WRs.Lost, tr.WRs.Posted, dropped) {
		t.Skipf("the claim that nothing is lost failed in this run, and where posts are missing none can be counted along the truth log; dropped: %v", dropped)
	}
	s := &seen{tr, pairUp(t.T, tr, queues)}
	if int64(len(s.wrs)) != tr.Latency.Count {
		t.Fatalf("%d work requests matched, %d in the report", len(s.wrs), tr.Latency.Count)
	}
	t.enough(50, len(s.wrs), "measured")
	t.atLeast(0.99, s.wrs, "completed in the range that is printed", (*measuredWR).inside)
	s.blind(t)
	t.atLeast(0.99, s.wrs, "not charged more wire, nor more host, than there was", (*measuredWR).honest)
	return s
}

// honest reports whether neither the wire, nor what the host is charged after
// it, is longer than it was. What is undecided may be either; and doubt up to
// 1 us or a tenth of the latency is not said (docs/architecture.md).
func (w *measuredWR) honest() bool {
	wire := max(0, w.Row.CQE-int64(w.PostEnd))
	host := w.latency() - w.in(attribution.Undecided) - w.in(attribution.Wire) - int64(w.PostEnd-w.PostBegin)
	slack := stampSlack + min(w.doubt(), max(1_000, w.latency()/10))
	if w.Row.Flags.Has(truth.Held) { // visible nobody knows when
		slack += int64(w.Reap) - w.Row.CQE
	}
	return w.in(attribution.Wire) <= wire+slack && host <= int64(w.Reap)-w.Row.CQE+slack
}

// doubt is the width of the range that the completion lies in, ns.
func (w *measuredWR) doubt() int64 { return int64(w.DoneHigh - w.DoneLow) }

// exact is the doubt up to which an amount has to be exact, ns.
const exact = 2_000

// near reports whether an amount is right: within 5 % or 2 us, and, where the
// report says that it does not know the completion that well, within what it says.
func (w *measuredWR) near(got, want int64) bool {
	tolerance := max(want/20, 2_000)
	if w.doubt() > exact {
		tolerance += w.doubt()
	}
	return abs(got-want) <= tolerance
}

// stamped are those of them whose completion was known by its time stamp, of
// which there have to be some. The others have been demanded to be honest.
func stamped(t *trial, wrs []measuredWR, least int) []measuredWR {
	t.Helper()
	out := where(wrs, func(w *measuredWR) bool { return w.DoneSource == attribution.DoneCQE })
	doubt := quantile(collect(out, (*measuredWR).doubt), 0.5)
	t.Logf("%d work requests were hit, %d of them have time stamps, with %d ns of doubt by the median", len(wrs), len(out), doubt)
	t.enough(least, len(out), "hit, and have time stamps")
	return out
}

// above is what the wire took above its floor, ns.
func (w *measuredWR) above() int64 {
	return w.of(attribution.Excess, "") + w.of(attribution.Congestion, "") + w.of(attribution.RNR, "") + w.of(attribution.Retransmit, "")
}

// host is all that happened on the reaping thread instead of what it was to do, ns.
func (w *measuredWR) host() int64 {
	return w.in(attribution.Scheduling) + w.of(attribution.IRQOnTop, "")
}
