package e2e

import (
	"os"
	"strings"
	"testing"
)

// oracles are the faults of which a report has to say what they are, and what
// looks like one and must not be blamed. Each gives its work requests to the matrix.
var oracles = []struct {
	name string
	run  func(t *testing.T, m matrix)
}{
	{"slow wire", slowWire},
	{"slow completion", slowCompletion},
	{"no receive posted", receiverNotReady},
	{"lost and sent again", retransmitted},
	{"jitter", jitters},
	{"behind its own", behindOwn},
	{"behind another queue pair", behindOthers},
	{"clock far off", farClock},
	{"clock fast", fastClock},
	{"clock slow", slowClock},
	{"real-time clock", realTimeClock},
	{"clock steps", steppingClock},
	{"clock steps back", steppingBack},
	{"event late", eventLate},
	{"computes before it polls", latePoll},
	{"always computes before it polls", alwaysLate},
	{"long pause", longPause},
	{"sleeps before it polls", ownSleep},
	{"preempted by a hog", preempted},
	{"yields to a hog", yielded},
	{"woken, but a hog runs", wokenLate},
	{"throttled by its quota", throttled},
	{"handed off late", handedOff},
	{"a proxy is late", lateProxy},
	{"slow for a proxy", slowProxy},
	{"deep queue on a long wire", silent("LAT_NS=500000", "oracle-poller depth=16", 3000)},
	{"reaped lazily", lazy},
	// A notification of 0 bytes behind an unsignalled WRITE in the same call is as
	// long as that takes; it does not wait for it.
	{"notified of a big one", silent("LAT_NS=4000", "oracle-poller op=write_imm size=0 big=262144", 1000)},
	{"two queue pairs share the port", silent("LAT_NS=4000", "oracle-poller links=2 size=65536", 2000)},
	{"idle", idle},
}

// wantOracle skips what has to compare amounts, which on a machine with other
// work are as often the machine's as the injected ones.
func wantOracle(t *testing.T) {
	t.Helper()
	if os.Getenv("RDMATRACE_ORACLE") == "" {
		t.Skip("needs an idle machine for three minutes: make oracle")
	}
}

// The report finds what was injected: the right class, cause, amount and
// culprit; and it is silent about what was not.
func TestOracle(t *testing.T) {
	wantOracle(t)
	var rows strings.Builder
	for _, o := range oracles {
		t.Run(o.name, func(t *testing.T) {
			m := matrix{}
			o.run(t, m)
			rows.WriteString(m.rows(o.name))
		})
	}
	publish(t, rows.String())
}
