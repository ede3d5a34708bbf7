package e2e

import (
	"strings"
	"testing"

	"github.com/rdmatrace/rdmatrace/event"
	"github.com/rdmatrace/rdmatrace/testbed/softmlx5/truth"
)

// programs are unmodified, endless until they are stopped, and cover both ways
// to post (builders and lists), polling and events, signalled and unsignalled.
// Those that keep a queue full do it on a slow link, as nothing may be lost on
// two CPUs, of which the device and the server have one.
var programs = []struct{ name, argv, device string }{
	{"write_lat", "ib_write_lat -s 64 -n 4000000", ""},
	{"write_lat old", "ib_write_lat --use_old_post_send -s 64 -n 4000000", ""},
	{"write_lat stalled", "ib_write_lat -s 64 -n 4000000", "SLOW_STAGE=stamp SLOW_EVERY=150 SLOW_NS=5000"},
	{"read_lat", "ib_read_lat -s 4096 -n 4000000", ""},
	{"read_lat old", "ib_read_lat --use_old_post_send -s 4096 -n 4000000", ""},
	{"send_lat", "ib_send_lat -s 512 -n 4000000", ""},
	{"send_lat events", "ib_send_lat -e -s 512 -n 4000000", ""},
	{"send_lat events old", "ib_send_lat -e --use_old_post_send -s 512 -n 4000000", ""},
	{"write_bw", "ib_write_bw -s 4096 -n 4000000", "BYTE_PS=5000"},
	{"write_bw old", "ib_write_bw --use_old_post_send -s 4096 -n 4000000", "BYTE_PS=5000"},
	{"rc_pingpong", "ibv_rc_pingpong -n 100000000", ""},
	{"rc_pingpong events", "ibv_rc_pingpong -e -n 100000000", ""},
}

// Attached in the middle of its traffic, every work request that is counted as
// complete is one of the truth log, by queue and index, with its completion
// where the report says; the books balance and nothing is lost.
func TestPrograms(t *testing.T) {
	for _, c := range programs {
		t.Run(c.name, func(t *testing.T) {
			d := startDevice(t, strings.Fields(c.device)...)
			p := d.pair(t, strings.Fields(c.argv)...)
			tr := traceFor(t, p.client, 2000)
			p.running(t)
			p.stop()
			tr.balance(t)
			tr.addUp(t)
			if b := tr.WRs; b.Lost != 0 {
				t.Errorf("%d lost; dropped: %v", b.Lost, tr.dropped())
			}
			wrs := match(t, tr, d.truth(t))
			if int64(len(wrs)) != tr.Latency.Count {
				t.Errorf("%d work requests matched, %d in the report", len(wrs), tr.Latency.Count)
			}
			if strings.HasPrefix(c.argv, "ib_") && !strings.Contains(c.argv, "old_post_send") {
				tr.readsQueue(t)
			}
			if len(wrs) < 20 { // of 2000 completions: write_bw completes one in 100
				t.Errorf("only %d work requests were measured: %+v", len(wrs), tr.WRs)
			}
		})
	}
}

// readsQueue fails the test unless the latest work requests by builders took four
// traps at most: wr_start, entry and return of wr_complete, and the completion.
func (tr *traced) readsQueue(t *testing.T) {
	t.Helper()
	const latest = 20
	var posts, completions int
	for i := len(tr.events) - 1; i >= 0 && min(posts, completions) < latest; i-- {
		switch e := &tr.events[i]; {
		case e.Kind == event.KindPostEnd && e.Flags&event.WRBuilder != 0 && posts < latest:
			posts++
			if e.Verb.Traps > 3 || e.Verb.Result == 0 && e.Verb.Count == 0 {
				t.Fatalf("a post of %d work requests took %d traps; %q", e.Verb.Count, e.Verb.Traps, tr.ctx.Notes)
			}
		case e.Kind == event.KindCompletion && e.Verb.Opcode < 128 && completions < latest:
			completions++
			if e.Verb.Begin == 0 && e.Verb.Traps > 1 { // it was seen where it is consumed
				t.Fatalf("a completion took %d traps; %q", e.Verb.Traps, tr.ctx.Notes)
			}
		}
	}
	if min(posts, completions) < latest {
		t.Errorf("%d posts by builders and %d completions in all", posts, completions)
	}
}

// Started by rdmatrace, a program is seen from its first work request to its
// last: the report counts exactly what the truth log has.
func TestWholeRun(t *testing.T) {
	for _, tool := range []string{"ib_write_lat -n 3000", "ib_write_bw -n 3000", "ib_send_lat -e -n 1000"} {
		t.Run(tool, func(t *testing.T) {
			d := startDevice(t)
			argv := strings.Fields(tool)
			server := d.server(t, argv...)
			tr := startTrace(t, d.env(), append(append([]string{"--", built(t, softmlx5), "run"}, argv...), "127.0.0.1")...)
			got := tr.result(t)
			server.wait(t)
			if !strings.Contains(got.stderr, "exited with status 0") {
				t.Errorf("no end of the program in: %s", got.stderr)
			}
			queues := d.truth(t)
			match(t, got, queues)
			got.balance(t)
			var sends, receives int64
			for q, rows := range queues {
				switch {
				case q.PID != got.program(t):
				case q.Kind == truth.Send:
					sends += int64(len(rows))
				default:
					receives += int64(len(rows))
				}
			}
			if b := got.Kinds["send"]; b.Posted != sends || b.Completed != sends {
				t.Errorf("sends: %+v, truth %d", b, sends)
			}
			if b := got.Kinds["receive"]; b.Completed != receives {
				t.Errorf("receives: %+v, truth %d", b, receives)
			}
		})
	}
}
