package e2e

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/rdmatrace/rdmatrace/attribution"
	"github.com/rdmatrace/rdmatrace/testbed/softmlx5/truth"
)

// of is how long a work request spent in a cause, ns; who, if not empty, begins
// the culprit's name.
func (w *measuredWR) of(cause attribution.Cause, who string) (ns int64) {
	for _, s := range w.Segments {
		if s.Cause == cause && strings.HasPrefix(s.Who, who) {
			ns += int64(s.End - s.Begin)
		}
	}
	return ns
}

// in is how long it spent in a class, ns.
func (w *measuredWR) in(class attribution.Class) (ns int64) {
	for _, s := range w.Segments {
		if s.Cause.Class() == class {
			ns += int64(s.End - s.Begin)
		}
	}
	return ns
}

func (w *measuredWR) latency() int64 { return int64(w.Reap - w.PostBegin) }

// waited is how long the completion lay there until it was reaped, ns.
func (w *measuredWR) waited() int64 { return int64(w.Reap) - w.Row.CQE }

func (w *measuredWR) slow() bool { return w.Row.Flags.Has(truth.Slow) }

// late is how much longer than it was told to the device took, ns: the machine
// below it is not always there.
func (w *measuredWR) late() int64 {
	return w.Row.CQE - w.Row.CQEDue + max(0, w.Row.Doorbell-int64(w.PostEnd))
}

func abs(n int64) int64 { return max(n, -n) }

// quantile of some values; p in 0..1.
func quantile[T cmp.Ordered](values []T, p float64) (q T) {
	if len(values) == 0 {
		return q
	}
	s := slices.Sorted(slices.Values(values))
	return s[min(len(s)-1, int(p*float64(len(s))))]
}

// collect a number of each.
func collect(wrs []measuredWR, f func(w *measuredWR) int64) []int64 {
	out := make([]int64, len(wrs))
	for i := range wrs {
		out[i] = f(&wrs[i])
	}
	return out
}

// where something holds of them.
func where(wrs []measuredWR, holds func(w *measuredWR) bool) (out []measuredWR) {
	for i := range wrs {
		if holds(&wrs[i]) {
			out = append(out, wrs[i])
		}
	}
	return out
}

// story is a work request in words, for failures.
func (w *measuredWR) story() string {
	var b strings.Builder
	fmt.Fprintf(&b, "qp %#x index %d %s %d bytes: posted %d, +%d post end, +%d..%d done (%s), +%d reaped; truth: flags %s, doorbell +%d, due +%d, cqe +%d, injected %d;",
		w.QPNum, w.Index, w.Op, w.Bytes, w.PostBegin, w.PostEnd-w.PostBegin, int64(w.DoneLow-w.PostBegin), int64(w.DoneHigh-w.PostBegin), w.DoneSource, w.latency(),
		w.Row.Flags, w.Row.Doorbell-int64(w.PostBegin), w.Row.CQEDue-int64(w.PostBegin), w.Row.CQE-int64(w.PostBegin), w.Row.Injected)
	for _, s := range w.Segments {
		fmt.Fprintf(&b, " %s %d", s.Cause, s.End-s.Begin)
		if s.Who != "" {
			fmt.Fprintf(&b, " (%s)", s.Who)
		}
	}
	return b.String()
}
