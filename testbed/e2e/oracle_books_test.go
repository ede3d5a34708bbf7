package e2e

import (
	"strings"
	"testing"

	"github.com/rdmatrace/rdmatrace/testbed/softmlx5/truth"
)

// shapes are programs in which who posts, who reaps, and what is signalled, is
// not as in a benchmark. Each ends by itself.
var shapes = []struct{ name, argv string }{
	{"reaped by another thread", "oracle-threads count=1500"},
	{"handed off by a dispatcher", "oracle-threads shape=dispatcher count=1500"},
	{"unsignalled batches", "oracle-threads batch=16 depth=2 count=400"},
	{"a collective library's proxy", "oracle-proxy count=160"},
}

// Seen from the first work request to the last, the books are the truth log's:
// nothing is lost, nothing excluded, nothing taken for another.
func TestOracleBooks(t *testing.T) {
	wantOracle(t)
	for _, c := range shapes {
		t.Run(c.name, func(t *testing.T) {
			d := spinning(t, "LAT_NS=4000")
			argv := append([]string{"--", built(t, softmlx5), "run", "taskset", "-c", "0"}, jobArgv(t, c.argv)...)
			got := startTrace(t, d.env(), argv...).result(t)
			if !strings.Contains(got.stderr, "exited with status 0") {
				t.Errorf("no end of the program in: %s", got.stderr)
			}
			queues := d.truth(t)
			s := see(t, got, queues)
			var posted, signalled, receives int64
			for q, rows := range queues {
				for _, r := range rows {
					switch {
					case q.PID != got.program(t):
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
		})
	}
}
