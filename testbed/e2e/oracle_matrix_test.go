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

// matrix counts work requests by the cause that was injected and the one that
// was reported.
type matrix map[string]map[string]int

// nothing stands for work requests that nobody delayed.
const nothing = "nothing"

// known is the least delay that counts, ns, and its share of the latency that
// is usual.
const known, knownShare = 2_000, 0.1

// fill adds the work requests of a run, with what was injected into each by
// cause, in ns; 0: nothing. The reported cause is the one that took more than it
// usually does by most. The machine adds delays of its own, so one that has nine
// tenths of what was injected where it was injected is found.
func (m matrix) fill(s *seen, cause attribution.Cause, injected func(w *measuredWR) int64) {
	rest := where(s.wrs, func(w *measuredWR) bool { return injected(w) <= 0 })
	usual := map[attribution.Cause]int64{}
	for c := attribution.CauseUndecided; c <= attribution.Retransmit; c++ {
		usual[c] = quantile(collect(rest, func(w *measuredWR) int64 { return w.of(c, "") }), 0.5)
	}
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
	if c != attribution.Congestion && c != attribution.RNR && c != attribution.Retransmit {
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
request is compared with the device's truth log. A row is what was injected, its columns what the report blames: the injected cause if it took
nine tenths of what was injected, else the cause that took more than it usually does by most, if that is over 2 us and a tenth of
the usual latency.

The machine is not silent: work requests of which nothing was injected are delayed by interrupts and other processes too. ` + "`go test ./testbed/e2e -run Oracle -update`" + ` writes this page; the tests demand more than it shows: testbed/e2e/oracle_*_test.go.

| injected | work requests | reported |
| --- | --- | --- |
`

func (m matrix) String() string {
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
			reported[i] = fmt.Sprintf("%s %d (%.1f %%)", r, m[injected][r], 100*float64(m[injected][r])/float64(total))
		}
		fmt.Fprintf(&b, "| %s | %d | %s |\n", injected, total, strings.Join(reported, ", "))
	}
	return b.String()
}

// finish prints the matrix and, if asked to, writes it to docs.
func (m matrix) finish(t *testing.T) {
	t.Helper()
	t.Logf("injected and reported:\n%s", m)
	if !*update {
		return
	}
	if err := os.WriteFile(filepath.Join(root, "docs/oracle.md"), []byte(matrixIntro+m.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}
