package attribution

import (
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func sameNames() *renaming {
	r := new(renaming)
	for i := range r {
		r[i] = Cause(i)
	}
	return r
}

func anyParts() *rapid.Generator[*parts] {
	return rapid.Custom(func(t *rapid.T) *parts {
		p := new(parts)
		for range rapid.IntRange(0, 6).Draw(t, "segments") {
			p.add(Cause(rapid.IntRange(0, int(numCauses)-1).Draw(t, "cause")), anyDuration().Draw(t, "ns"))
		}
		return p
	})
}

// The parts of a split add up to its latency, for every percentile and
// fineness, and it is about WRs whose latency is that of the percentile.
func TestSplitAddsUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := rapid.SliceOfN(anyParts(), 1, 200).Draw(t, "WRs")
		fine := rapid.Uint8Range(3, 4).Draw(t, "fine")
		permille := int64(rapid.SampledFrom([]int{500, 900, 990}).Draw(t, "permille"))
		table := splitTable{fine: fine}
		var latencies []uint64
		for _, p := range all {
			table.bucket(p.latency).merge(&splitBucket{1, p.causes})
			latencies = append(latencies, p.latency)
		}
		b := table.around(int64(len(all)), permille)
		s := b.report(sameNames())
		if s.Count == 0 || s.Count > int64(len(all)) {
			t.Fatalf("%d of %d WRs", s.Count, len(all))
		}
		var total int64
		for _, c := range s.Causes {
			total += c.TotalNS
		}
		if float64(total)/float64(s.Count) != s.LatencyNS {
			t.Errorf("causes add up to %d over %d WRs, latency is %v", total, s.Count, s.LatencyNS)
		}
		sum := 0.0
		for _, ns := range s.ClassNS {
			sum += ns
		}
		if math.Abs(sum-s.LatencyNS) > 1e-9*s.LatencyNS {
			t.Errorf("classes add up to %v, latency is %v", sum, s.LatencyNS)
		}
		// With few WRs around the rank, all lie within a bucket of it.
		if reach := int64(len(all)) * min(permille, 1000-permille) / 10_000; reach == 0 {
			slices.Sort(latencies)
			want := float64(latencies[rankOf(int64(len(all)), permille)-1])
			if width := want / float64(int(1)<<fine); math.Abs(s.LatencyNS-want) > max(width, 1)+1e-9*want { // 0 and 1 ns share one
				t.Errorf("mean latency %v around a rank of %v", s.LatencyNS, want)
			}
		}
	})
}

func TestSplitBucketsAreInOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		table := splitTable{fine: 4}
		a, b := anyDuration().Draw(t, "a"), anyDuration().Draw(t, "b")
		if a > b {
			a, b = b, a
		}
		place := func(v uint64) int {
			bucket := table.bucket(v)
			for i, o := range table.octaves {
				for j := range o {
					if &o[j] == bucket {
						return i<<8 | j
					}
				}
			}
			t.Fatal("a bucket outside the table")
			return 0
		}
		if place(a) > place(b) {
			t.Errorf("%d is placed after %d", a, b)
		}
	})
}

func TestSplitMergesLikeAdding(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := rapid.SliceOfN(anyParts(), 1, 60).Draw(t, "WRs")
		whole, left, right := newCell(3), newCell(3), newCell(3)
		for i, p := range all {
			whole.add(p, 8)
			[]*cell{left, right}[i%2].add(p, 8)
		}
		left.merge(right)
		got, want := left.group("op", "x", sameNames()), whole.group("op", "x", sameNames())
		if diff := compareGroups(got, want); diff != "" {
			t.Error(diff)
		}
	})
}
