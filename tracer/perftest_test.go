package tracer

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/rdmatrace/rdmatrace/bpf"
	"github.com/rdmatrace/rdmatrace/event"
	"github.com/rdmatrace/rdmatrace/testbed/softmlx5/truth"
)

// recording is what a trace delivered.
type recording struct {
	events  []event.Event
	context *event.Context
}

// counter is the value of a named counter of the Context.
func (r *recording) counter(t *testing.T, name string) uint64 {
	t.Helper()
	for _, c := range r.context.Counters {
		if c.Name == name {
			return c.Value
		}
	}
	t.Fatalf("no counter %q in %v", name, r.context.Counters)
	return 0
}

// nonzero are the counters that counted something.
func (r *recording) nonzero() (out []event.Counter) {
	for _, c := range r.context.Counters {
		if c.Value != 0 {
			out = append(out, c)
		}
	}
	return out
}

// lossless fails the test if anything was dropped, missed or unreadable. A
// switch that had to be inferred is none of these: the machine did not tell it.
func (r *recording) lossless(t *testing.T) {
	t.Helper()
	for _, c := range r.nonzero() {
		switch c.Name {
		case counterNames[bpf.RdmaCounterCOUNT_SWITCH_INFERRED]:
		case counterNames[bpf.RdmaCounterCOUNT_STACKS_FULL]: // so many are taken in a time; the switches are there
		default:
			t.Errorf("%s: %d", c.Name, c.Value)
		}
	}
	for _, n := range r.context.Notes {
		t.Logf("note: %s", n)
	}
}

// wrOpcodes are the truth log's names of enum ibv_wr_opcode.
var wrOpcodes = map[uint8]string{
	0: "WRITE", 1: "WRITE_IMM", 2: "SEND", 3: "SEND_IMM", 4: "READ", 5: "CMP_SWAP", 6: "FETCH_ADD", 9: "SEND_INV",
}

// posts renders the send WRs of each QP in the order of their posting calls.
func (r *recording) posts() map[uint32][]string {
	out := map[uint32][]string{}
	for _, e := range r.events {
		if e.Kind != event.KindWR || e.Flags&event.WRReceive != 0 {
			continue
		}
		out[e.Verb.QPNum] = append(out[e.Verb.QPNum], fmt.Sprintf("%s %d", wrOpcodes[e.Verb.Opcode], e.Verb.Bytes))
	}
	return out
}

// completions counts by QP: those of sends, and those of receives.
func (r *recording) completions() map[uint32][2]int {
	out := map[uint32][2]int{}
	for _, e := range r.events {
		if e.Kind != event.KindCompletion {
			continue
		}
		n := out[e.Verb.QPNum]
		n[e.Verb.Opcode>>7]++ // bit 7: a receive
		out[e.Verb.QPNum] = n
	}
	return out
}

// compare holds the recording against the truth of one process.
func (r *recording) compare(t *testing.T, rows []truth.Row, pid int) {
	t.Helper()
	posts, completions := r.posts(), r.completions()
	seen := 0
	for q, rows := range truth.Queues(rows) {
		if q.PID != pid {
			continue
		}
		if q.Kind == truth.Recv {
			if got := completions[q.QPN][1]; got != len(rows) {
				t.Errorf("QP %d: %d completions of receives, the device wrote %d", q.QPN, got, len(rows))
			}
			continue
		}
		var want []string
		signaled := 0
		for _, row := range rows {
			want = append(want, fmt.Sprintf("%s %d", row.Opcode, row.Bytes))
			if row.Flags.Has(truth.Signaled) {
				signaled++
			}
		}
		seen += len(want)
		if got := strings.Join(posts[q.QPN], "\n"); got != strings.Join(want, "\n") {
			t.Errorf("QP %d: posted %d WRs, the device executed %d; first difference at %s",
				q.QPN, len(posts[q.QPN]), len(want), difference(posts[q.QPN], want))
		}
		if got := completions[q.QPN][0]; got != signaled {
			t.Errorf("QP %d: %d completions of sends, the device wrote %d", q.QPN, got, signaled)
		}
	}
	if seen == 0 {
		t.Errorf("the device executed nothing for process %d", pid)
	}
	t.Logf("%d WRs compared", seen)
}

// countsHits checks that the probes of posting functions were hit once for each call.
func (r *recording) countsHits(t *testing.T) {
	t.Helper()
	calls := uint64(0)
	for _, e := range r.events {
		if e.Kind == event.KindPostEnd && e.Flags&event.WRReceive == 0 {
			calls++
		}
	}
	hits := map[string]uint64{}
	for _, p := range r.context.Probes {
		if p.Name == "post_send" || p.Name == "wr_complete" {
			hits[p.Kind] += p.Hits
		}
		if p.Misses != 0 {
			t.Errorf("%s at %#x missed %d", p.Name, p.Offset, p.Misses)
		}
	}
	if hits["uprobe"] != calls || hits["uretprobe"] != calls {
		t.Errorf("%d posting calls, hits %v", calls, hits)
	}
}

// listsWhole checks that the WRs of each call come in order before its end, which counts them, and
// that there are as many as perftest was told to post at once.
func (r *recording) listsWhole(t *testing.T, command string) {
	t.Helper()
	type call struct{ tid, number uint32 }
	seen := map[call]uint16{}
	posted := uint16(0)
	if _, list, is := strings.Cut(command, " -l "); is {
		_, _ = fmt.Sscan(list, &posted)
	}
	for _, e := range r.events {
		c := call{e.TID, e.Verb.Call}
		switch e.Kind {
		case event.KindWR:
			if e.Verb.Index != seen[c] {
				t.Fatalf("call %d of thread %d: WR %d comes as number %d", c.number, c.tid, e.Verb.Index, seen[c])
			}
			seen[c]++
		case event.KindPostEnd:
			if n := seen[c]; n != e.Verb.Count || posted > 0 && e.Flags&event.WRReceive == 0 && n != posted {
				t.Fatalf("call %d of thread %d: %d WRs, the end says %d, perftest posts %d at once", c.number, c.tid, n, e.Verb.Count, posted)
			}
		}
	}
}

// compareHardware holds what was read of libmlx5's private memory against the
// truth: the index of each WQE, and of each CQE the time and the WQE it names.
func (r *recording) compareHardware(t *testing.T, rows []truth.Row, pid int) {
	t.Helper()
	posted, sent, received := map[uint32][]event.Event{}, map[uint32][]event.Event{}, map[uint32][]event.Event{}
	events := slices.Clone(r.events)
	slices.SortStableFunc(events, func(a, b event.Event) int { return cmp.Compare(a.Time, b.Time) })
	for _, e := range events {
		switch {
		case e.Kind == event.KindWR && e.Flags&event.WRReceive == 0:
			posted[e.Verb.QPNum] = append(posted[e.Verb.QPNum], e)
		case e.Kind == event.KindCompletion && e.Verb.Opcode < 128:
			sent[e.Verb.QPNum] = append(sent[e.Verb.QPNum], e)
		case e.Kind == event.KindCompletion:
			received[e.Verb.QPNum] = append(received[e.Verb.QPNum], e)
		}
	}
	var known, unknown [2]int // WQEs and CQEs
	count := func(what int, ok bool) bool {
		if ok {
			known[what]++
		} else {
			unknown[what]++
		}
		return ok
	}
	for q, rows := range truth.Queues(rows) {
		if q.PID != pid {
			continue
		}
		completions := received[q.QPN]
		if q.Kind == truth.Send {
			for i, e := range posted[q.QPN][:min(len(rows), len(posted[q.QPN]))] {
				if count(0, e.Flags&event.WRWQEValid != 0) && uint32(e.Verb.WQE) != rows[i].WQE {
					t.Fatalf("QP %d, WR %d: WQE %d, the device's %d", q.QPN, i, e.Verb.WQE, rows[i].WQE)
				}
			}
			rows = slices.DeleteFunc(slices.Clone(rows), func(row truth.Row) bool { return !row.Flags.Has(truth.Signaled) })
			completions = sent[q.QPN]
		}
		for i, e := range completions[:min(len(rows), len(completions))] {
			if !count(1, e.Flags&event.CompletionHWTime != 0) {
				continue
			}
			if int64(e.Verb.HWTime) != rows[i].CQE || uint32(e.Verb.WQE) != rows[i].WQE {
				t.Fatalf("QP %d, completion %d: WQE %d at %d, the device wrote %d at %d",
					q.QPN, i, e.Verb.WQE, e.Verb.HWTime, rows[i].WQE, rows[i].CQE)
			}
		}
	}
	t.Logf("WQEs known %d, not %d; CQEs known %d, not %d", known[0], unknown[0], known[1], unknown[1])
}

func difference(got, want []string) string {
	for i := range min(len(got), len(want)) {
		if got[i] != want[i] {
			return fmt.Sprintf("%d: %q for %q", i, got[i], want[i])
		}
	}
	return fmt.Sprint(min(len(got), len(want)))
}

// TestCommand traces programs from their first instruction on: every WR and
// every completion must be there, in order, with its size.
func TestCommand(t *testing.T) {
	d := startDevice(t)
	programs := [][]string{
		{"ib_write_lat", "-n", "300"},
		{"ib_write_lat", "-n", "300", "--use_old_post_send"},
		{"ib_send_lat", "-n", "200", "-e"},
		{"ib_write_bw", "-n", "2000", "-s", "4096"},
		{"ib_write_bw", "-n", "2000", "-s", "4096", "--use_old_post_send", "-l", "5"},
		{"ib_write_bw", "-n", "500", "-q", "3", "-l", "10"},
		{"ib_write_bw", "-n", "112", "-l", "2"},
		{"ib_write_bw", "-n", "112", "-l", "7"},
		{"ib_write_bw", "-n", "112", "-l", "8"},
		{"ib_write_bw", "-n", "117", "-l", "9"},
		{"ib_write_bw", "-n", "192", "-l", "64"},
		{"ib_write_bw", "-n", "112", "-l", "2", "--use_old_post_send"},
		{"ib_write_bw", "-n", "112", "-l", "7", "--use_old_post_send"},
		{"ib_write_bw", "-n", "112", "-l", "8", "--use_old_post_send"},
		{"ib_write_bw", "-n", "117", "-l", "9", "--use_old_post_send"},
		{"ib_write_bw", "-n", "192", "-l", "64", "--use_old_post_send"},
		{"ib_read_lat", "-n", "200"},
		{"ib_atomic_lat", "-n", "200"},
		{"ibv_rc_pingpong", "-n", "200"},
		{"ibv_rc_pingpong", "-n", "200", "-N", "-e"},
	}
	type traced struct {
		name string
		pid  int
		rec  *recording
	}
	var all []traced
	for _, argv := range programs {
		name := strings.Join(argv, " ")
		server, client := d.server(argv...)
		tr, rec := recordCommand(t, onDevice(client...))
		server.wait(t)
		all = append(all, traced{name, tr, rec})
	}
	rows := d.stop()
	for _, one := range all {
		t.Run(one.name, func(t *testing.T) {
			one.rec.lossless(t)
			one.rec.compare(t, rows, one.pid)
			one.rec.compareHardware(t, rows, one.pid)
			one.rec.countsHits(t)
			one.rec.listsWhole(t, one.name)
		})
	}
}

// recordCommand traces a command until it ends, and checks that it succeeds.
func recordCommand(t *testing.T, argv []string) (pid int, rec *recording) {
	t.Helper()
	tr, err := New(t.Context(), Config{Command: argv})
	if err != nil {
		t.Fatal(err)
	}
	rec = &recording{}
	err = tr.Run(t.Context(), func(e *event.Event) error {
		rec.events = append(rec.events, *e)
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	rec.context = tr.Context()
	cmd := tr.Command()
	if err := tr.Close(); err != nil {
		t.Error(err)
	}
	<-cmd.Done()
	if s := cmd.State(); s == nil || !s.Success() {
		t.Fatalf("%s: %v", strings.Join(argv, " "), s)
	}
	return cmd.PID(), rec
}
