package e2e

import (
	"slices"
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/rdmatrace/rdmatrace/event"
	"github.com/rdmatrace/rdmatrace/testbed/outcome"
	"github.com/rdmatrace/rdmatrace/testbed/softmlx5/truth"
)

// With --max-overhead, probes are in for a part of the time. What is measured in
// it is right, nothing across a pause is, the books balance, and the rates of the
// whole window are those of the truth log.
func TestMaxOverhead(t *testing.T) {
	for _, c := range []paced{
		{"LAT_NS=20000", "ib_write_lat", "--max-overhead 10% --empty-polls", false},
		// What is learned costs so little that a slower device would need no pauses.
		{"POLL=spin", "ib_read_lat", "--max-overhead 3%", true},
	} {
		t.Run(c.tool, func(t *testing.T) { try(t, c.run) })
	}
}

// paced is a program that is traced with a limit.
type paced struct {
	device, tool, trace string
	builders            bool
}

func (c paced) run(t *trial, _ matrix) {
	d := startDevice(t.T, strings.Fields(c.device)...)
	p := d.pair(t.T, c.tool, "-s", "64", "-n", "10000000")
	tr := attach(t.T, p.client, strings.Fields(c.trace)...)
	ends := func(e *event.Event) bool { return e.Kind == event.KindPause && e.Flags&event.PauseEnd != 0 }
	waitEvery(t.T, 500*time.Millisecond, "some pauses", func() bool { return outcome.Count(tr.capture, ends) >= 3 })
	if c.builders { // proving goes on over pauses
		read := func(e *event.Event) bool {
			return e.Kind == event.KindPostEnd && e.Flags&event.WRBuilder != 0 && e.Verb.Count > 0 && e.Verb.Traps <= 3
		}
		waitEvery(t.T, 500*time.Millisecond, "send queues to be read", func() bool { return outcome.Count(tr.capture, read) >= 20 })
	}
	got := tr.stop(t.T)
	p.running(t.T)
	p.stop()
	got.balance(t.T)
	got.addUp(t.T)
	if got.WRs.Lost != 0 && len(got.dropped()) == 0 {
		t.Errorf("%d are lost for no reason", got.WRs.Lost)
	}
	// A ring holds half a second of this rate, and its reader has to share two CPUs with
	// two threads that spin.
	t.within(got.WRs.Lost == 0, "nothing is lost", "%d are; dropped: %v", got.WRs.Lost, got.dropped())
	rows := d.truth(t.T)
	checkPaced(t.T, got, rows)
	if got.Sampled == nil || got.Sampled.Stretches < 4 {
		t.Fatalf("sampled: %+v", got.Sampled)
	}
	if c := got.Cost; c.OfThreads <= 0 || c.OfThreads > 3*c.Limit || c.Limit <= 0 {
		t.Errorf("cost: %+v", c)
	}
	// Probes slow what they observe, so the truth may be faster. What was learned first may
	// have slowed a busy machine for seconds.
	real := rateIn(rows, p.client, got.ctx.Window)
	said := got.Sampled.WRsPerSec
	t.within(said <= 3*real && said >= real/3, "the rate is that of the truth log", "%.0f WR/s are said, %.0f were posted", said, real)
	t.Logf("truth %.0f WR/s, %+v, of the threads' time %.2f %%", real, *got.Sampled, 100*got.Cost.OfThreads)
}

// Threads that end after ten rounds, before anybody has looked at them twice, are
// users too: there are pauses, which end, and the cost is of the time that they ran.
func TestMaxOverheadOfShortThreads(t *testing.T) {
	d := startDevice(t)
	p := d.job(t, "oracle-odd kind=threads")
	tr := attach(t, p.Process.Pid, "--max-overhead", "40%", "--empty-polls")
	ends := func(e *event.Event) bool { return e.Kind == event.KindPause && e.Flags&event.PauseEnd != 0 }
	waitEvery(t, 2*time.Second, "some pauses", func() bool { return outcome.Count(tr.capture, ends) >= 2 })
	got := tr.stop(t)
	p.running(t)
	got.balance(t)
	got.addUp(t)
	if c := got.Cost; c.OfThreads <= 0 || c.OfThreads > 2*c.Limit || c.Limit != 0.4 {
		t.Errorf("cost: %+v", c)
	}
	paused := uint64(0)
	for _, b := range pausesOf(got) {
		paused += b.End - b.Begin
	}
	window := got.ctx.Window.End - got.ctx.Window.Begin
	t.Logf("%+v; %d ms of %d ms were pauses", got.Cost, paused/1e6, window/1e6)
	if paused < window/10 || paused > window*99/100 {
		t.Errorf("%d ns of %d ns were pauses", paused, window)
	}
}

// checkPaced compares what was measured with the truth. With one work request in
// flight, its row is the first that was rung after its post began.
func checkPaced(t *testing.T, got *traced, queues map[truth.Queue][]truth.Row) {
	t.Helper()
	paused := pausesOf(got)
	measured, faults := 0, 0
	for _, w := range got.measure() {
		rows := queues[truth.Queue{PID: int(w.PID), QPN: w.QPNum, Kind: truth.Send}]
		i := sort.Search(len(rows), func(i int) bool { return rows[i].Doorbell >= int64(w.PostBegin) })
		if i == len(rows) {
			t.Fatalf("no row after the post at %d", w.PostBegin)
		}
		w.Row = rows[i]
		measured++
		across := slices.ContainsFunc(paused, func(b event.Window) bool { return w.PostBegin < b.End && w.Reap > b.Begin })
		if across || w.Row.CQE > int64(w.Reap) || !w.inside() {
			if faults++; faults <= 10 {
				t.Errorf("posted at %d, reaped at %d, done in %d..%d: truth %d, across a pause %t",
					w.PostBegin, w.Reap, w.DoneLow, w.DoneHigh, w.Row.CQE, across)
			}
		}
	}
	if int64(measured) != got.Latency.Count || measured < 100 {
		t.Errorf("%d measured, %d in the report", measured, got.Latency.Count)
	}
	// In each stretch every post but those at its edges was seen.
	if b := got.Kinds["send"]; b.Lost == 0 && b.Excluded > 4*int64(len(paused)+1) {
		t.Errorf("%d excluded in %d stretches", b.Excluded, len(paused)+1)
	}
}

// rateIn is how many sends a second a process posted in a window.
func rateIn(queues map[truth.Queue][]truth.Row, pid int, window event.Window) float64 {
	n := 0
	for q, rows := range queues {
		for _, row := range rows {
			if q.PID == pid && q.Kind == truth.Send && row.Doorbell >= int64(window.Begin) && row.Doorbell < int64(window.End) {
				n++
			}
		}
	}
	return float64(n) / (float64(window.End-window.Begin) / 1e9)
}

// pausesOf are the times in which posts and polls were not observed.
func pausesOf(got *traced) (all []event.Window) {
	for _, e := range got.events {
		switch {
		case e.Kind != event.KindPause:
		case e.Flags&event.PauseBegin != 0:
			all = append(all, event.Window{Begin: e.Time, End: got.ctx.Window.End})
		default:
			all[len(all)-1].End = e.Time
		}
	}
	return all
}
