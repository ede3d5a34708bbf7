package guest

import (
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rdmatrace/rdmatrace/attribution"
	"github.com/rdmatrace/rdmatrace/testbed/outcome"
)

// TestFlood sends datagrams to the NIC whose interrupts the client's CPU takes, every
// other quarter of a second: irq-on-top is more in those than in between, software is
// not. It is one trace, as two of an emulated guest differ by more than that.
func TestFlood(t *testing.T) {
	inGuest(t)
	takeInterrupts(t, "eth1", busyCPU)
	var flood *process
	got := disturbedPair(t, "ib_send_lat -x 0 -F -n 2000", func(t *testing.T, client int) {
		bind(t, client, busyCPU)
		flood = datagrams(t, "500", "250000")
	})
	_ = flood.Process.Signal(unix.SIGTERM)
	flood.wait(t)
	calm, flooded := got.inTurns(turns(t, flood.output.String()))
	onTop := [2]float64{calm.mean(calm.onTop), flooded.mean(flooded.onTop)}
	software := [2]float64{calm.mean(calm.software), flooded.mean(flooded.software)}
	said := fmt.Sprintf("a work request has %.0f ns of irq-on-top, with the flood %.0f ns; of software %.0f ns and %.0f ns; %d and %d work requests",
		onTop[0], onTop[1], software[0], software[1], calm.n, flooded.n)
	t.Log(said)
	// Software grows a little, by what it takes to record a handler and to come back from it.
	if grown, more := onTop[1]-onTop[0], software[1]-software[0]; 2*onTop[1] < 3*onTop[0] || more > grown {
		t.Error("irq-on-top does not grow, or software does: " + said)
	}
	feature("flood of interrupts", "irq-on-top %.1f times as long", onTop[1]/max(onTop[0], 1))
}

// datagrams come to the client's CPU, ten each so many us, until the test is over;
// with the length of a turn, in us, every other turn.
func datagrams(t *testing.T, each string, turn ...string) *process {
	flood := command(append([]string{binary(t, "vm-flood"), "10.77.0.1", "10.77.0.2", "10", each}, turn...)...)
	flood.start(t)
	bind(t, flood.Process.Pid, freeCPU)
	waitFor(t, "the flood to begin", func() bool {
		flood.running(t)
		return strings.HasPrefix(flood.output.String(), ready)
	})
	return flood
}

// hosted is what some work requests took on the host, ns.
type hosted struct {
	n               int
	onTop, software int64
}

func (h *hosted) mean(ns int64) float64 { return float64(ns) / float64(max(h.n, 1)) }

// drained is how long after a turn its datagrams may still be handled, ns.
const drained = 20_000_000

// inTurns analyses the capture again, and tells the work requests between turns from
// those that were posted and reaped in one.
func (got *traced) inTurns(turns [][2]uint64) (between, in hosted) {
	outcome.Observe(got.events, got.ctx, func(w *attribution.WR, segments []attribution.Segment) {
		of := &between
		for i, turn := range turns {
			switch {
			case w.PostBegin >= turn[0] && w.Reap <= turn[1]:
				of = &in
			case w.PostBegin < turn[1]+drained && w.Reap > turn[0]:
				return
			case i == 0 && w.PostBegin < turn[0]:
				return // the first one's caches are cold
			}
		}
		of.n++
		for _, s := range segments {
			switch {
			case s.Cause == attribution.IRQOnTop:
				of.onTop += int64(s.End - s.Begin)
			case s.Cause.Class() == attribution.Software:
				of.software += int64(s.End - s.Begin)
			}
		}
	})
	return between, in
}
