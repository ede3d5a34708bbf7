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
	const second = 1_000_000_000
	for _, c := range []struct {
		name     string
		marks    counts
		counters []event.PortCounter
		want     map[Cause]Cause
		stalled  uint64 // ns in which some WR was above the floor
	}{
		{name: "nothing moved", marks: counts{RNR: 3, Retransmit: 3, Excess: 9}, counters: []event.PortCounter{moved("hw_counters/rnr_nak_retry_err", 0)},
			want: map[Cause]Cause{RNR: Excess, Retransmit: Excess, Excess: Excess}},
		{name: "receiver not ready", marks: counts{RNR: 3, Excess: 9}, counters: []event.PortCounter{moved("hw_counters/rnr_nak_retry_err", 4)},
			want: map[Cause]Cause{RNR: RNR, Excess: Excess}},
		{name: "the peer's counters would tell, ours do not", marks: counts{RNR: 3}, counters: []event.PortCounter{moved("hw_counters/out_of_buffer", 4)},
			want: map[Cause]Cause{RNR: Excess}},
		{name: "retransmission", marks: counts{Retransmit: 3}, counters: []event.PortCounter{moved("hw_counters/local_ack_timeout_err", 3)},
			want: map[Cause]Cause{Retransmit: Retransmit}},
		{name: "adaptive retransmission, of lengths that fit timers too", marks: counts{RNR: 1, Retransmit: 3}, counters: []event.PortCounter{moved("hw_counters/roce_adp_retrans", 9)},
			want: map[Cause]Cause{Retransmit: Retransmit, RNR: Retransmit}},
		{name: "one lost packet does not explain a thousand stalls", marks: counts{Retransmit: 1000}, counters: []event.PortCounter{moved("hw_counters/packet_seq_err", 1)},
			want: map[Cause]Cause{Retransmit: Excess}},
		{name: "congestion", marks: counts{Excess: 500}, counters: []event.PortCounter{moved("hw_counters/rp_cnp_handled", 184)},
			want: map[Cause]Cause{Excess: Congestion}},
		// At 100 Gb/s a tick of 4 bytes is 0.32 ns.
		{name: "a port that waited for a fifth of the time", marks: counts{Excess: 5000}, stalled: second / 10,
			counters: []event.PortCounter{moved("port_xmit_wait", second/50*100/32)}, want: map[Cause]Cause{Excess: Congestion}},
		{name: "more ticks than stalls, but they are short", marks: counts{Excess: 5000}, stalled: second / 10,
			counters: []event.PortCounter{moved("port_xmit_wait", 3_000_000)}, want: map[Cause]Cause{Excess: Excess}},
		{name: "a port that did not wait", marks: counts{Excess: 5}, stalled: second,
			counters: []event.PortCounter{moved("port_xmit_wait", 0)}, want: map[Cause]Cause{Excess: Excess}},
		{name: "congestion, of lengths that fit other names", marks: counts{RNR: 7, Retransmit: 2, Excess: 500}, counters: []event.PortCounter{moved("hw_counters/rp_cnp_handled", 184)},
			want: map[Cause]Cause{RNR: Congestion, Retransmit: Congestion, Excess: Congestion}},
		{name: "a port that waited, of lengths that fit a timer", marks: counts{RNR: 7}, stalled: second / 10,
			counters: []event.PortCounter{moved("port_xmit_wait", second/50*100/32)}, want: map[Cause]Cause{RNR: Congestion}},
		{name: "a port that waited for less, of lengths that fit a timer", marks: counts{RNR: 7}, stalled: second / 10,
			counters: []event.PortCounter{moved("port_xmit_wait", 3_000_000)}, want: map[Cause]Cause{RNR: Excess}},
		{name: "soft-RoCE", marks: counts{RNR: 5}, counters: []event.PortCounter{moved("hw_counters/rcvd_rnr_err", 5)},
			want: map[Cause]Cause{RNR: RNR}},
		{name: "a counter that was reset", marks: counts{RNR: 5}, counters: []event.PortCounter{{Name: "rnr_nak_retry_err", Start: 90, Stop: 5}},
			want: map[Cause]Cause{RNR: RNR}},
	} {
		t.Run(c.name, func(t *testing.T) {
			port := &tracedPort{name: portName{"mlx5_0", 1}}
			for mark, n := range c.marks {
				port.stalls.wrs[mark] = n
				port.stalls.stalled[mark].add(1000, 1000+c.stalled)
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
