package attribution

import (
	"strings"
	"testing"

	"github.com/rdmatrace/rdmatrace/event"
)

func TestStallCause(t *testing.T) {
	const floor = 5_000
	for _, c := range []struct {
		name    string
		excess  uint64
		timeout uint8
		want    Cause
	}{
		{"jitter", 3_000, 14, Excess},
		{"short of twice the floor", 9_999, 14, Excess},
		{"timer 0: 655.36 ms", 655_360_000 + 3_000, 14, RNR},
		{"timer 0, three times", 3*655_360_000 + 20_000, 14, RNR},
		{"timer 12: 0.64 ms", 641_000, 14, RNR},
		{"timer 1: 10 us", 12_000, 14, RNR},
		{"timeout 14: 67.1 ms", 67_108_864 + 40_000_000, 14, Retransmit},
		{"timeout 14, seven times", 7*67_108_864 + 9_000_000, 14, Retransmit},
		{"adaptive: 2 ms after a start anywhere", 2_200_000, 18, Retransmit},
		{"timeout not known", 4_350_000, 0, Retransmit},
		{"far above the floor, but short", 57_000, 14, Excess},
	} {
		qp := testQP(1)
		qp.timeout = c.timeout
		if got := stallCause(c.excess, floor, qp); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

func portContext(name string, counters ...event.PortCounter) *event.Context {
	return &event.Context{
		Window:  event.Window{Begin: 0, End: 10_000_000_000},
		Devices: []event.Device{{Name: name, Ports: []event.Port{{Number: 1, RateBPS: 100e9, Counters: counters}}}},
	}
}

func moved(name string, by uint64) event.PortCounter {
	return event.PortCounter{Name: name, Start: 1000, Stop: 1000 + by}
}

// Without a counter that moved there is no name but excess; with one, only for
// what it speaks for, and only as far as it explains the number of stalls.
func TestRenamingNeedsEvidence(t *testing.T) {
	type counts map[Cause]int64
	for _, c := range []struct {
		name     string
		marks    counts
		counters []event.PortCounter
		want     map[Cause]Cause
	}{
		{"nothing moved", counts{RNR: 3, Retransmit: 3, Excess: 9}, []event.PortCounter{moved("hw_counters/rnr_nak_retry_err", 0)},
			map[Cause]Cause{RNR: Excess, Retransmit: Excess, Excess: Excess}},
		{"receiver not ready", counts{RNR: 3, Excess: 9}, []event.PortCounter{moved("hw_counters/rnr_nak_retry_err", 4)},
			map[Cause]Cause{RNR: RNR, Excess: Excess}},
		{"the peer's counters would tell, ours do not", counts{RNR: 3}, []event.PortCounter{moved("hw_counters/out_of_buffer", 4)},
			map[Cause]Cause{RNR: Excess}},
		{"retransmission", counts{Retransmit: 3}, []event.PortCounter{moved("hw_counters/local_ack_timeout_err", 3)},
			map[Cause]Cause{Retransmit: Retransmit}},
		{"adaptive retransmission, of lengths that fit timers too", counts{RNR: 1, Retransmit: 3}, []event.PortCounter{moved("hw_counters/roce_adp_retrans", 9)},
			map[Cause]Cause{Retransmit: Retransmit, RNR: Retransmit}},
		{"one lost packet does not explain a thousand stalls", counts{Retransmit: 1000}, []event.PortCounter{moved("hw_counters/packet_seq_err", 1)},
			map[Cause]Cause{Retransmit: Excess}},
		{"congestion", counts{Excess: 500}, []event.PortCounter{moved("hw_counters/rp_cnp_handled", 184)},
			map[Cause]Cause{Excess: Congestion}},
		{"soft-RoCE", counts{RNR: 5}, []event.PortCounter{moved("hw_counters/rcvd_rnr_err", 5)},
			map[Cause]Cause{RNR: RNR}},
		{"a counter that was reset", counts{RNR: 5}, []event.PortCounter{{Name: "rnr_nak_retry_err", Start: 90, Stop: 5}},
			map[Cause]Cause{RNR: RNR}},
	} {
		t.Run(c.name, func(t *testing.T) {
			port := &tracedPort{name: portName{"mlx5_0", 1}}
			for mark, n := range c.marks {
				port.stalls.wrs[mark] = n
			}
			called, why := newRenaming(portContext("mlx5_0", c.counters...), []*tracedPort{port})
			renamed := 0
			for mark, want := range c.want {
				if called[mark] != want {
					t.Errorf("%s is called %s, want %s", mark, called[mark], want)
				}
				if want != Excess {
					renamed++
				}
			}
			if len(why) != renamed {
				t.Errorf("%d names are explained by %q", renamed, why)
			}
			for c := range numCauses {
				if called[c].Class() != c.Class() {
					t.Errorf("%s became %s", c, called[c])
				}
			}
		})
	}
}

// A port without evidence keeps the name from all: the sums are of all ports.
func TestRenamingNeedsEvidenceOfEveryPort(t *testing.T) {
	quiet, lossy := &tracedPort{name: portName{"mlx5_1", 1}}, &tracedPort{name: portName{"mlx5_0", 1}}
	quiet.stalls.wrs[Retransmit], lossy.stalls.wrs[Retransmit] = 5, 5
	ctx := portContext("mlx5_0", moved("packet_seq_err", 5))
	if called, _ := newRenaming(ctx, []*tracedPort{lossy, quiet}); called[Retransmit] != Excess {
		t.Errorf("called %s", called[Retransmit])
	}
	quiet.stalls.wrs[Retransmit] = 0
	called, why := newRenaming(ctx, []*tracedPort{lossy, quiet})
	if called[Retransmit] != Retransmit || len(why) != 1 || !strings.Contains(why[0], "packet_seq_err +5") {
		t.Errorf("called %s because %q", called[Retransmit], why)
	}
}
