package tracer

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rdmatrace/rdmatrace/bpf"
	"github.com/rdmatrace/rdmatrace/event"
)

// TestLossesAreOfEvents: each drop is told once, from the look before, and a
// dropped stack takes nothing from the events.
func TestLossesAreOfEvents(t *testing.T) {
	m := lossMeter{stats: make([]bpf.RdmaStats, 2)}
	m.since(100)
	report := func(now uint64) (got []event.Event) {
		t.Helper()
		err := m.report(now, func(e *event.Event) error {
			got = append(got, *e)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	drop := func(cpu int, kind bpf.RdmaRecordKind, n, at uint64) {
		lost := &m.stats[cpu].Dropped[kind]
		lost.Count, lost.Last = lost.Count+n, at
	}
	drop(0, bpf.RdmaRecordKindRECORD_STACK, 3, 140)
	drop(0, bpf.RdmaRecordKindRECORD_LIBRARY, 1, 150)
	drop(1, bpf.RdmaRecordKindRECORD_WR, 2, 160)
	want := []event.Event{{Time: 160, CPU: 1, Kind: event.KindLoss, Loss: event.Loss{Begin: 100, Count: 2, Of: event.KindWR}}}
	if diff := cmp.Diff(want, report(200)); diff != "" {
		t.Error(diff)
	}
	if got := report(300); got != nil {
		t.Errorf("told twice: %+v", got)
	}
	// Its program was preempted between taking the time and finding the ring full.
	drop(1, bpf.RdmaRecordKindRECORD_WR, 1, 250)
	want = []event.Event{{Time: 300, CPU: 1, Kind: event.KindLoss, Loss: event.Loss{Begin: 250, Count: 1, Of: event.KindWR}}}
	if diff := cmp.Diff(want, report(300)); diff != "" {
		t.Error(diff)
	}
	drop(1, bpf.RdmaRecordKindRECORD_WR, 1, 390)
	want = []event.Event{{Time: 390, CPU: 1, Kind: event.KindLoss, Loss: event.Loss{Begin: 300, Count: 1, Of: event.KindWR}}}
	if diff := cmp.Diff(want, report(400)); diff != "" {
		t.Error(diff)
	}
	// The same, after another was dropped.
	drop(1, bpf.RdmaRecordKindRECORD_WR, 2, 350)
	want = []event.Event{{Time: 500, CPU: 1, Kind: event.KindLoss, Loss: event.Loss{Begin: 350, Count: 2, Of: event.KindWR}}}
	if diff := cmp.Diff(want, report(500)); diff != "" {
		t.Error(diff)
	}
}
