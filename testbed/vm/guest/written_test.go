package guest

import (
	"cmp"
	"slices"
	"testing"

	"github.com/rdmatrace/rdmatrace/event"
)

// written checks that each completion was seen when the kernel wrote its entry,
// which is before it was reaped and after the CQ was found empty.
func written(t *testing.T, got *traced) {
	t.Helper()
	entries, reaped := byQueue(got.events, event.KindCQE), byQueue(got.events, event.KindCompletion)
	if len(reaped) == 0 {
		t.Error("no completion was reaped")
	}
	for cq, reaps := range reaped {
		wrote := entries[cq]
		for i, r := range reaps {
			// Two CPUs may write at a time, and which is the first is not seen.
			v := &r.Verb
			at := slices.IndexFunc(wrote, func(w *event.Event) bool {
				return w.Verb.WRID == v.WRID && w.Verb.QPNum == v.QPNum && w.Verb.Status == v.Status && w.Verb.Opcode == v.Opcode
			})
			if at < 0 || at > 0 && wrote[0].Verb.End < wrote[at].Time {
				t.Errorf("completion %d of %d was not seen written, or not in its turn: %+v", i, len(reaps), *v)
				return
			}
			if w := wrote[at]; w.Time > r.Time || w.Verb.End < w.Time || w.Verb.End < v.LastEmpty {
				t.Errorf("completion %d was written from %d to %d, the CQ empty at %d, reaped at %d", i, w.Time, w.Verb.End, v.LastEmpty, r.Time)
				return
			}
			wrote = slices.Delete(wrote, at, at+1)
		}
	}
}

// exact checks that done of what was measured is when the kernel wrote it. The
// queue was there before the trace, so its first entries may not be certain.
func exact(t *testing.T, c *program, got *traced) {
	t.Helper()
	all, n := int64(0), got.DoneSources["kernel"]
	for _, of := range got.DoneSources {
		all += of
	}
	if all == 0 || n < all-all/10 {
		t.Errorf("done of %d was exact: %v", n, got.DoneSources)
	}
	feature("done, "+c.name, "exact for %d of %d", n, all)
}

// byQueue has the events of a kind by completion queue, in the order of things.
func byQueue(events []event.Event, kind event.Kind) map[uint64][]*event.Event {
	out := map[uint64][]*event.Event{}
	for i := range events {
		if e := &events[i]; e.Kind == kind {
			out[e.Verb.CQ] = append(out[e.Verb.CQ], e)
		}
	}
	for _, list := range out {
		slices.SortStableFunc(list, func(a, b *event.Event) int {
			return cmp.Or(cmp.Compare(a.Time, b.Time), cmp.Compare(a.Verb.Index, b.Verb.Index))
		})
	}
	return out
}
