package attribution

import (
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

// TestCoverage: each instant is visited when it is covered first, never again, in
// whatever order intervals come; nothing is visited that was not in one.
func TestCoverage(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const length = 300
		var c coverage
		var covered [length]bool
		for range rapid.IntRange(1, 60).Draw(t, "intervals") {
			begin := rapid.Uint64Range(1, length-1).Draw(t, "begin")
			end := min(begin+rapid.Uint64Range(0, 40).Draw(t, "length"), length)
			was := covered
			c.add(begin, end, func(b, e uint64) {
				if b < begin || e > end || b >= e {
					t.Fatalf("[%d, %d) of [%d, %d)", b, e, begin, end)
				}
				for ; b < e; b++ {
					if covered[b] {
						t.Fatalf("%d again", b)
					}
					covered[b] = true
				}
			})
			for at := range covered {
				if in := uint64(at) >= begin && uint64(at) < end; covered[at] != (was[at] || in) {
					t.Fatalf("%d after [%d, %d): %v", at, begin, end, covered[at])
				}
			}
		}
	})
}

// Beyond its bound a coverage visits less, never more, and says how much it is at most:
// no gap twice.
func TestCoverageIsBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const length = 6000
		var c coverage
		var in, visited [length]bool
		var sum, missed, union uint64
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 5))
		far := rapid.IntRange(1, 400).Draw(t, "one in so many is long")
		last := rapid.IntRange(600, 1400).Draw(t, "intervals")
		for i := range last {
			begin := uint64(1 + i*4 + rng.IntN(4))
			end := begin + 1 + uint64(rng.IntN(3))
			switch rng.IntN(2 * far) {
			case 0:
				begin = 1 + uint64(rng.Int64N(int64(begin))) // one that waited while others came and went
			case 1:
				end = 1 + uint64(rng.Int64N(int64(end)))
				begin = end - min(end-1, uint64(rng.IntN(60)))
			}
			missed += c.add(begin, end, func(b, e uint64) {
				if b < begin || e > end || b >= e {
					t.Fatalf("[%d, %d) of [%d, %d)", b, e, begin, end)
				}
				for ; b < e; b++ {
					if visited[b] {
						t.Fatalf("%d again", b)
					}
					visited[b] = true
					sum++
				}
			})
			for at := begin; at < end; at++ {
				if !in[at] {
					in[at] = true
					union++
				}
			}
			if n := c.intervals.len(); n > coveredMost || len(c.intervals.buf) > coveredMost {
				t.Fatalf("%d intervals", n)
			}
			if sum > union || sum+missed < union {
				t.Fatalf("%d and at most %d missed, of %d", sum, missed, union)
			}
			if sum+missed > uint64(4*i+8) {
				t.Fatalf("%d and at most %d missed, in %d", sum, missed, 4*i+8)
			}
		}
	})
}

// One that waited all the time: what it adds to what is kept apart is visited, the rest
// is missed, once, and exactly.
func TestCoverageOfAllTime(t *testing.T) {
	var c coverage
	var sum, missed uint64
	count := func(begin, end uint64) { sum += end - begin }
	for i := range uint64(4 * coveredMost) {
		missed += c.add(100+10*i, 104+10*i, count)
	}
	if n := c.intervals.len(); n != coveredMost || len(c.intervals.buf) != coveredMost || sum != 4*4*coveredMost || missed != 0 {
		t.Fatalf("%d intervals, %d ns, %d missed", n, sum, missed)
	}
	end := uint64(100 + 10*4*coveredMost)
	for i := range uint64(5) {
		missed += c.add(50-i, end+i, count)
	}
	if all := end + 4 - 46; sum+missed != all || missed != 6*3*coveredMost {
		t.Errorf("%d and %d missed, of %d", sum, missed, all)
	}
	if c.intervals.len() != 1 || c.gaps != 0 {
		t.Errorf("%d intervals, %d gaps", c.intervals.len(), c.gaps)
	}
}

// A batch that waited through a part of what is forgotten misses it once, not once for
// each of them: at most the length of that part.
func TestCoverageMissesABatchOnce(t *testing.T) {
	var c coverage
	var missed uint64
	none := func(begin, end uint64) {}
	for i := range uint64(4 * coveredMost) {
		missed += c.add(100+10*i, 104+10*i, none)
	}
	forgotten, begin, end := c.intervals.at(c.intervals.first).end, uint64(100+20*coveredMost), uint64(100+40*coveredMost)
	for i := range uint64(5) {
		missed += c.add(begin+i, end+i, none)
	}
	if missed != forgotten-begin {
		t.Errorf("%d missed, of %d", missed, forgotten-begin)
	}
}
