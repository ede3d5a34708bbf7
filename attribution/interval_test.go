package attribution

import (
	"testing"

	"pgregory.net/rapid"
)

// With no more disjoint intervals than are kept, the union is exact in any order.
func TestIntervalSetMeasuresUnions(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const span = 200
		var set intervalSet
		var covered [span]bool
		for range rapid.IntRange(0, 40).Draw(t, "intervals") {
			// At most maxIntervals islands of 20, with some space between.
			island := rapid.Uint64Range(0, maxIntervals-1).Draw(t, "island")
			begin := island*25 + rapid.Uint64Range(0, 18).Draw(t, "begin")
			end := min(begin+rapid.Uint64Range(0, 20).Draw(t, "ns"), island*25+20)
			set.add(begin, max(begin, end))
			for i := begin; i < end; i++ {
				covered[i] = true
			}
			islands, last := 0, false
			want := uint64(0)
			for _, c := range covered {
				if c {
					want++
				}
				if c && !last {
					islands++
				}
				last = c
			}
			if islands > maxIntervals {
				return // beyond what is exact
			}
			if set.covered != want {
				t.Fatalf("after [%d,%d): %d covered, want %d", begin, end, set.covered, want)
			}
		}
	})
}

// In order of time any number is exact: that is how a thread's delays come.
func TestIntervalSetInOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var set intervalSet
		want, at, reached := uint64(0), uint64(0), uint64(0)
		for range rapid.IntRange(0, 300).Draw(t, "intervals") {
			at += rapid.Uint64Range(0, 50).Draw(t, "step")
			end := at + rapid.Uint64Range(0, 60).Draw(t, "ns")
			set.add(at, end)
			if end > reached {
				want += end - max(at, reached)
				reached = end
			}
		}
		if set.covered != want {
			t.Errorf("%d covered, want %d", set.covered, want)
		}
	})
}

// In any order it never counts more than the union.
func TestIntervalSetNeverCountsTwice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const span = 400
		var set intervalSet
		var covered [span]bool
		for range rapid.IntRange(0, 100).Draw(t, "intervals") {
			begin := rapid.Uint64Range(0, span-10).Draw(t, "begin")
			end := begin + rapid.Uint64Range(0, 9).Draw(t, "ns")
			set.add(begin, end)
			for i := begin; i < end; i++ {
				covered[i] = true
			}
		}
		want := uint64(0)
		for _, c := range covered {
			if c {
				want++
			}
		}
		if set.covered > want {
			t.Errorf("%d covered of %d", set.covered, want)
		}
	})
}
