package attribution

// seriesMost points are kept; the slices grow as the run does.
const seriesMost = 512

// seriesFinest slice, ns.
const seriesFinest = 100_000

// series cuts the window into at most seriesMost slices of seriesFinest times
// a power of two. Their borders are multiples of their width, so that the
// result depends on the times alone, not on their order.
type series struct {
	width  uint64
	first  uint64 // number of the first slice in use
	last   uint64
	used   bool
	slices [seriesMost]slice // slice n is at n % seriesMost
}

type slice struct {
	count   int64
	latency uint64
	classes [numClasses]uint64
	max     uint64
	maxAt   uint64 // when the WR of max was posted
}

func (s *slice) merge(o *slice) {
	s.count += o.count
	s.latency += o.latency
	for i, ns := range o.classes {
		s.classes[i] += ns
	}
	s.take(o.max, o.maxAt)
}

// take the longer latency; of equals the earlier.
func (s *slice) take(latency, at uint64) {
	if latency > s.max || latency == s.max && (s.maxAt == 0 || at < s.maxAt) {
		s.max, s.maxAt = latency, at
	}
}

// add a WR that was reaped at t.
func (s *series) add(t uint64, p *parts, posted uint64) {
	slice := s.at(t)
	slice.count++
	slice.latency += p.latency
	for i, ns := range p.classes {
		slice.classes[i] += ns
	}
	slice.take(p.latency, posted)
}

func (s *series) at(t uint64) *slice {
	if !s.used {
		s.used, s.width = true, seriesFinest
		s.first = t / s.width
		s.last = s.first
	}
	for {
		n := t / s.width
		first, last := min(s.first, n), max(s.last, n)
		if last-first < seriesMost {
			s.first, s.last = first, last
			return &s.slices[n%seriesMost]
		}
		s.halve()
	}
}

// halve the resolution.
func (s *series) halve() {
	var halved [seriesMost]slice
	for n := s.first; n <= s.last; n++ {
		halved[n/2%seriesMost].merge(&s.slices[n%seriesMost])
	}
	s.slices = halved
	s.width *= 2
	s.first /= 2
	s.last /= 2
}

// report gives the slices in order, empty ones between others included.
func (s *series) report() []SeriesPoint {
	if !s.used {
		return nil
	}
	points := make([]SeriesPoint, 0, s.last-s.first+1)
	for n := s.first; n <= s.last; n++ {
		slice := &s.slices[n%seriesMost]
		p := SeriesPoint{
			Begin:     n * s.width,
			End:       (n + 1) * s.width,
			Count:     slice.count,
			LatencyNS: int64(slice.latency),
			MaxNS:     int64(slice.max),
		}
		for i, ns := range slice.classes {
			p.ClassNS[i] = int64(ns)
		}
		points = append(points, p)
	}
	return points
}
