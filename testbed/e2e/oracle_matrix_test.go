package e2e

import (
	"cmp"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rdmatrace/rdmatrace/attribution"
)

var update = flag.Bool("update", false, "write docs/oracle.md")

// matrix counts the work requests of a case by the cause that was injected and
// the one that was reported.
type matrix map[string]map[string]int

// nothing stands for work requests that nobody delayed.
const nothing = "nothing"

// known is the least delay that counts, ns, and its share of the latency that
// is usual.
const known, knownShare = 2_000, 0.1

// fill adds the work requests of a run, with what was injected into each by
// cause, in ns; 0: nothing. The reported cause is the one that took more than it
// usually does by most, not counting how late the device was by its own log. The
// machine adds delays of its own, so one that has nine tenths of what was injected
// where it was injected is found.
func (m matrix) fill(s *seen, cause attribution.Cause, injected func(w *measuredWR) int64) {
	rest := where(s.wrs, func(w *measuredWR) bool { return injected(w) <= 0 })
	usual := map[attribution.Cause]int64{}
	for c := attribution.CauseUndecided; c <= attribution.Retransmit; c++ {
		usual[c] = quantile(collect(rest, func(w *measuredWR) int64 { return w.of(c, "") }), 0.5)
	}
	punctual := quantile(collect(rest, (*measuredWR).late), 0.1)
	least := max(known, int64(knownShare*float64(quantile(collect(rest, (*measuredWR).latency), 0.5))))
	for i := range s.wrs {
		w := &s.wrs[i]
		in, out, most := nothing, nothing, least
		if injected(w) > 0 {
			in = cause.FullName()
		}
		for c := attribution.CauseUndecided; c <= attribution.Retransmit; c++ {
			more, name := w.of(c, "")-usual[c], s.named(c)
			if name == in && more >= injected(w)*9/10 {
				out = name
				break
			}
			if c.Class() == attribution.Wire || c.Class() == attribution.Undecided {
				more -= max(0, w.late()-punctual)
			}
			if more > most {
				out, most = name, more
			}
		}
		if m[in] == nil {
			m[in] = map[string]int{}
		}
		m[in][out]++
	}
}

// named is a cause by the name the report gives it: a single work request shows
// only what its excess looks like, and counters then say whether it was that.
func (s *seen) named(c attribution.Cause) string {
	switch c {
	case attribution.Excess:
		if s.Causes[attribution.Congestion.FullName()].TotalNS > 0 {
			return attribution.Congestion.FullName()
		}
		return c.FullName()
	case attribution.Congestion, attribution.RNR, attribution.Retransmit:
	default:
		return c.FullName()
	}
	for _, c := range []attribution.Cause{c, attribution.Retransmit, attribution.RNR, attribution.Congestion} {
		if s.Causes[c.FullName()].TotalNS > 0 {
			return c.FullName()
		}
	}
	return attribution.Excess.FullName()
}

const matrixIntro = `# The oracle's confusion matrix

Faults are injected on the software device and by programs with known habits (testbed/programs), rdmatrace traces them, and each work
request is compared with the device's truth log. The columns of a row: what was injected, into how many work requests, and what the report
blames: the injected cause if it took nine tenths of what was injected, else the cause that took more than it usually does by most, if that is
over 2 us and a tenth of the usual latency; each with the number of work requests. Two queue pairs that share the port do wait
for each other, and port-share rightly says so.

The machine is not silent: work requests of which nothing was injected are delayed by interrupts and other processes too, and the report
rightly says so. What the device itself was late, by its own log, is left out.

` + "`make oracle`" + ` writes this page. The tests demand more than it shows: amounts, culprits, ranges, and all of it again as if
completion entries had no time stamps: testbed/e2e/oracle_*_test.go.

A case has three runs, each with an injection of its own, if what it claims does not hold in the first: it then has to hold of the work
requests of all runs together, and of amounts in most runs. Ten cases are part of ` + "`make test`" + `. Side by side with a run without
faults, what nothing was injected into must not have more of anything.

| what goes wrong | cases |
| --- | --- |
| every Nth request is slow | slow wire, slow completion, slow for another reaper, slow in unsignalled batches, slow for a proxy, and those of the clock |
| jitter | jitter |
| bursts behind a deep send queue | a burst in a deep queue, behind its own, behind another queue pair |
| receiver not ready; lost and sent again; congestion | no receive posted; lost and sent again; congested |
| spins, then sleeps | slow in its sleep; event late after a spin |
| errors and what they flush, queue pairs reset | TestOracleErrors |
| a late poller: computes, sleeps, long pause | computes before it polls, always computes before it polls, sleeps before it polls, long pause |
| scheduling | preempted by a hog; yields to a hog; woken, but a hog runs; throttled by its quota |
| event mode, delivered late | event late |
| who reaps | another thread reaps late, handed off late, TestOracleBooks |
| receives | receives wait for their peer, received late, received late from a shared queue |
| a collective library's proxy | a proxy is late, slow for a proxy, TestOracleBooks |
| nothing: a false alarm | deep queue on a long wire, reaped lazily, notified of a big one, two queue pairs share the port, idle |

| case | injected | work requests | reported |
| --- | --- | --- | --- |
`

// rows are the lines of a case.
func (m matrix) rows(name string) string {
	var b strings.Builder
	for _, injected := range slices.Sorted(maps.Keys(m)) {
		total := 0
		reported := slices.Collect(maps.Keys(m[injected]))
		for _, r := range reported {
			total += m[injected][r]
		}
		slices.SortFunc(reported, func(x, y string) int {
			return cmp.Or(cmp.Compare(m[injected][y], m[injected][x]), cmp.Compare(x, y))
		})
		for i, r := range reported {
			reported[i] = fmt.Sprintf("%s %d", r, m[injected][r])
		}
		fmt.Fprintf(&b, "| %s | %s | %d | %s |\n", name, injected, total, strings.Join(reported, ", "))
	}
	return b.String()
}

// publish prints the rows of all cases and, if asked to and all is well, writes
// them to docs.
func publish(t *testing.T, rows string) {
	t.Helper()
	t.Logf("injected and reported:\n%s", rows)
	if !*update || t.Failed() || !wholeOracle() {
		return
	}
	if err := os.WriteFile(filepath.Join(root, "docs/oracle.md"), []byte(matrixIntro+rows), 0o644); err != nil {
		t.Fatal(err)
	}
}
