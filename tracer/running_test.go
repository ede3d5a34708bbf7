package tracer

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmatrace/rdmatrace/bpf"
	"github.com/rdmatrace/rdmatrace/event"
	"github.com/rdmatrace/rdmatrace/internal/testenv"
	"github.com/rdmatrace/rdmatrace/testbed/softmlx5/truth"
)

// tooMany events, or patience, without what a test waits for: it will not come
// any more.
const (
	tooMany  = 2_000_000
	patience = 2 * time.Minute
)

// runUntil traces until enough says so.
func runUntil(t *testing.T, tr *Tracer, enough func(*event.Event) bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	events, done := 0, false
	err := tr.Run(ctx, func(e *event.Event) error {
		if events++; enough(e) {
			done = true
			cancel()
		}
		if events == tooMany && !done {
			cancel()
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if !done {
		t.Errorf("what the test waits for did not come in %d events (%v)", events, ctx.Err())
	}
}

// recordUntil traces until enough says so.
func recordUntil(t *testing.T, cfg Config, enough func(*event.Event) bool) *recording {
	t.Helper()
	tr, err := New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	rec := &recording{}
	runUntil(t, tr, func(e *event.Event) bool {
		rec.events = append(rec.events, *e)
		return enough(e)
	})
	rec.context = tr.Context()
	if err := tr.Close(); err != nil {
		t.Error(err)
	}
	return rec
}

// The latency bounds the rate of programs to what a reader under the race
// detector keeps up with on a busy machine. Bandwidth tests have 128 WRs of
// each QP in flight.
var (
	slowLatency   = []string{"LAT_NS=100000"}
	slowBandwidth = []string{"LAT_NS=5000000"}
)

// TestRunning attaches to programs in the middle of their work, once with a
// perf event for each probe, which takes the kernel seconds to put in and take
// out. What comes must be one stretch of the truth without a gap: every WR, every
// completion.
func TestRunning(t *testing.T) {
	for _, c := range []struct {
		device []string
		single bool
		argv   []string
	}{
		{slowLatency, false, []string{"ib_write_lat", "-n", "5000000"}},
		{slowLatency, true, []string{"ib_write_lat", "-n", "5000000", "--use_old_post_send"}},
		{slowBandwidth, false, []string{"ib_write_bw", "-n", "5000000", "-s", "256", "-q", "2"}},
		{slowLatency, false, []string{"ibv_rc_pingpong", "-n", "100000000", "-e"}},
	} {
		t.Run(fmt.Sprintf("%s single=%v", strings.Join(c.argv, " "), c.single), func(t *testing.T) {
			d := startDevice(t, c.device...)
			_, client := d.pair(c.argv...)
			indexed := 0
			rec := recordUntil(t, Config{PIDs: []int{client.cmd.Process.Pid}, singleUprobes: c.single}, func(e *event.Event) bool {
				if e.Kind == event.KindWR && e.Flags&event.WRWQEValid != 0 {
					indexed++
				}
				return indexed > 2000
			})
			rec.lossless(t)
			client.kill()
			rec.stretch(t, d.stop(), client.cmd.Process.Pid)
		})
	}
}

// stretch finds the recording in the truth by the first index known, and
// compares everything after it in order.
func (r *recording) stretch(t *testing.T, rows []truth.Row, pid int) {
	t.Helper()
	events := slices.Clone(r.events)
	slices.SortStableFunc(events, func(a, b event.Event) int { return cmp.Compare(a.Time, b.Time) })
	queues := truth.Queues(rows)
	posts, completions := map[uint32][]event.Event{}, map[uint32][]event.Event{}
	for _, e := range events {
		switch {
		case e.Kind == event.KindWR && e.Flags&event.WRReceive == 0:
			posts[e.Verb.QPNum] = append(posts[e.Verb.QPNum], e)
		case e.Kind == event.KindCompletion && e.Verb.Opcode < 128:
			completions[e.Verb.QPNum] = append(completions[e.Verb.QPNum], e)
		}
	}
	if len(posts) == 0 {
		t.Fatal("no posts were recorded")
	}
	for qpn, got := range posts {
		want := queues[truth.Queue{PID: pid, QPN: qpn, Kind: truth.Send}]
		n, bad := align(got, want, event.WRWQEValid, func(e event.Event, row truth.Row) bool {
			return wrOpcodes[e.Verb.Opcode] == row.Opcode && e.Verb.Bytes == row.Bytes &&
				(e.Flags&event.WRWQEValid == 0 || uint32(e.Verb.WQE) == row.WQE) && int64(e.Verb.Begin) <= row.Doorbell
		})
		if bad != "" {
			t.Errorf("QP %d: posts: %s", qpn, bad)
		}
		t.Logf("QP %d: %d of %d posts are in the log, in order", qpn, n, len(got))
	}
	for qpn, got := range completions {
		want := slices.DeleteFunc(slices.Clone(queues[truth.Queue{PID: pid, QPN: qpn, Kind: truth.Send}]),
			func(row truth.Row) bool { return !row.Flags.Has(truth.Signaled) })
		n, bad := align(got, want, event.CompletionHWTime, func(e event.Event, row truth.Row) bool {
			return (e.Flags&event.CompletionHWTime == 0 || int64(e.Verb.HWTime) == row.CQE && uint32(e.Verb.WQE) == row.WQE) &&
				row.CQE <= int64(e.Time) && e.Verb.Begin < e.Time && emptyBefore(e, row)
		})
		if bad != "" {
			t.Errorf("QP %d: completions: %s", qpn, bad)
		}
		t.Logf("QP %d: %d of %d completions are in the log, in order", qpn, n, len(got))
	}
}

// emptyBefore says that the queue was really empty when it was seen to be: by
// a poll that had begun before that which found the completion, or, where a
// path is probed, by the programs themselves. An entry is visible up to 1 us
// after its stamp.
func emptyBefore(e event.Event, row truth.Row) bool {
	switch {
	case e.Flags&event.CompletionNoEmpty != 0:
		return e.Verb.LastEmpty == 0
	case e.Verb.LastEmptyTID != 0 && e.Verb.LastEmpty > e.Verb.Begin:
		return false
	}
	return int64(e.Verb.LastEmpty) <= row.CQE+1000 || row.Flags.Has(truth.Held)
}

// align finds where in want the events begin, by the first that carries an
// index, and compares all of them from there on. The device may not have
// finished the last ones when the target was killed.
func align(got []event.Event, want []truth.Row, flag uint32, same func(event.Event, truth.Row) bool) (n int, bad string) {
	anchor := slices.IndexFunc(got, func(e event.Event) bool { return e.Flags&flag != 0 })
	if anchor < 0 {
		return 0, "no index was learnt"
	}
	at := slices.IndexFunc(want, func(row truth.Row) bool {
		return uint32(got[anchor].Verb.WQE) == row.WQE && same(got[anchor], row)
	})
	if at < anchor {
		return 0, fmt.Sprintf("the first with an index, %d, is at %d of the log", anchor, at)
	}
	for i, e := range got {
		row := at - anchor + i
		if row >= len(want) {
			return i, ""
		}
		if !same(e, want[row]) {
			return i, fmt.Sprintf("%d: %+v is not %+v", i, e.Verb, want[row])
		}
	}
	return len(got), ""
}

// The window ends when it is asked to, however long a reader takes that is behind.
func TestWindowEndsAtOnce(t *testing.T) {
	testenv.Root(t)
	tr, err := New(t.Context(), Config{Command: []string{"sleep", "1000"}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	closed := false
	err = tr.Run(ctx, func(*event.Event) error {
		if closed {
			return nil
		}
		cancel()
		waitFor(t, "the gate to close although the reader is busy", func() bool {
			var open uint8
			if err := tr.kernel.coll.Variables[bpf.RdmaVarOpen].Get(&open); err != nil {
				t.Fatal(err)
			}
			return open == 0
		})
		closed = true
		return nil
	})
	if window := tr.Context().Window; err != nil || !closed || window.End <= window.Begin {
		t.Errorf("closed %t, window %+v: %v", closed, window, err)
	}
	if err := unix.Kill(tr.Command().PID(), unix.SIGKILL); err != nil {
		t.Error(err)
	}
	if err := tr.Close(); err != nil {
		t.Error(err)
	}
	<-tr.Command().Done()
}
