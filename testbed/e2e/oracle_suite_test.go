package e2e

import (
	"os"
	"strings"
	"testing"
)

// oracles are the faults of which a report has to say what they are, and what
// looks like one and must not be blamed. Each gives its work requests to the matrix.
var oracles = []struct {
	name   string
	always bool // not only in make oracle
	run    func(t *trial, m matrix)
}{
	{"slow wire", true, slowWire},
	{"slow by 10 us", false, slowByLittle},
	{"slow completion", false, slowCompletion},
	{"no receive posted", true, receiverNotReady},
	{"lost and sent again", false, retransmitted},
	{"congested", false, congested},
	{"slow in its sleep", false, slowInSleep},
	{"jitter", false, jitters},
	{"behind its own", true, behindOwn},
	{"behind another queue pair", false, behindOthers},
	{"clock far off", true, farClock},
	{"clock fast", false, fastClock},
	{"clock slow", false, slowClock},
	{"real-time clock", false, realTimeClock},
	{"clock steps", false, steppingClock},
	{"clock steps back", false, steppingBack},
	{"event late", true, eventLate},
	{"event late after a spin", false, eventLateAfterSpin},
	{"computes before it polls", true, latePoll},
	{"always computes before it polls", false, alwaysLate},
	{"computes a little before it polls", false, lateByLittle},
	{"long pause", false, longPause},
	{"sleeps before it polls", false, ownSleep},
	{"preempted by a hog", true, preempted},
	{"yields to a hog", false, yielded},
	{"woken, but a hog runs", false, wokenLate},
	{"throttled by its quota", false, throttled},
	{"handed off late", true, handedOff},
	{"another thread reaps late", false, reaperLate},
	{"slow for another reaper", false, stuck("LAT_NS=4000", "SLOW_EVERY=20 SLOW_NS=50000", "oracle-threads size=4096", 3000)},
	{"slow on an extended queue", false, stuck("LAT_NS=4000", "SLOW_EVERY=20 SLOW_NS=50000", "oracle-poller op=read depth=2 cq=ex", 3000)},
	{"slow in unsignalled batches", false, stuck("LAT_NS=4000", "SLOW_EVERY=100 SLOW_NS=100000", "oracle-threads batch=4 depth=1 gap=20000", 3000)},
	{"a burst in a deep queue", false, stuck("LAT_NS=200000", "SLOW_EVERY=400 BURST=4 SLOW_NS=400000", "oracle-poller depth=16", 6000)},
	{"receives wait for their peer", false, peerWaits},
	{"received late", false, receivedLate("oracle-receiver")},
	{"received late from a shared queue", false, receivedLate("oracle-receiver links=4 srq=1")},
	{"a proxy is late", false, lateProxy},
	{"slow for a proxy", false, slowProxy},
	{"deep queue on a long wire", true, silent("LAT_NS=500000", "oracle-poller depth=16", 3000)},
	{"reaped lazily", true, lazy},
	// A notification of 0 bytes behind an unsignalled WRITE in the same call is as
	// long as that takes; it does not wait for it.
	{"notified of a big one", false, silent("LAT_NS=4000", "oracle-poller op=write_imm size=0 big=262144", 1000)},
	{"two queue pairs share the port", false, silent("LAT_NS=4000", "oracle-poller links=2 size=65536", 2000)},
	{"idle", false, idle},
}

// wholeOracle says that all cases are wanted, which takes minutes: make oracle.
func wholeOracle() bool { return os.Getenv("RDMATRACE_ORACLE") != "" }

// The report finds what was injected: the right class, cause, amount and
// culprit; and it is silent about what was not.
func TestOracle(t *testing.T) {
	var rows strings.Builder
	for _, o := range oracles {
		if o.always || wholeOracle() {
			t.Run(o.name, func(t *testing.T) { rows.WriteString(try(t, o.run).rows(o.name)) })
		}
	}
	publish(t, rows.String())
}
