package e2e

import (
	"cmp"
	"slices"
	"sort"
	"strings"
	"testing"

	"github.com/rdmatrace/rdmatrace/attribution"
	"github.com/rdmatrace/rdmatrace/testbed/softmlx5/truth"
)

// received are the receives of a trace beside the truth. Those of a queue pair
// are reaped in the order of their completion, so the n-th that was measured is
// that of the n-th row behind some row. None was reaped before it was complete,
// and where a poll leaves nothing behind, none later than the last one complete:
// that row is known by how far each could have been at most.
func received(t *trial, tr *traced, queues map[truth.Queue][]truth.Row) *seen {
	t.Helper()
	of := map[truth.Queue][]measuredWR{}
	for _, w := range tr.measure() {
		if strings.HasPrefix(w.Op, "RECV") {
			q := truth.Queue{PID: int(w.PID), QPN: w.QPNum, Kind: truth.Recv}
			of[q] = append(of[q], w)
		}
	}
	s := &seen{traced: tr}
	for q, wrs := range of {
		slices.SortStableFunc(wrs, func(a, b measuredWR) int { return cmp.Compare(a.Reap, b.Reap) })
		rows := slices.DeleteFunc(slices.Clone(queues[q]), func(r truth.Row) bool { return r.Flags.Has(truth.Failed) })
		slices.SortStableFunc(rows, func(a, b truth.Row) int { return cmp.Compare(a.CQE, b.CQE) })
		first := len(rows)
		for i := range wrs {
			complete := sort.Search(len(rows), func(j int) bool { return rows[j].CQE > int64(wrs[i].Reap) })
			first = min(first, complete-1-i)
		}
		if first < 0 || first+len(wrs) > len(rows) {
			t.Fatalf("%+v: %d receives are measured, of %d rows from %d on", q, len(wrs), len(rows), first)
		}
		for i := range wrs {
			w := &wrs[i]
			w.Row = rows[first+i]
			w.Row.CQEDue, w.Row.Doorbell = w.Row.CQE, int64(w.PostEnd) // no lateness of the device is known
			s.wrs = append(s.wrs, *w)
		}
	}
	t.enough(50, len(s.wrs), "receives")
	t.atLeast(0.99, s.wrs, "received in the range that is printed", (*measuredWR).inside)
	return s
}

// peerWaits: the peer sends once in a while. That is no latency of a receive, and
// nobody's fault: it is the wait for the peer, from the post of one of those that
// are kept posted until all before it and it have come.
func peerWaits(t *trial, m matrix) {
	const ns, posted = 1_000_000, 4
	got, queues := wholeLife(t, spinning(t.T, "LAT_NS=4000"), "oracle-receiver gap=1000000 receives=4 count=600")
	unblamed(t, see(t, got, queues), ns)
	s := received(t, got, queues)
	t.atLeast(0.98, s.wrs, "not charged with the wait for the peer", func(w *measuredWR) bool {
		return int64(w.Reap-w.Done) < ns/2 || w.near(int64(w.Reap-w.Done), w.waited())
	})
	apart := make([]int64, 0, len(s.wrs))
	for i := posted; i < len(s.wrs); i++ {
		apart = append(apart, s.wrs[i].Row.CQE-s.wrs[i-posted].Row.CQE)
	}
	want := quantile(apart, 0.5)
	waits := 0
	for _, r := range got.Receives {
		if r.Wait.Count > 0 {
			waits++
			t.within(abs(r.Wait.P50NS-want) <= want/20, "the wait for the peer is the truth's by the median", "%d of %d ns", r.Wait.P50NS, want)
		}
	}
	if waits == 0 {
		t.Errorf("no receive waited for a peer: %+v", got.Kinds)
	}
	m.fill(s, attribution.LatePoll, nobody)
}

// receivedLate: what has come is taken late now and then, whether the receives are
// the queue pair's own or shared by several.
func receivedLate(job string) func(t *trial, m matrix) {
	return func(t *trial, m matrix) {
		const ns = 200_000
		d := spinning(t.T, "LAT_NS=4000")
		first, second := d.traceBoth(t, job, job+" every=10 ns=200000", 4000)
		queues := d.truth(t.T)
		see(t, first, queues)
		see(t, second, queues)
		calm, s := received(t, first, queues), received(t, second, queues)
		hit := func(w *measuredWR) bool { return w.waited()-w.host() >= ns/2 }
		sameElsewhere(t, calm, s, hit)
		late := where(s.wrs, hit)
		t.enough(50, len(late), "received late")
		t.atLeast(0.99, late, "of the software class", func(w *measuredWR) bool {
			return w.in(attribution.Software)+w.host()+min(w.doubt(), w.in(attribution.Undecided)) >= w.waited()*95/100
		})
		t.lay(m, s, late, hit)
	}
}

// Errors and what they flush stay out of the latencies, and are counted; what is
// posted after the reset of a queue pair is measured as before.
func TestOracleErrors(t *testing.T) {
	try(t, func(t *trial, _ matrix) {
		d := spinning(t.T, "LAT_NS=4000", "ERR_EVERY=50")
		got, queues := wholeLife(t, d, "oracle-receiver links=2 depth=4 receives=8 count=400")
		s := see(t, got, queues)
		posted, good, failed := int64(0), int64(0), int64(0)
		for q, rows := range queues {
			for _, r := range rows {
				switch {
				case q.PID != got.program(t.T) || q.Kind != truth.Send:
				case r.Flags.Has(truth.Failed):
					posted, failed = posted+1, failed+1
				default:
					posted, good = posted+1, good+1
				}
			}
		}
		if failed < 50 {
			t.Fatalf("only %d sends failed or were flushed", failed)
		}
		if b := s.Kinds["send"]; b.Posted != posted || b.Completed != good || b.Flushed != failed || b.Excluded != 0 {
			t.Errorf("sends: %+v; truth: %d posted, %d completed, %d failed or flushed", b, posted, good, failed)
		}
		for i := range s.wrs {
			if s.wrs[i].Row.Flags.Has(truth.Failed) {
				t.Fatalf("measured, though it failed: %s", s.wrs[i].story())
			}
		}
	})
}
