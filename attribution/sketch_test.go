package attribution

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// anyDuration draws from all magnitudes alike.
func anyDuration() *rapid.Generator[uint64] {
	return rapid.Custom(func(t *rapid.T) uint64 {
		bits := rapid.IntRange(0, 45).Draw(t, "bits")
		return rapid.Uint64Range(0, 1<<bits).Draw(t, "ns")
	})
}

func TestSketchBucketHoldsItsValue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := rapid.Uint64().Draw(t, "v")
		octave, bucket := sketchBucket(v)
		middle := sketchMiddle(octave, bucket)
		if off := float64(max(v, middle) - min(v, middle)); off > float64(v)/128+0.5 {
			t.Errorf("%d is counted as %d", v, middle)
		}
	})
}

func TestDurationsAgainstSortedValues(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(anyDuration(), 1, 300).Draw(t, "values")
		var whole, left, right durations
		for i, v := range values {
			if v == 0 {
				continue // left out, and given to report as a count
			}
			whole.add(v)
			if i%3 == 0 {
				left.add(v)
			} else {
				right.add(v)
			}
		}
		left.merge(&right)
		n := int64(len(values))
		got := whole.report(n)
		if merged := left.report(n); merged != got {
			t.Fatalf("merged %+v, added %+v", merged, got)
		}
		slices.Sort(values)
		checkDistribution(t, got, values)
	})
}

// checkDistribution compares with the definition; values are sorted.
func checkDistribution(t *rapid.T, got Distribution, values []uint64) {
	t.Helper()
	n := float64(len(values))
	var total, squares float64
	for _, v := range values {
		total += float64(v)
	}
	for _, v := range values {
		squares += (float64(v) - total/n) * (float64(v) - total/n)
	}
	near := func(name string, got, want, tolerance float64) {
		t.Helper()
		if math.Abs(got-want) > tolerance {
			t.Errorf("%s: got %v, want %v", name, got, want)
		}
	}
	near("count", float64(got.Count), n, 0)
	near("total", float64(got.TotalNS), total, 0)
	near("mean", got.MeanNS, total/n, total/n*1e-9)
	near("deviation", got.StdDevNS, math.Sqrt(squares/n), math.Sqrt(squares/n)*1e-6+1e-6)
	near("min", float64(got.MinNS), float64(values[0]), 0)
	near("max", float64(got.MaxNS), float64(values[len(values)-1]), 0)
	for _, p := range []struct {
		permille int
		got      int64
	}{{500, got.P50NS}, {900, got.P90NS}, {990, got.P99NS}, {999, got.P999NS}} {
		want := float64(values[(len(values)*p.permille+999)/1000-1])
		near("percentile", float64(p.got), want, RelativeError*want)
	}
}

func TestDurationsOfNothing(t *testing.T) {
	var d durations
	if got := d.report(0); got != (Distribution{}) {
		t.Errorf("of none: %+v", got)
	}
	if got := d.report(7); got != (Distribution{Count: 7}) {
		t.Errorf("of seven zeros: %+v", got)
	}
}
