package e2e

import (
	"slices"

	"github.com/rdmatrace/rdmatrace/attribution"
	"github.com/rdmatrace/rdmatrace/event"
)

// blind measures the same trace as if completion entries had no time stamps,
// as on devices that rdmatrace cannot read them of: by interrupts and polls alone.
// It then knows less, and what it prints has to be true all the same.
func (s *seen) blind(t *trial) {
	t.Helper()
	without := *s.traced
	without.events = slices.Clone(s.events)
	for i := range without.events {
		if e := &without.events[i]; e.Kind == event.KindCompletion {
			e.Flags &^= event.CompletionHWTime
		}
	}
	type name struct {
		pid, qp uint32
		index   int64
	}
	rows := map[name]*measuredWR{}
	for i := range s.wrs {
		w := &s.wrs[i]
		rows[name{w.PID, w.QPNum, w.Index}] = w
	}
	var wrs []measuredWR
	for _, w := range without.measure() {
		if known := rows[name{w.PID, w.QPNum, w.Index}]; known != nil && known.PostBegin == w.PostBegin {
			w.Row = known.Row
			wrs = append(wrs, w)
		}
	}
	t.within(len(wrs) >= len(s.wrs)*9/10, "most are measured without time stamps as well", "%d of %d", len(wrs), len(s.wrs))
	if n := len(where(wrs, func(w *measuredWR) bool { return w.DoneSource == attribution.DoneCQE })); n > 0 {
		t.Errorf("%d work requests have time stamps that were taken away", n)
	}
	t.atLeast(0.99, wrs, "completed in the range that is printed without time stamps", (*measuredWR).inside)
	t.atLeast(0.99, wrs, "not charged more wire, nor more host, than there was, without time stamps", (*measuredWR).honest)
}
