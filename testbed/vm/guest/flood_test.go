package guest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rdmatrace/rdmatrace/attribution"
	"github.com/rdmatrace/rdmatrace/testbed/outcome"
)

// TestFlood sends datagrams to a NIC whose interrupts the client's CPU takes, every
// other quarter of a second: what its line and NET_RX run on top of the client is more
// in those than in between. It is one trace, as two of an emulated guest differ by more
// than that. The RDMA is on other NICs and that CPU not theirs: what a flood does there
// is to make completions late, which is before they are done.
//
// That software is not more can only be asked of the kernel's tracer there, which
// TestIndependentTruth and TestKsoftirqd do: none of a handler's time is taken for it.
// It does grow in an emulated guest, by what no tracepoint tells: see README.md.
func TestFlood(t *testing.T) {
	inGuest(t)
	for _, nic := range []string{"eth0", "eth1", "eth2"} {
		takeInterrupts(t, nic, freeCPU)
	}
	takeInterrupts(t, "eth3", busyCPU)
	var flood *process
	got := disturbedPair(t, "ib_send_lat -x 0 -F -n 1000", func(t *testing.T, client int) {
		bind(t, client, busyCPU)
		flood = datagrams(t, plainWire, "10", "500", "250000")
	})
	_ = flood.Process.Signal(unix.SIGTERM)
	flood.wait(t)
	calm, flooded := got.inTurns(turns(t, flood.output.String()))
	onTop := [2]int64{mean(calm.onTop), mean(flooded.onTop)}
	software := [2]int64{median(calm.software), median(flooded.software)}
	said := fmt.Sprintf("a work request has %d ns of irq-on-top by the NIC, with the flood %d ns; of software %d ns and %d ns; %d and %d work requests",
		onTop[0], onTop[1], software[0], software[1], len(calm.onTop), len(flooded.onTop))
	t.Log(said)
	if onTop[1] == 0 || 2*onTop[1] < 3*onTop[0] {
		t.Error("irq-on-top does not grow: " + said)
	}
	feature("flood of interrupts", "irq-on-top by the NIC grows from %.1f to %.1f us", float64(onTop[0])/1e3, float64(onTop[1])/1e3)
}

// A wire is where datagrams come from, and go to: see rdma.sh.
var (
	rdmaWire  = [2]string{"10.77.0.1", "10.77.0.2"} // eth0 to eth1
	plainWire = [2]string{"10.78.0.1", "10.78.0.2"} // eth2 to eth3
)

// datagrams come over a wire until the test is over: so many, each so many us, and what
// else vm-flood is told.
func datagrams(t *testing.T, wire [2]string, count, each string, more ...string) *process {
	flood := command(append([]string{binary(t, "vm-flood"), wire[0], wire[1], count, each}, more...)...)
	flood.start(t)
	bind(t, flood.Process.Pid, freeCPU)
	waitFor(t, "the flood to begin", func() bool {
		flood.running(t)
		return strings.HasPrefix(flood.output.String(), ready)
	})
	return flood
}

// hosted is what each of some work requests took on the host, ns: the NIC's handlers
// on top of the thread, and software.
type hosted struct{ onTop, software []int64 }

func mean(of []int64) int64 {
	var sum int64
	for _, ns := range of {
		sum += ns
	}
	return sum / int64(max(len(of), 1))
}

func median(of []int64) int64 {
	if len(of) == 0 {
		return 0
	}
	slices.Sort(of)
	return of[len(of)/2]
}

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
		var onTop, software int64
		for _, s := range segments {
			switch {
			case s.Cause == attribution.IRQOnTop && (strings.HasPrefix(s.Who, "virtio") || s.Who == "NET_RX softirq"):
				onTop += int64(s.End - s.Begin)
			case s.Cause.Class() == attribution.Software:
				software += int64(s.End - s.Begin)
			}
		}
		of.onTop, of.software = append(of.onTop, onTop), append(of.software, software)
	})
	return between, in
}
