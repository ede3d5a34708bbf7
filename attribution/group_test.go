package attribution

import (
	"slices"
	"testing"

	"github.com/rdmatrace/rdmatrace/event"
)

// Queue pairs of two processes that have the same number on the same device are two.
func TestQueuePairsOfTwoProcesses(t *testing.T) {
	a := newAggregates(Config{}, nil)
	for _, of := range []struct{ pid, num uint32 }{{100, 0x105}, {200, 0x105}, {100, 0x106}} {
		qp := testQP(of.num)
		qp.pid = of.pid
		m := &measured{qp: qp, bytes: 64, chained: 1, postTID: of.pid, reapTID: of.pid, demand: Waited, doneSource: DoneCQE,
			postBegin: 1000, postEnd: 1100, doneLow: 1100, done: 1100, doneHigh: 1100, reap: 2000}
		m.segments = []segment{{begin: 1000, end: 2000, cause: Submit, tid: of.pid, cpu: -1}}
		a.add(m)
	}
	var got []string
	for _, g := range a.finish(&event.Context{}, nil).Groups {
		if g.By == "qp" {
			got = append(got, g.Key)
		}
	}
	if want := []string{"mlx5_0 0x105 of pid 100", "mlx5_0 0x105 of pid 200", "mlx5_0 0x106"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
