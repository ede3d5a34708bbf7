package e2e

import (
	"fmt"
	"strings"

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

func slowWire(t *trial, m matrix) {
	wireFault{"wire", 20, 50_000, "oracle-poller op=read", attribution.Excess}.test(t, m)
}

// slowByLittle: by the least that has to be found.
func slowByLittle(t *trial, m matrix) {
	wireFault{"wire", 20, 10_000, "oracle-poller op=read", attribution.Excess}.test(t, m)
}

func slowCompletion(t *trial, m matrix) {
	wireFault{"cqe", 20, 20_000, "oracle-poller", attribution.Excess}.test(t, m)
}

func receiverNotReady(t *trial, m matrix) {
	wireFault{"rnr", 20, 655_360, "oracle-poller op=send", attribution.RNR}.test(t, m)
}

func retransmitted(t *trial, m matrix) {
	wireFault{"retransmit", 20, 4_194_304, "oracle-poller", attribution.Retransmit}.test(t, m)
}

// congested: held back on their way, of which the port's counters tell.
func congested(t *trial, m matrix) {
	wireFault{"congestion", 20, 50_000, "oracle-poller op=read", attribution.Congestion}.test(t, m)
}

// slowInSleep: it spins for a while, and sleeps until the event of a slow one.
func slowInSleep(t *trial, m matrix) {
	wireFault{"wire", 20, 1_000_000, "oracle-poller op=read wait=hybrid spin=50000", attribution.Excess}.test(t, m)
}

func (f wireFault) test(t *trial, m matrix) {
	d := spinning(t.T, "LAT_NS=4000")
	p := d.job(t.T, f.job)
	calm := traceFor(t.T, p.Process.Pid, 2000)
	d.set(t.T, fmt.Sprintf("SLOW_EVERY=%d", f.every), fmt.Sprintf("SLOW_NS=%d", f.ns), "SLOW_STAGE="+f.stage)
	slow := traceFor(t.T, p.Process.Pid, 2000)
	p.running(t.T)
	p.stop()
	queues := d.truth(t.T)
	before, s := see(t, calm, queues), see(t, slow, queues)
	f.demand(t, s)
	sameExcess(t, before, s)
	m.fill(s, f.cause, func(w *measuredWR) int64 { return w.Row.Injected })
}

// demand requires that the slow work requests are reported as what they are.
func (f wireFault) demand(t *trial, s *seen) {
	t.Helper()
	hit := where(s.wrs, (*measuredWR).slow)
	usual := lateness(s)
	want := func(w *measuredWR) int64 { return w.Row.Injected + w.late() - usual }
	sure := stamped(t, hit, 30)
	t.atLeast(0.99, sure, "of the wire class", func(w *measuredWR) bool {
		return w.in(attribution.Wire)+min(w.doubt(), w.in(attribution.Undecided)) >= want(w)-want(w)/20
	})
	t.atLeast(0.95, sure, "above the wire's floor by what was injected", func(w *measuredWR) bool { return w.near(w.above(), want(w)) })
	named := where(sure, func(w *measuredWR) bool { return f.named(w.late() - usual) })
	t.enough(30, len(named), "are of a length that names "+f.cause.FullName())
	var injected int64
	for i := range named {
		injected += want(&named[i]) - named[i].doubt()
	}
	got := s.Causes[f.cause.FullName()].TotalNS
	t.within(got >= injected-injected/20, f.cause.FullName()+" has what was injected", "%d of %d ns: %+v", got, injected, s.Causes)
	for _, c := range []attribution.Cause{attribution.Congestion, attribution.RNR, attribution.Retransmit} {
		if got := s.Causes[c.FullName()].TotalNS; c != f.cause && got != 0 {
			t.Errorf("%s is %d ns of the report, without having been", c.FullName(), got)
		}
	}
}

// named tells whether a slow work request can be called what it is, with what the
// device was late beside, ns. The timer of "receiver not ready" is recognised by
// how long it is, and what holds the device up for longer than a thirtieth of it
// makes another length; the others may be of any.
func (f wireFault) named(late int64) bool {
	return f.cause != attribution.RNR || late <= f.ns/30
}

// lateness is how late the device usually is at least, which makes part of the
// wire's floor: of work requests that were not slowed.
func lateness(s *seen) int64 {
	return quantile(collect(where(s.wrs, func(w *measuredWR) bool { return !w.slow() }), (*measuredWR).late), 0.1)
}

// sameExcess requires that work requests which were not slowed have no more
// excess than those of a run beside it without any slow ones. The device is
// not equally punctual in both: what the truth log knows of that is left out.
func sameExcess(t *trial, calm, s *seen) {
	t.Helper()
	more := func(s *seen) []int64 {
		usual := lateness(s)
		rest := where(s.wrs, func(w *measuredWR) bool { return w.DoneSource == attribution.DoneCQE && !w.slow() })
		return collect(rest, func(w *measuredWR) int64 { return w.above() - max(0, w.late()-usual) })
	}
	a, b := more(calm), more(s)
	for _, q := range []float64{0.5, 0.9} {
		x, y := quantile(a, q), quantile(b, q)
		// Runs differ by that much on a busy machine.
		t.within(y <= x+3_000, fmt.Sprintf("what was not slowed has no more excess than without slow ones, at %.0f %%", 100*q), "%d ns, %d without", y, x)
	}
}

// stuck: with faults of the device that hold up what is behind as well, all that
// requests were told to wait for is above the wire's floor, whether it was injected
// into them or into one in front, and none of it is called a queue.
func stuck(device, faults, job string, completions int) func(*trial, matrix) {
	return func(t *trial, m matrix) {
		d := spinning(t.T, device)
		calm, s := d.watchBoth(t, job, job, completions, strings.Fields(faults)...)
		told := func(w *measuredWR) int64 { return w.Row.CQEDue - w.Row.Doorbell }
		floor := quantile(collect(s.wrs, told), 0.1)
		held := func(w *measuredWR) int64 {
			if more := told(w) - floor; more >= 20_000 {
				return more
			}
			return 0
		}
		sameElsewhere(t, calm, s, func(w *measuredWR) bool { return held(w) > 0 })
		hit := stamped(t, where(s.wrs, func(w *measuredWR) bool { return held(w) > 0 }), 30)
		t.atLeast(0.99, hit, "of the wire class", func(w *measuredWR) bool {
			return w.in(attribution.Wire)+min(w.doubt(), w.in(attribution.Undecided)) >= held(w)*95/100
		})
		// The device is late beside. Some of that is usual, and part of the floor; how
		// much of it, only the device would know.
		usual := quantile(collect(where(s.wrs, func(w *measuredWR) bool { return held(w) == 0 }), (*measuredWR).late), 0.5)
		t.atLeast(0.95, hit, "above the wire's floor by what they were held up", func(w *measuredWR) bool {
			return w.near(w.above(), min(max(w.above(), held(w)+w.late()-usual), held(w)+w.late()))
		})
		m.fill(s, attribution.Excess, held)
	}
}

// eventLate: the completion is there in time, the event that tells of it is not.
func eventLate(t *trial, m matrix) { lateEvents(t, m, "LAT_NS=4000", "oracle-poller wait=event") }

// eventLateAfterSpin: it sleeps after it has spun in vain.
func eventLateAfterSpin(t *trial, m matrix) {
	lateEvents(t, m, "LAT_NS=200000", "oracle-poller wait=hybrid spin=50000")
}

func lateEvents(t *trial, m matrix, device, job string) {
	t.Helper()
	d := spinning(t.T, device)
	calm, s := d.watchBoth(t, job, job, 1500, "SLOW_STAGE=event", "SLOW_EVERY=20", "SLOW_NS=1000000")
	sameElsewhere(t, calm, s, (*measuredWR).slow)
	// An event that nobody slept for is late for nobody.
	hit := func(w *measuredWR) bool { return w.slow() && int64(w.Reap)-w.Row.CQE >= w.Row.Injected*9/10 }
	sure := stamped(t, where(s.wrs, hit), 30)
	t.atLeast(0.99, sure, "of the interrupt class", func(w *measuredWR) bool { return w.in(attribution.Interrupt) >= w.Row.Injected*9/10 })
	t.atLeast(0.95, sure, "late by a delivery of what was injected", func(w *measuredWR) bool { return w.near(w.of(attribution.Delivery, ""), w.Row.Injected) })
	rest := where(s.wrs, func(w *measuredWR) bool { return !w.slow() })
	t.atLeast(0.99, rest, "not late by a delivery", func(w *measuredWR) bool { return w.of(attribution.Delivery, "") < 100_000 })
	m.fill(s, attribution.Delivery, func(w *measuredWR) int64 {
		if !hit(w) {
			return 0
		}
		return w.Row.Injected
	})
}

// jitters: each takes another time, and each is over the floor by its own.
func jitters(t *trial, m matrix) {
	d := spinning(t.T, "LAT_NS=4000", "JITTER=exp:40000")
	s := d.watch(t, d.job(t.T, "oracle-poller op=read"), 3000)
	took := func(w *measuredWR) int64 { return w.Row.Injected + w.late() }
	floor := quantile(collect(s.wrs, took), 0.1)
	t.atLeast(0.95, stamped(t, s.wrs, 1000), "above the wire's floor by what was injected", func(w *measuredWR) bool {
		return w.near(w.above(), max(0, took(w)-floor))
	})
	m.fill(s, attribution.Excess, func(w *measuredWR) int64 { return took(w) - floor - known })
}

// inLine is how long a request waited until the port was free for it, ns.
func (w *measuredWR) inLine() int64 { return w.Row.Wire - w.Row.Doorbell }

// waitsFor requires that the time in line is charged to a cause.
func waitsFor(t *trial, s *seen, cause attribution.Cause, m matrix) {
	t.Helper()
	// Of those in front of it one or two may have been on their way already.
	lines := where(s.wrs, func(w *measuredWR) bool { return w.inLine() >= 20_000 })
	t.enough(200, len(lines), "such that waited for the port")
	of := func(w *measuredWR) int64 { return w.of(cause, "") }
	got, want := quantile(collect(lines, of), 0.5), quantile(collect(lines, (*measuredWR).inLine), 0.5)
	t.within(abs(got-want) <= want/5, cause.String()+" is the time in line by the median", "%d of %d ns", got, want)
	m.fill(s, cause, func(w *measuredWR) int64 {
		if w.inLine() < 20_000 {
			return 0
		}
		return w.inLine() * 9 / 10
	})
}

// behindOwn: big ones of one queue pair wait for those in front.
func behindOwn(t *trial, m matrix) {
	d := spinning(t.T, "LAT_NS=4000", "BYTE_PS=400")
	waitsFor(t, d.watch(t, d.job(t.T, "oracle-poller depth=8 size=65536"), 3000), attribution.SendQueue, m)
}

// behindOthers: big ones of two queue pairs wait for each other.
func behindOthers(t *trial, m matrix) {
	d := spinning(t.T, "LAT_NS=4000", "BYTE_PS=400")
	waitsFor(t, d.watch(t, d.job(t.T, "oracle-poller links=2 size=65536"), 3000), attribution.PortShare, m)
}
