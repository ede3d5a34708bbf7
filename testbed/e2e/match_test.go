package e2e

import (
	"cmp"
	"fmt"
	"slices"
	"sort"
	"strings"
	"testing"

	"github.com/rdmatrace/rdmatrace/attribution"
	"github.com/rdmatrace/rdmatrace/event"
	"github.com/rdmatrace/rdmatrace/testbed/outcome"
	"github.com/rdmatrace/rdmatrace/testbed/softmlx5/truth"
)

// truth stops the device, so that the log is whole, and returns what really
// became of the work requests of every queue, in the order of posting.
func (d *device) truth(t *testing.T) map[truth.Queue][]truth.Row {
	t.Helper()
	d.stop(t)
	rows, err := truth.ReadFile(d.keep(t, "truth.csv"))
	if err != nil {
		t.Fatal(err)
	}
	return truth.Queues(rows)
}

// measuredWR is a work request as rdmatrace measured it, beside the truth.
type measuredWR struct {
	attribution.WR
	Segments []attribution.Segment
	Row      truth.Row // once matched
}

// measure analyses the capture again and returns every work request that was
// measured, sends first, in the order of their queues.
func (tr *traced) measure() []measuredWR {
	var out []measuredWR
	outcome.Observe(tr.events, tr.ctx, func(w *attribution.WR, s []attribution.Segment) {
		out = append(out, measuredWR{WR: *w, Segments: slices.Clone(s)})
	})
	slices.SortStableFunc(out, func(a, b measuredWR) int {
		return cmp.Or(cmp.Compare(a.PID, b.PID), cmp.Compare(a.QPNum, b.QPNum), cmp.Compare(a.Index, b.Index))
	})
	return out
}

// posts are the send work requests of one queue pair, in the order of posting.
func posts(events []event.Event, q truth.Queue) []event.Event {
	var out []event.Event
	for _, e := range events {
		if e.Kind == event.KindWR && e.Flags&event.WRReceive == 0 && int(e.PID) == q.PID && e.Verb.QPNum == q.QPN {
			out = append(out, e)
		}
	}
	slices.SortStableFunc(out, func(a, b event.Event) int {
		return cmp.Or(cmp.Compare(a.Verb.Begin, b.Verb.Begin), cmp.Compare(a.Verb.Index, b.Verb.Index))
	})
	return out
}

// align finds the truth row of the first post: the first whose doorbell was
// seen after it. Every later post must then come before the doorbell of its
// row, and be of its operation and size.
func align(posts []event.Event, rows []truth.Row) (first int, err error) {
	if len(posts) == 0 {
		return 0, fmt.Errorf("no posts")
	}
	begin := int64(posts[0].Verb.Begin)
	first = sort.Search(len(rows), func(i int) bool { return rows[i].Doorbell >= begin })
	// The device sees a doorbell a little late, so rows before it may fit as well:
	// the true one is the first with which everything agrees.
	for ; first < len(rows); first++ {
		if err = agree(posts, rows[first:]); err == nil {
			return first, nil
		}
	}
	return 0, fmt.Errorf("no row fits the first post: %w", err)
}

// stampSlack is how long after its stamp a completion may become visible, ns;
// those that took longer are Held, and were visible nobody knows when.
const stampSlack = 1_000

// lag is how late the device may see a doorbell on a busy machine, ns: virtual
// CPUs have been seen to stand still for 55 ms, and perhaps for 200.
const lag = 300_000_000

// covers fails the test where a post of the window was not seen: the row before
// the first post was rung in it, or the one after the last. Where posts were
// dropped, and that is said, the last may be among them.
func covers(t *testing.T, q truth.Queue, tr *traced, first, n int, rows []truth.Row) {
	t.Helper()
	window := tr.ctx.Window
	// The calls before the first one seen and after the last may have been under way
	// when the gate opened or closed, for as long as their thread then waited for a CPU.
	before := first - 1
	for before > 0 && rows[before].Batch > 0 {
		before--
	}
	if before > 0 && rows[before-1].Doorbell > int64(window.Begin)+lag {
		t.Errorf("%+v: the first post seen is not the first of the window: one was rung %d ns after its begin", q, rows[before-1].Doorbell-int64(window.Begin))
	}
	after := first + n + 1
	for after < len(rows) && rows[after].Batch > 0 {
		after++
	}
	if after < len(rows) && rows[after].Doorbell < int64(window.End)-lag && tr.dropped()["work request"] == 0 {
		t.Errorf("%+v: the last post seen is not the last of the window: one was rung %d ns before its end; dropped: %v; rdmatrace said:\n%s",
			q, int64(window.End)-rows[after].Doorbell, tr.dropped(), tr.stderr)
	}
}

var opcodes = map[uint8]string{0: "WRITE", 1: "WRITE_IMM", 2: "SEND", 3: "SEND_IMM", 4: "READ", 5: "CMP_SWAP", 6: "FETCH_ADD", 9: "SEND_INV"}

func agree(posts []event.Event, rows []truth.Row) error {
	for i := range min(len(posts), len(rows)) {
		p, r := &posts[i], &rows[i]
		switch {
		case r.Doorbell < int64(p.Verb.Begin):
			return fmt.Errorf("post %d at %d has a row with the doorbell at %d", i, p.Verb.Begin, r.Doorbell)
		case opcodes[p.Verb.Opcode] != r.Opcode:
			return fmt.Errorf("post %d is of opcode %d, its row %s", i, p.Verb.Opcode, r.Opcode)
		case p.Verb.Bytes != r.Bytes && p.Verb.Opcode != 5 && p.Verb.Opcode != 6:
			return fmt.Errorf("post %d has %d bytes, its row %d", i, p.Verb.Bytes, r.Bytes)
		}
	}
	return nil
}

// match finds the truth of every measured send, and fails the test where it
// was not completed in the range that was measured.
func match(t *testing.T, tr *traced, queues map[truth.Queue][]truth.Row) []measuredWR {
	t.Helper()
	wrs := pairUp(t, tr, queues)
	faults := 0
	for i := range wrs {
		if w := &wrs[i]; !w.inside() {
			if faults++; faults <= 10 {
				t.Errorf("pid %d qp %#x index %d: completed at %d, outside %d..%d (%s)", w.PID, w.QPNum, w.Index, w.Row.CQE, w.DoneLow, w.DoneHigh, w.DoneSource)
			}
		}
	}
	if faults > 0 {
		t.Errorf("%d of %d work requests outside what was measured", faults, len(wrs))
	}
	return wrs
}

// inside reports whether the completion was in the range that was measured.
func (w *measuredWR) inside() bool {
	done := uint64(w.Row.CQE)
	return (done+stampSlack >= w.DoneLow || w.Row.Flags.Has(truth.Held)) && done <= w.DoneHigh
}

// pairUp finds the truth of every measured send, by queue and index, and fails
// the test where a work request is not the one that the truth log has there.
func pairUp(t *testing.T, tr *traced, queues map[truth.Queue][]truth.Row) []measuredWR {
	t.Helper()
	all := tr.measure()
	out := all[:0]
	var q truth.Queue
	var seen []event.Event
	var rows []truth.Row
	first, faults := 0, 0
	fault := func(w *measuredWR, format string, args ...any) {
		if faults++; faults <= 10 {
			t.Errorf("pid %d qp %#x index %d: %s", w.PID, w.QPNum, w.Index, fmt.Sprintf(format, args...))
		}
	}
	for _, w := range all {
		if strings.HasPrefix(w.Op, "RECV") {
			continue
		}
		if n := (truth.Queue{PID: int(w.PID), QPN: w.QPNum, Kind: truth.Send}); n != q {
			q, seen, rows = n, posts(tr.events, n), queues[n]
			var err error
			if first, err = align(seen, rows); err != nil {
				t.Fatalf("%+v: %v", q, err)
			}
			covers(t, q, tr, first, len(seen), rows)
		}
		switch {
		case w.Index < 0 || int(w.Index) >= len(seen) || first+int(w.Index) >= len(rows):
			fault(&w, "%d posts were seen, and %d rows follow", len(seen), len(rows)-first)
			continue
		case seen[w.Index].Verb.Begin != w.PostBegin:
			fault(&w, "posted at %d, but that post was at %d", w.PostBegin, seen[w.Index].Verb.Begin)
		}
		w.Row = rows[first+int(w.Index)]
		if !w.Row.Flags.Has(truth.Signaled) && !w.Row.Flags.Has(truth.Failed) {
			fault(&w, "was not signalled")
		}
		if done := w.Row.CQE; uint64(done) > w.Reap {
			fault(&w, "reaped at %d, completed at %d", w.Reap, done)
		}
		out = append(out, w)
	}
	if faults > 0 {
		t.Errorf("%d faults in %d work requests", faults, len(out))
	}
	return out
}
