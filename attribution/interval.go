package attribution

// maxIntervals kept apart by an intervalSet.
const maxIntervals = 8

type interval struct{ begin, end uint64 }

// intervalSet measures a union of intervals as they come: roughly in order of
// time. It keeps the last maxIntervals disjoint ones; what begins before the
// oldest of them is taken as covered up to there.
type intervalSet struct {
	intervals [maxIntervals]interval // by time
	used      int
	frontier  uint64 // before it everything counts as covered
	covered   uint64 // ns
}

// add [begin, end).
func (s *intervalSet) add(begin, end uint64) {
	begin = max(begin, s.frontier)
	if begin >= end {
		return
	}
	// Those that overlap or touch [begin, end) are intervals[low:high].
	high := s.used
	for high > 0 && s.intervals[high-1].begin > end {
		high--
	}
	low := high
	for low > 0 && s.intervals[low-1].end >= begin {
		low--
	}
	for _, i := range s.intervals[low:high] {
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
		s.frontier = s.intervals[0].end
		copy(s.intervals[:], s.intervals[1:low])
		s.intervals[low-1] = interval{begin, end}
		return
	}
	if low == high {
		copy(s.intervals[low+1:s.used+1], s.intervals[low:s.used])
		s.used++
	} else {
		copy(s.intervals[low+1:], s.intervals[high:s.used])
		s.used -= high - low - 1
	}
	s.intervals[low] = interval{begin, end}
}
