package attribution

import (
	"math/rand/v2"
	"reflect"
	"testing"

	"pgregory.net/rapid"
)

type reapedWR struct{ reaped, latency uint64 }

func seriesOf(wrs []reapedWR) *series {
	var s series
	for _, w := range wrs {
		p := parts{latency: w.latency}
		p.classes[Wire] = w.latency
		s.add(w.reaped, &p, w.reaped-w.latency)
	}
	return &s
}

// The series is a matter of the WRs, not of their order; nothing is lost.
func TestSeriesDoesNotDependOnOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 100).Draw(t, "WRs")
		var wrs []reapedWR
		for range n {
			wrs = append(wrs, reapedWR{1e12 + anyDuration().Draw(t, "reaped"), rapid.Uint64Range(0, 1e6).Draw(t, "latency")})
		}
		got := seriesOf(wrs).report()
		rand.New(rand.NewPCG(1, uint64(n))).Shuffle(n, func(i, j int) { wrs[i], wrs[j] = wrs[j], wrs[i] })
		if again := seriesOf(wrs).report(); !reflect.DeepEqual(got, again) {
			t.Fatalf("shuffled: %v, was %v", again, got)
		}
		if len(got) > seriesMost {
			t.Errorf("%d points", len(got))
		}
		var count, sum, most int64
		for i, p := range got {
			count += p.Count
			sum += p.ClassNS[Wire]
			most = max(most, p.MaxNS)
			if i > 0 && p.Begin != got[i-1].End {
				t.Errorf("point %d begins at %d, the last ended at %d", i, p.Begin, got[i-1].End)
			}
		}
		var wantSum, wantMost int64
		for _, w := range wrs {
			wantSum += int64(w.latency)
			wantMost = max(wantMost, int64(w.latency))
			if first, last := got[0], got[len(got)-1]; w.reaped < first.Begin || w.reaped >= last.End {
				t.Errorf("reaped at %d, outside [%d,%d)", w.reaped, first.Begin, last.End)
			}
		}
		if count != int64(n) || sum != wantSum || most != wantMost {
			t.Errorf("%d WRs of %d ns, longest %d; want %d, %d, %d", count, sum, most, n, wantSum, wantMost)
		}
	})
}

func TestSlowPattern(t *testing.T) {
	const second = 1_000_000_000
	// A steady 20 us every millisecond for ten seconds, with slow ones at.
	run := func(slow func(ms int) uint64) Slow {
		var wrs []reapedWR
		for ms := range 10_000 {
			wrs = append(wrs, reapedWR{5*second + uint64(ms)*1_000_000, 20_000 + slow(ms)})
		}
		return seriesOf(wrs).slowPattern(20_000)
	}
	random := rand.New(rand.NewPCG(7, 7))
	for _, c := range []struct {
		name    string
		slow    func(ms int) uint64
		pattern string
		bursts  int64
	}{
		{"healthy", func(int) uint64 { return 0 }, "none", 0},
		{"jitter below the threshold", func(ms int) uint64 { return uint64(ms%7) * 8000 }, "none", 0},
		{"every second", func(ms int) uint64 {
			if ms%1000 == 500 {
				return 900_000
			}
			return 0
		}, "every 1.00 s", 10},
		{"every second, some unseen", func(ms int) uint64 {
			if ms%1000 == 500 && ms/1000 != 3 && ms/1000 != 6 {
				return 900_000
			}
			return 0
		}, "every 1.00 s", 8},
		{"every 250 ms for 40 ms", func(ms int) uint64 {
			if ms%250 < 40 {
				return 500_000 - uint64(ms%250)*1000
			}
			return 0
		}, "every 250.00 ms", 40},
		{"once", func(ms int) uint64 {
			if ms == 4321 {
				return 5_000_000
			}
			return 0
		}, "once", 1},
		{"now and then", func(ms int) uint64 {
			if ms == 100 || ms == 2600 || ms == 3000 || ms == 7777 || ms == 9000 {
				return 300_000
			}
			return 0
		}, "irregular", 5},
		{"throughout", func(ms int) uint64 { return uint64(random.IntN(2)) * 200_000 }, "throughout", -1},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := run(c.slow)
			if got.Pattern != c.pattern || c.bursts >= 0 && got.Bursts != c.bursts {
				t.Errorf("got %+v, want %q in %d bursts", got, c.pattern, c.bursts)
			}
		})
	}
}
