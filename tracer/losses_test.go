package tracer

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rdmatrace/rdmatrace/bpf"
	"github.com/rdmatrace/rdmatrace/event"
)

// TestLossesAreOfEvents: each drop is told once, as of no less time than it may be of,
// and a dropped stack takes nothing from the events.
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
	// begins is a drop that a program was preempted in, ends is the rest of it.
	begins := func(cpu int, kind bpf.RdmaRecordKind, n uint64) { m.stats[cpu].Dropped[kind].Begun += n }
	ends := func(cpu int, kind bpf.RdmaRecordKind, n, at, lag uint64) {
		lost := &m.stats[cpu].Dropped[kind]
		lost.Count, lost.Last, lost.Lag = lost.Count+n, max(lost.Last, at), max(lost.Lag, lag)
	}
	drop := func(cpu int, kind bpf.RdmaRecordKind, n, at, lag uint64) {
		begins(cpu, kind, n)
		ends(cpu, kind, n, at, lag)
	}
	reports := func(now, begin, end, count uint64) {
		t.Helper()
		want := []event.Event{{Time: end, CPU: 1, Kind: event.KindLoss, Loss: event.Loss{Begin: begin, Count: count, Of: event.KindWR}}}
		if diff := cmp.Diff(want, report(now)); diff != "" {
			t.Error(diff)
		}
	}
	const wr = bpf.RdmaRecordKindRECORD_WR
	drop(0, bpf.RdmaRecordKindRECORD_STACK, 3, 140, 0)
	drop(0, bpf.RdmaRecordKindRECORD_LIBRARY, 1, 150, 0)
	drop(1, wr, 2, 160, 0)
	reports(200, 100, 160, 2)
	if got := report(300); got != nil {
		t.Errorf("told twice: %+v", got)
	}
	// Its program was preempted between taking the time and finding the ring full, for
	// 70 at most.
	drop(1, wr, 1, 250, 70)
	reports(400, 230, 250, 1)
	// The same, while another was dropped after it.
	drop(1, wr, 1, 450, 0)
	drop(1, wr, 1, 380, 60)
	reports(500, 330, 450, 2)
	// One is on its way at a look, and was dropped before it.
	begins(1, wr, 1)
	drop(1, wr, 1, 550, 0)
	reports(600, 430, 550, 1)
	if got := report(700); got != nil {
		t.Errorf("told before it was counted: %+v", got)
	}
	ends(1, wr, 1, 520, 50)
	reports(800, 430, 550, 1)
	drop(1, wr, 1, 850, 0)
	reports(900, 730, 850, 1)
}
