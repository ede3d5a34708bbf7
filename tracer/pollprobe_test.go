package tracer

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/rdmatrace/rdmatrace/bpf"
	"github.com/rdmatrace/rdmatrace/event"
)

// TestEmptyPolls traces programs that poll busily. Once the path that consumes
// completions is learned its sites alone report: the programs at the entry and
// the return run no more, however often the queue is found empty. Every
// completion is there once, before, during and after.
func TestEmptyPolls(t *testing.T) {
	for _, c := range []struct {
		device []string
		single bool
		argv   []string
	}{
		{slowLatency, false, []string{"ib_read_lat", "-n", "5000000"}},
		{slowLatency, true, []string{"ib_send_lat", "-n", "5000000"}},
		{slowBandwidth, false, []string{"ib_write_bw", "-n", "5000000", "-s", "1024"}},
		{slowLatency, false, []string{"ibv_rc_pingpong", "-n", "100000000"}},
		{slowLatency, false, []string{"ibv_rc_pingpong", "-t", "-n", "100000000"}}, // of an extended CQ
	} {
		t.Run(fmt.Sprintf("%s single=%v", strings.Join(c.argv, " "), c.single), func(t *testing.T) {
			d := startDevice(t, c.device...)
			_, client := d.pair(c.argv...)
			pid := client.cmd.Process.Pid
			rec := recordSwitch(t, Config{PIDs: []int{pid}, singleUprobes: c.single, Log: debugLog(t)})
			rec.sawAllVerbs(t)
			rec.switched(t)
			client.kill()
			rec.stretch(t, d.stop(), pid)
		})
	}
}

// bySite says that a completion was reported where it was consumed: the entry
// of its poll was not seen.
func bySite(e *event.Event) bool { return e.Kind == event.KindCompletion && e.Verb.Begin == 0 }

func debugLog(t *testing.T) *slog.Logger {
	return slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// recordSwitch traces until the entry and return of polls have not run for two
// hundred completions, between which the queue is found empty often.
func recordSwitch(t *testing.T, cfg Config) *recording {
	t.Helper()
	counting, err := ebpf.EnableStats(uint32(unix.BPF_STATS_RUN_TIME))
	if err != nil {
		t.Fatal(err)
	}
	defer counting.Close()
	tr, err := New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	runs := func() (n uint64) {
		for _, name := range []string{bpf.RdmaProgPollEnter, bpf.RdmaProgPollExit, bpf.RdmaProgPollExEnter, bpf.RdmaProgPollExExit} {
			s, err := tr.kernel.prog(name).Stats()
			if err != nil {
				t.Fatal(err)
			}
			n += s.RunCount
		}
		return n
	}
	rec := &recording{}
	sites, last, at := 0, uint64(0), uint64(0)
	runUntil(t, tr, func(e *event.Event) bool {
		rec.events = append(rec.events, *e)
		if !bySite(e) || e.Time <= at {
			return false // what was in the rings already says nothing of what ran since
		}
		if sites++; sites < 200 {
			return false
		}
		before := last
		sites, last, at = 0, runs(), monotonic()
		return last == before
	})
	rec.context = tr.Context()
	// What was taken out is not put back when the functions are found again.
	for _, tg := range tr.targets.list() {
		if n, err := tg.attach.attach(slices.Clone(tg.attach.functions)); n != 0 || err != nil {
			t.Errorf("%d probes were put in once more, %v", n, err)
		}
	}
	if err := tr.Close(); err != nil {
		t.Error(err)
	}
	return rec
}

// verbCounters count what of posts and polls was dropped, missed or unreadable.
var verbCounters = []string{
	"dropped: work request", "dropped: post end", "dropped: completion", "work requests unreadable",
	"completions unreadable", "completion entries that did not fit", "completion queues without state", "polls cut",
	"polls failed", "threads without storage", "hits on a poll's path without a completion", "completions beside a poll's path",
	"built work requests cut", "posts whose send queue entries did not fit",
}

// sawAllVerbs fails the test if any of that happened. Of the scheduler's and the
// interrupts' records a busy machine makes more than the reader takes.
func (r *recording) sawAllVerbs(t *testing.T) {
	t.Helper()
	for _, name := range verbCounters {
		if n := r.counter(t, name); n != 0 {
			t.Errorf("%s: %d", name, n)
		}
	}
	if t.Failed() {
		t.Log(r.context.Counters)
		for i := range r.events {
			if e := &r.events[i]; e.Kind == event.KindLoss {
				t.Logf("CPU %d: %+v of %d events", e.CPU, e.Loss, len(r.events))
			}
		}
	}
}

// switched makes sure that returns reported first, then sites, and what is
// said of it.
func (r *recording) switched(t *testing.T) {
	t.Helper()
	returns, sites, looked := 0, 0, 0
	for i := range r.events {
		switch e := &r.events[i]; {
		case e.Kind != event.KindCompletion:
		case bySite(e):
			sites++
			if e.Flags&event.CompletionNoEmpty == 0 {
				looked++
			}
		default:
			returns++
		}
	}
	if returns < 16 || sites < 200 {
		t.Errorf("%d completions were reported by returns, %d by sites", returns, sites)
	}
	t.Logf("%d completions were reported by returns, %d by sites, before %d of which the queue was looked at", returns, sites, looked)
	learned := false
	for _, p := range r.context.Probes {
		learned = learned || (p.Name == "poll_cq" || p.Name == "start_poll") && strings.Contains(p.Source, "learned from")
	}
	if !learned {
		t.Errorf("no probe tells what was learned: %+v", r.context.Probes)
	}
	if notes := strings.Join(r.context.Costs, "\n"); !strings.Contains(notes, "empty polls cost nothing") || strings.Contains(notes, "empty polls cost two traps") {
		t.Errorf("it says: %s", notes)
	}
}

// TestPollFallback makes a learned place wrong: what is found there is seen to
// be no completion, and the returns report again.
func TestPollFallback(t *testing.T) {
	d := startDevice(t, slowLatency...)
	_, client := d.pair("ib_read_lat", "-n", "5000000")
	pid := client.cmd.Process.Pid
	tr, err := New(t.Context(), Config{PIDs: []int{pid}, Log: debugLog(t)})
	if err != nil {
		t.Fatal(err)
	}
	sites, after := 0, 0
	runUntil(t, tr, func(e *event.Event) bool {
		switch {
		case e.Kind != event.KindCompletion:
		case bySite(e):
			if sites++; sites == 500 {
				if err := spoil(tr.kernel); err != nil {
					t.Error(err)
				}
			}
		case sites >= 500:
			after++
		}
		return after == 100
	})
	context := tr.Context()
	notes := strings.Join(slices.Concat(context.Costs, context.Notes), "\n")
	if err := tr.Close(); err != nil {
		t.Error(err)
	}
	if !strings.Contains(notes, "empty polls cost two traps each") || !strings.Contains(notes, "were no completions") || !strings.Contains(notes, "completions may have been missed") {
		t.Errorf("it doesn't tell: %s", notes)
	}
	if gone(pid) {
		t.Error("the program ended")
	}
}

// spoil moves what was learned, for all poll functions.
func spoil(k *kernel) error {
	k.polls.mu.Lock()
	slots := slices.Clone(k.polls.slots)
	k.polls.mu.Unlock()
	for _, s := range slots {
		if err := k.setPoll(s, func(e *bpf.RdmaPollSlot) { e.WcOffset -= 1 << 30 }); err != nil {
			return err
		}
	}
	return nil
}
