package guest

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/rdmatrace/rdmatrace/attribution"
	"github.com/rdmatrace/rdmatrace/event"
	"github.com/rdmatrace/rdmatrace/testbed/outcome"
)

// source of done, and how it fares: how many of its ranges meet the truth, and how far
// its best estimates are off, ns.
type source struct {
	all, met int
	off      []uint64
}

// judge hides from the analysis when the kernel wrote each entry, which is the truth,
// and asks what it makes of the rest: the truth has to lie where done may be.
func judge(t *testing.T, c *program, got *traced) {
	t.Helper()
	truth := entriesOf(got)
	sources := map[attribution.DoneSource]*source{}
	all := source{}
	for reap, wrs := range withoutEntries(got) {
		entries := truth[reap]
		if len(entries) != len(wrs) {
			t.Fatalf("%d completions were reaped at %d of QP %#x, %d work requests measured", len(entries), reap.at, reap.qp, len(wrs))
		}
		for i, w := range wrs {
			if entries[i] == nil {
				continue
			}
			of := sources[w.DoneSource]
			if of == nil {
				of = &source{}
				sources[w.DoneSource] = of
			}
			if w.DoneSource == attribution.DoneKernel || w.DoneSource == attribution.DoneCQE {
				t.Fatalf("done comes from %s, which was hidden or is not there", w.DoneSource)
			}
			begin, end := entries[i].Time, entries[i].Verb.End
			met := w.DoneLow <= end && begin <= w.DoneHigh
			if !met {
				t.Logf("%s %d of QP %#x, %s: written from %d to %d, done from %d to %d", w.Op, w.Index, w.QPNum, w.DoneSource, begin, end, w.DoneLow, w.DoneHigh)
			}
			of.take(met, max(w.Done, begin)-min(w.Done, begin))
			all.take(met, 0)
		}
	}
	if all.all == 0 || all.all-all.met > all.all/100 {
		t.Errorf("of %d ranges %d hold the truth", all.all, all.met)
	}
	var says []string
	for s := range attribution.DoneSource(16) {
		if of := sources[s]; of != nil {
			slices.Sort(of.off)
			says = append(says, fmt.Sprintf("%s %d of %d (off by %.1f us in the median)", s, of.met, of.all, float64(of.off[len(of.off)/2])/1e3))
		}
	}
	feature("done judged by the kernel's entries, "+c.name, "%s", strings.Join(says, "; "))
}

func (s *source) take(met bool, off uint64) {
	s.all++
	if met {
		s.met++
	}
	s.off = append(s.off, off)
}

// reaping is a poll of a queue pair's completions.
type reaping struct {
	qp      uint32
	at      uint64
	receive bool
}

// withoutEntries are the work requests that are measured if what the kernel wrote is not
// known, by the poll that returned them, in their order.
func withoutEntries(got *traced) map[reaping][]attribution.WR {
	events := slices.DeleteFunc(slices.Clone(got.events), func(e event.Event) bool { return e.Kind == event.KindCQE })
	wrs := map[reaping][]attribution.WR{}
	outcome.Observe(events, got.ctx, func(w *attribution.WR, _ []attribution.Segment) {
		r := reaping{w.QPNum, w.Reap, strings.HasPrefix(w.Op, "RECV")}
		wrs[r] = append(wrs[r], *w)
	})
	for _, list := range wrs {
		slices.SortFunc(list, func(a, b attribution.WR) int { return cmp.Compare(a.Index, b.Index) })
	}
	return wrs
}

// entriesOf are the entries that the kernel wrote, by the poll that returned them, nil
// where it was not seen: see written, which makes sure that they are those of the
// completions.
func entriesOf(got *traced) map[reaping][]*event.Event {
	wrote := byQueue(got.events, event.KindCQE)
	out := map[reaping][]*event.Event{}
	for cq, reaps := range byQueue(got.events, event.KindCompletion) {
		for _, e := range reaps {
			r := reaping{e.Verb.QPNum, e.Time, e.Verb.Opcode&128 != 0}
			at := entryOf(wrote[cq], e)
			if at < 0 {
				out[r] = append(out[r], nil)
				continue
			}
			out[r] = append(out[r], wrote[cq][at])
			wrote[cq] = slices.Delete(wrote[cq], at, at+1)
		}
	}
	return out
}
