package e2e

import (
	"fmt"
	"testing"

	"github.com/rdmatrace/rdmatrace/attribution"
)

// wireFault is a fault of the wire, on one device before and after it is set.
type wireFault struct {
	stage string
	every int // of so many work requests one is slow
	ns    int64
	job   string
	cause attribution.Cause
}

func slowWire(t *testing.T, m matrix) {
	wireFault{"wire", 20, 50_000, "oracle-poller op=read", attribution.Excess}.test(t, m)
}

func slowCompletion(t *testing.T, m matrix) {
	wireFault{"cqe", 20, 20_000, "oracle-poller", attribution.Excess}.test(t, m)
}

func receiverNotReady(t *testing.T, m matrix) {
	wireFault{"rnr", 20, 655_360, "oracle-poller op=send", attribution.RNR}.test(t, m)
}

func retransmitted(t *testing.T, m matrix) {
	wireFault{"retransmit", 20, 4_194_304, "oracle-poller", attribution.Retransmit}.test(t, m)
}

func (f wireFault) test(t *testing.T, m matrix) {
	d := spinning(t, "LAT_NS=4000")
	p := d.job(t, f.job)
	calm := traceFor(t, p.Process.Pid, 2000)
	d.set(t, fmt.Sprintf("SLOW_EVERY=%d", f.every), fmt.Sprintf("SLOW_NS=%d", f.ns), "SLOW_STAGE="+f.stage)
	slow := traceFor(t, p.Process.Pid, 2000)
	p.running(t)
	p.stop()
	queues := d.truth(t)
	before, s := see(t, calm, queues), see(t, slow, queues)
	f.demand(t, s)
	sameExcess(t, before, s)
	m.fill(s, f.cause, func(w *measuredWR) int64 { return w.Row.Injected })
}

// demand requires that the slow work requests are reported as what they are.
func (f wireFault) demand(t *testing.T, s *seen) {
	t.Helper()
	hit := where(s.wrs, (*measuredWR).slow)
	usual := lateness(s)
	want := func(w *measuredWR) int64 { return w.Row.Injected + w.late() - usual }
	sure := stamped(t, hit, 30)
	atLeast(t, 0.99, sure, "of the wire class", func(w *measuredWR) bool {
		return w.in(attribution.Wire)+min(w.doubt(), w.in(attribution.Undecided)) >= want(w)-want(w)/20
	})
	atLeast(t, 0.95, sure, "above the wire's floor by what was injected", func(w *measuredWR) bool { return w.near(w.above(), want(w)) })
	var injected int64
	for i := range sure {
		injected += want(&sure[i]) - sure[i].doubt()
	}
	if got := s.Causes[f.cause.FullName()].TotalNS; got < injected-injected/20 {
		t.Errorf("%s is %d ns of the report, %d were injected: %+v", f.cause.FullName(), got, injected, s.Causes)
	}
	for _, c := range []attribution.Cause{attribution.Congestion, attribution.RNR, attribution.Retransmit} {
		if got := s.Causes[c.FullName()].TotalNS; c != f.cause && got != 0 {
			t.Errorf("%s is %d ns of the report, without having been", c.FullName(), got)
		}
	}
}

// lateness is how late the device usually is at least, which makes part of the
// wire's floor: of work requests that were not slowed.
func lateness(s *seen) int64 {
	return quantile(collect(where(s.wrs, func(w *measuredWR) bool { return !w.slow() }), (*measuredWR).late), 0.1)
}

// sameExcess requires that work requests which were not slowed have no more
// excess than those of a run beside it without any slow ones. The device is
// not equally punctual in both: what the truth log knows of that is left out.
func sameExcess(t *testing.T, calm, s *seen) {
	t.Helper()
	more := func(s *seen) []int64 {
		usual := lateness(s)
		rest := where(s.wrs, func(w *measuredWR) bool { return w.DoneSource == attribution.DoneCQE && !w.slow() })
		return collect(rest, func(w *measuredWR) int64 { return w.above() - max(0, w.late()-usual) })
	}
	a, b := more(calm), more(s)
	for _, q := range []float64{0.5, 0.9} {
		if x, y := quantile(a, q), quantile(b, q); y > x+3_000 { // runs differ by that much on a busy machine
			t.Errorf("excess at %.0f %% of what was not slowed is %d ns, %d without slow ones", 100*q, y, x)
		}
	}
}

// eventLate: the completion is there in time, the event that tells of it is not.
func eventLate(t *testing.T, m matrix) {
	d := spinning(t, "LAT_NS=4000", "SLOW_STAGE=event", "SLOW_EVERY=20", "SLOW_NS=1000000")
	s := d.watch(t, d.job(t, "oracle-poller wait=event"), 1500)
	// An event that nobody slept for is late for nobody.
	hit := func(w *measuredWR) bool { return w.slow() && int64(w.Reap)-w.Row.CQE >= w.Row.Injected*9/10 }
	sure := stamped(t, where(s.wrs, hit), 30)
	atLeast(t, 0.99, sure, "of the interrupt class", func(w *measuredWR) bool { return w.in(attribution.Interrupt) >= w.Row.Injected*9/10 })
	atLeast(t, 0.95, sure, "late by a delivery of what was injected", func(w *measuredWR) bool { return w.near(w.of(attribution.Delivery, ""), w.Row.Injected) })
	rest := where(s.wrs, func(w *measuredWR) bool { return !w.slow() })
	atLeast(t, 0.99, rest, "not late by a delivery", func(w *measuredWR) bool { return w.of(attribution.Delivery, "") < 100_000 })
	m.fill(s, attribution.Delivery, func(w *measuredWR) int64 {
		if !hit(w) {
			return 0
		}
		return w.Row.Injected
	})
}

// jitters: each takes another time, and each is over the floor by its own.
func jitters(t *testing.T, m matrix) {
	d := spinning(t, "LAT_NS=4000", "JITTER=exp:40000")
	s := d.watch(t, d.job(t, "oracle-poller op=read"), 3000)
	took := func(w *measuredWR) int64 { return w.Row.Injected + w.late() }
	floor := quantile(collect(s.wrs, took), 0.1)
	atLeast(t, 0.95, stamped(t, s.wrs, 1000), "above the wire's floor by what was injected", func(w *measuredWR) bool {
		return w.near(w.above(), max(0, took(w)-floor))
	})
	m.fill(s, attribution.Excess, func(w *measuredWR) int64 { return took(w) - floor - known })
}

// inLine is how long a request waited until the port was free for it, ns.
func (w *measuredWR) inLine() int64 { return w.Row.Wire - w.Row.Doorbell }

// waitsFor requires that the time in line is charged to a cause.
func waitsFor(t *testing.T, s *seen, cause attribution.Cause, m matrix) {
	t.Helper()
	// Of those in front of it one or two may have been on their way already.
	lines := where(s.wrs, func(w *measuredWR) bool { return w.inLine() >= 20_000 })
	if len(lines) < 200 {
		t.Fatalf("only %d of %d waited for the port", len(lines), len(s.wrs))
	}
	of := func(w *measuredWR) int64 { return w.of(cause, "") }
	got, want := quantile(collect(lines, of), 0.5), quantile(collect(lines, (*measuredWR).inLine), 0.5)
	if abs(got-want) > want/5 {
		t.Errorf("%s is %d ns by the median of those that waited for %d", cause, got, want)
	}
	m.fill(s, cause, func(w *measuredWR) int64 {
		if w.inLine() < 20_000 {
			return 0
		}
		return w.inLine() * 9 / 10
	})
}

// behindOwn: big ones of one queue pair wait for those in front.
func behindOwn(t *testing.T, m matrix) {
	d := spinning(t, "LAT_NS=4000", "BYTE_PS=400")
	waitsFor(t, d.watch(t, d.job(t, "oracle-poller depth=8 size=65536"), 3000), attribution.SendQueue, m)
}

// behindOthers: big ones of two queue pairs wait for each other.
func behindOthers(t *testing.T, m matrix) {
	d := spinning(t, "LAT_NS=4000", "BYTE_PS=400")
	waitsFor(t, d.watch(t, d.job(t, "oracle-poller links=2 size=65536"), 3000), attribution.PortShare, m)
}
