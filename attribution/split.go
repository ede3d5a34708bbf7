package attribution

import "math/bits"

// splitTable keeps the sums of every cause per bucket of latency, so that the
// mean split of the WRs ranked around any percentile can be read off at the
// end, in one pass: each power of two of the latency has 1<<fine buckets.
type splitTable struct {
	fine    uint8
	octaves [64][]splitBucket
}

// splitBucket holds the WRs of one bucket of latency. Their latencies add up
// to the sum of causes, as the parts of each do.
type splitBucket struct {
	count  int64
	causes [numCauses]uint64
}

func (b *splitBucket) merge(other *splitBucket) {
	b.count += other.count
	for i, ns := range other.causes {
		b.causes[i] += ns
	}
}

func (t *splitTable) bucket(latency uint64) *splitBucket {
	octave, index := 0, 0
	if latency > 0 {
		octave = bits.Len64(latency) - 1
		index = int(latency << (63 - octave) << 1 >> (64 - t.fine))
	}
	if t.octaves[octave] == nil {
		t.octaves[octave] = make([]splitBucket, 1<<t.fine)
	}
	return &t.octaves[octave][index]
}

// merge a table of the same fineness.
func (t *splitTable) merge(other *splitTable) {
	for i, from := range other.octaves {
		if from == nil {
			continue
		}
		if t.octaves[i] == nil {
			t.octaves[i] = make([]splitBucket, 1<<t.fine)
		}
		for j := range from {
			t.octaves[i][j].merge(&from[j])
		}
	}
}

// all WRs in one bucket.
func (t *splitTable) all() splitBucket {
	var sum splitBucket
	for _, o := range t.octaves {
		for i := range o {
			sum.merge(&o[i])
		}
	}
	return sum
}

// around gives the WRs whose rank is within a tenth of the distance to the
// nearer end of the ranks (45 to 55 % for the median, 98.9 to 99.1 % for p99),
// rounded outwards to whole buckets of latency.
func (t *splitTable) around(n, permille int64) splitBucket {
	var sum splitBucket
	reach := min(permille, 1000-permille)
	low := rankOf(n, permille) - n*reach/10_000
	high := rankOf(n, permille) + n*reach/10_000
	seen := int64(0)
	for _, o := range t.octaves {
		for i := range o {
			first, last := seen+1, seen+o[i].count
			seen = last
			if o[i].count > 0 && last >= low && first <= high {
				sum.merge(&o[i])
			}
		}
	}
	return sum
}

// report divides the sums. called renames causes by evidence of the whole run.
func (b *splitBucket) report(called *renaming) Split {
	s := Split{Count: b.count}
	if b.count == 0 {
		return s
	}
	var total uint64
	var classes [numClasses]uint64
	causes := called.apply(&b.causes)
	for i, ns := range causes {
		total += ns
		classes[Cause(i).Class()] += ns
		if ns > 0 {
			s.Causes = append(s.Causes, CauseTotal{Cause: Cause(i), TotalNS: int64(ns)})
		}
	}
	s.LatencyNS = float64(total) / float64(b.count)
	for c, ns := range classes {
		s.ClassNS[c] = float64(ns) / float64(b.count)
	}
	sortCauses(s.Causes)
	return s
}
