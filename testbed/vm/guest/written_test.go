package guest

import (
	"cmp"
	"slices"
	"strings"
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
	missed := unseenEntries(got)
	for cq, reaps := range reaped {
		wrote := entries[cq]
		for i, r := range reaps {
			v := &r.Verb
			at := entryOf(wrote, r)
			if at < 0 && missed > 0 {
				missed--
				continue
			}
			// Two CPUs may write at a time, and which is the first is not seen.
			if at < 0 || at > 0 && wrote[0].Verb.End < wrote[at].Time {
				t.Errorf("completion %d of %d was not seen written, or not in its turn: %+v", i, len(reaps), *v)
				return
			}
			if w := wrote[at]; w.Verb.End < w.Time || w.Verb.End < v.LastEmpty {
				t.Errorf("completion %d was written from %d to %d, the CQ empty at %d, reaped at %d", i, w.Time, w.Verb.End, v.LastEmpty, r.Time)
				return
			}
			wrote = slices.Delete(wrote, at, at+1)
		}
	}
}

// entryOf finds the entry of a completion among those that were written, -1: none.
func entryOf(wrote []*event.Event, r *event.Event) int {
	v := &r.Verb
	return slices.IndexFunc(wrote, func(w *event.Event) bool {
		return w.Verb.WRID == v.WRID && w.Verb.QPNum == v.QPNum && w.Verb.Status == v.Status && w.Verb.Opcode == v.Opcode && w.Time <= r.Time
	})
}

// unseenEntries is how many entries may have been written unseen: the kernel runs no
// program inside itself, as where an interrupt that writes an entry has come upon one.
func unseenEntries(got *traced) (n uint64) {
	for _, p := range got.Probes {
		if strings.HasPrefix(p.Name, "rxe_cqe_") {
			n += p.Misses
		}
	}
	return n
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
