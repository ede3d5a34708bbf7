package e2e

import (
	"github.com/rdmatrace/rdmatrace/attribution"
)

// clockFault is a device's clock that is not the host's; step, if any, is set
// in the middle of the trace.
type clockFault struct {
	params []string
	step   string
}

func farClock(t *trial, m matrix) {
	clockFault{params: []string{"CLOCK_OFFSET_NS=987654321012345", "CLOCK_HZ=156250000"}}.test(t, m)
}

func fastClock(t *trial, m matrix) {
	clockFault{params: []string{"CLOCK_DRIFT_PPB=100000"}}.test(t, m)
}

func slowClock(t *trial, m matrix) {
	clockFault{params: []string{"CLOCK_DRIFT_PPB=-100000", "CLOCK_OFFSET_NS=31415926535"}}.test(t, m)
}

func realTimeClock(t *trial, m matrix) {
	clockFault{params: []string{"CLOCK_FORMAT=real", "CLOCK_OFFSET_NS=1700000000123456789", "CLOCK_DRIFT_PPB=20000"}}.test(t, m)
}

func steppingClock(t *trial, m matrix) {
	clockFault{step: "CLOCK_OFFSET_NS=5000000"}.test(t, m)
}

func steppingBack(t *trial, m matrix) {
	clockFault{step: "CLOCK_OFFSET_NS=-5000000"}.test(t, m)
}

// test: whatever the device's clock, its time stamps are used, and what is slow is
// found by them. see() has demanded that what they say is true.
func (f clockFault) test(t *trial, m matrix) {
	d := spinning(t.T, append([]string{"LAT_NS=4000", "SLOW_EVERY=20", "SLOW_NS=50000"}, f.params...)...)
	p := d.job(t.T, "oracle-poller op=read")
	tr := attach(t.T, p.Process.Pid)
	tr.sees(t.T, 2000)
	if f.step != "" {
		d.set(t.T, f.step)
		tr.sees(t.T, 6000)
	}
	got := tr.stop(t.T)
	p.running(t.T)
	p.stop()
	s := see(t, got, d.truth(t.T))
	t.atLeast(0.95, s.wrs, "known by their time stamps", func(w *measuredWR) bool { return w.DoneSource == attribution.DoneCQE })
	wireFault{cause: attribution.Excess}.demand(t, s)
	m.fill(s, attribution.Excess, func(w *measuredWR) int64 { return w.Row.Injected })
}
