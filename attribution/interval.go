package attribution

// maxIntervals kept apart by an intervalSet.
const maxIntervals = 8

type interval struct{ begin, end uint64 }

// intervalSet measures a union of intervals as they come: roughly in order of
// time. It keeps the last maxIntervals disjoint ones; what begins before the
// oldest of them is taken as covered up to there.
type intervalSet struct {
	intervals [maxIntervals]interval // a ring, by time
	oldest    int                    // where it begins
	used      int
	frontier  uint64 // before it everything counts as covered
	covered   uint64 // ns
}

func (s *intervalSet) at(i int) *interval { return &s.intervals[uint(s.oldest+i)%maxIntervals] }

// add [begin, end).
func (s *intervalSet) add(begin, end uint64) {
	begin = max(begin, s.frontier)
	if begin >= end {
		return
	}
	// Those that overlap or touch [begin, end) are from low up to high.
	high := s.used
	for high > 0 && s.at(high-1).begin > end {
		high--
	}
	low := high
	for ; low > 0 && s.at(low-1).end >= begin; low-- {
		i := s.at(low - 1)
		s.covered -= i.end - i.begin
		begin, end = min(begin, i.begin), max(end, i.end)
	}
	s.covered += end - begin
	if low == high && s.used == maxIntervals {
		if low == 0 {
			// Older than all that are kept: it is counted, and becomes the frontier.
			s.frontier = end
			return
		}
		s.frontier = s.at(0).end
		s.oldest++
		s.used, low, high = s.used-1, low-1, high-1
	}
	s.replace(low, high, interval{begin, end})
}

// replace the intervals from low up to high by one.
func (s *intervalSet) replace(low, high int, by interval) {
	if low == high {
		for i := s.used; i > low; i-- {
			*s.at(i) = *s.at(i - 1)
		}
		s.used++
	} else {
		for i := high; i < s.used; i++ {
			*s.at(low + 1 + i - high) = *s.at(i)
		}
		s.used -= high - low - 1
	}
	*s.at(low) = by
}
