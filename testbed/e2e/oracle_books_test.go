package e2e

import (
	"strings"
	"testing"

	"github.com/rdmatrace/rdmatrace/testbed/softmlx5/truth"
)

// shapes are programs in which who posts, who reaps, and what is signalled, is
// not as in a benchmark. Each ends by itself.
var shapes = []struct {
	name, argv string
	always     bool // not only in make oracle
}{
	{"reaped by another thread", "oracle-threads count=1500", false},
	{"handed off by a dispatcher", "oracle-threads shape=dispatcher count=1500", false},
	{"unsignalled batches", "oracle-threads batch=16 depth=2 count=400", true},
	{"a collective library's proxy", "oracle-proxy count=160", true},
	{"a shared receive queue", "oracle-receiver links=4 srq=1 receives=16 depth=2 count=400", false},
}

// Seen from the first work request to the last, the books are the truth log's:
// nothing is lost, nothing excluded, nothing taken for another.
func TestOracleBooks(t *testing.T) {
	for _, c := range shapes {
		if c.always || wholeOracle() {
			t.Run(c.name, func(t *testing.T) { try(t, func(t *trial, _ matrix) { balanced(t, c.argv) }) })
		}
	}
}

// wholeLife traces a program from its first work request to its last.
func wholeLife(t *trial, d *device, command string) (*traced, map[truth.Queue][]truth.Row) {
	t.Helper()
	argv := append([]string{"--", built(t.T, softmlx5), "run", "taskset", "-c", "0"}, jobArgv(t.T, command)...)
	got := startTrace(t.T, d.env(), argv...).result(t.T)
	if !strings.Contains(got.stderr, "exited with status 0") {
		t.Errorf("no end of the program in: %s", got.stderr)
	}
	return got, d.truth(t.T)
}

func balanced(t *trial, command string) {
	got, queues := wholeLife(t, spinning(t.T, "LAT_NS=4000"), command)
	s := see(t, got, queues)
	var posted, signalled, receives int64
	for q, rows := range queues {
		for _, r := range rows {
			switch {
			case q.PID != got.program(t.T):
			case q.Kind == truth.Recv:
				receives++
			default:
				posted++
				if r.Flags.Has(truth.Signaled) {
					signalled++
				}
			}
		}
	}
	b := s.Kinds["send"]
	if b.Posted != posted || b.Excluded != 0 || b.Flushed != 0 {
		t.Errorf("sends: %+v, truth %d", b, posted)
	}
	// What is in flight at the end is not taken by the program itself.
	if n := int64(len(s.wrs)); n+b.Outstanding < signalled || n > signalled {
		t.Errorf("%d signalled sends measured, truth %d; %+v", n, signalled, b)
	}
	if b := s.Kinds["receive"]; b.Completed > receives || b.Completed+b.Outstanding < receives || b.Excluded != 0 {
		t.Errorf("receives: %+v, truth %d", b, receives)
	}
}
