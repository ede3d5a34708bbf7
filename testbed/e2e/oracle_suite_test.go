package e2e

import "testing"

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
	{"event late", eventLate},
	{"computes before it polls", latePoll},
	{"always computes before it polls", alwaysLate},
	{"long pause", longPause},
	{"sleeps before it polls", ownSleep},
	{"preempted by a hog", preempted},
	{"yields to a hog", yielded},
	{"throttled by its quota", throttled},
	{"deep queue on a long wire", deepQueue},
	{"reaped lazily", lazy},
	{"notified of a big one", notified},
	{"two queue pairs share the port", sharedPort},
	{"idle", idle},
}

// The report finds what was injected: the right class, cause, amount and
// culprit; and it is silent about what was not.
func TestOracle(t *testing.T) {
	m := matrix{}
	for _, o := range oracles {
		t.Run(o.name, func(t *testing.T) { o.run(t, m) })
	}
	m.finish(t)
}
