package attribution

import (
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

// Beyond its bound a coverage counts less, never more.
func TestCoverageIsBounded(t *testing.T) {
	var c coverage
	var sum uint64
	count := func(begin, end uint64) { sum += end - begin }
	for i := range uint64(4 * coveredMost) {
		c.add(100+10*i, 104+10*i, count)
	}
	if n := c.intervals.len(); n != coveredMost || len(c.intervals.buf) != coveredMost || sum != 4*4*coveredMost {
		t.Fatalf("%d intervals, %d ns", n, sum)
	}
	end := uint64(100 + 10*4*coveredMost)
	c.add(1, end, count) // one that waited all the time
	if gaps := uint64(6 * (coveredMost + 1)); sum != 4*4*coveredMost+gaps {
		t.Errorf("%d ns more, not %d", sum-4*4*coveredMost, gaps)
	}
	if c.intervals.len() != 1 {
		t.Errorf("%d intervals", c.intervals.len())
	}
}
