package attribution

import (
	"cmp"
	"math"
	"slices"
)

// fit is what a floor has taught so far.
type fit struct {
	known   bool
	base    uint64  // ns
	perByte perByte // 0: no rate
	fitted  bool    // perByte comes from the WRs, not from the link
}

// point of the line: low quantiles of reach and wire time, and high ones.
type point struct {
	x, y   float64
	xh, yh float64
	deep   bool // most of its WRs were posted to a queue that was not idle
}

// fitting is scratch memory for fits.
type fitting struct {
	points []point
	values []float64
	highs  []float64
}

// noise of a floor, as a part of it.
const noise = 0.2

// slopeRatio is how much farther a point must reach before two of them say
// anything about a slope.
const slopeRatio = 2

// fitLine lays the line. link is what a byte takes on the slower of link and
// PCIe, 0: unknown; no path is faster.
//
// The line is robust: its slope is the median over pairs of points (Theil-Sen),
// its base the median over the points nearest to the origin.
func (f *floor) fitLine(scratch *fitting, link perByte) {
	f.refit = f.count + max(floorWRs, f.count/4)
	points := f.collect(scratch)
	if f.count < floorWRs || len(points) == 0 {
		return
	}
	first, last := points[0], points[len(points)-1]
	known := fit{known: true, perByte: link}
	switch {
	case last.x >= slopeRatio*max(first.x, 1):
		if slope := max(scratch.idleSlope(points), scratch.deepSlope(points)); slope > 0 {
			known.rise(slope)
		}
	case f.idle >= pointWRs:
	case link > 0 && last.y > 0 && float64(link.of(uint64(last.x))) >= saturation*last.y:
		// One depth only, but what was in front of the WRs fills the link.
		known.rise(last.y / last.x)
	default:
		return
	}
	known.base = scratch.base(points, float64(known.perByte)/(1<<perByteBits))
	f.fit = known
}

// saturation of the link from which on waiting is for the link.
const saturation = 0.7

// rise takes a fitted slope; no path is faster than the link.
func (f *fit) rise(slope float64) {
	f.perByte = max(perByte(math.Round(slope*(1<<perByteBits))), f.perByte)
	f.fitted = true
}

func (f *floor) collect(scratch *fitting) []point {
	points := scratch.points[:0]
	for _, p := range f.points {
		if p == nil {
			continue
		}
		deep := 2*p.idle < p.count
		if p.count < pointWRs || deep && p.count < deepWRs {
			continue
		}
		low, high := max(p.count/floorQuantile, 1), p.count-p.count/4
		points = append(points, point{
			x:    float64(p.reach.rank(low)),
			y:    float64(p.wire.rank(low)),
			xh:   float64(p.reach.rank(high)),
			yh:   float64(p.wire.rank(high)),
			deep: deep,
		})
	}
	scratch.points = points
	return points
}

// queueShare of the wire time, of the WRs with the most in front of them, that
// must be queueing before any is believed. Where completions keep their order,
// jitter alone lifts wire times with depth, as each WR waits for the latest of
// those in front of it. If the jitter is bounded it lifts their low quantile,
// and not the high one; if it has an exponential tail it lifts both with the
// logarithm of depth: its slope at depth n, times n, is less than 1/ln(n) of
// the wire time. On queues less deep than that its bend tells it from a line.
const queueShare = 0.35

// deepSlope is what the bytes in front of a WR cost it. The points of a queue
// that sometimes drains form a bent line, level where the wire dominates: there
// the slope of the farthest octaves counts.
func (s *fitting) deepSlope(points []point) float64 {
	last := points[len(points)-1]
	slope := max(s.slope(points, 0), s.slope(points, last.x/8))
	if slope*last.x < queueShare*last.y || s.bend(points) < straight {
		return 0
	}
	return slope
}

// straight is the least bend that passes for a line's, 1: half way to that of a
// logarithm, 1/2.
const straight = 0.75

// bend of the points, in the high quantile, whose logarithm is the purer one: the
// median, over triples of which each reaches slopeRatio times as far as the one before,
// of the second slope over the first. It is more than 1 where a level part goes
// before. Without a triple nothing speaks against a line.
func (s *fitting) bend(points []point) float64 {
	s.values = s.values[:0]
	for i, a := range points {
		third := i + 1
		for _, b := range points[i+1:] {
			if b.xh < slopeRatio*max(a.xh, 1) {
				continue
			}
			for third < len(points) && points[third].xh < slopeRatio*b.xh {
				third++
			}
			if third == len(points) {
				break
			}
			c := points[third]
			first, second := (b.yh-a.yh)/(b.xh-a.xh), (c.yh-b.yh)/(c.xh-b.xh)
			s.values = append(s.values, max(second, 0)/max(first, second/8, math.SmallestNonzeroFloat64))
		}
	}
	if len(s.values) == 0 {
		return 1
	}
	return median(s.values)
}

// slope of the points beyond from: the smaller of those of both quantiles.
func (s *fitting) slope(points []point, from float64) float64 {
	s.values, s.highs = s.values[:0], s.highs[:0]
	for i, a := range points {
		if a.x < from {
			continue
		}
		for _, b := range points[i+1:] {
			if b.x >= slopeRatio*max(a.x, 1) {
				s.values = append(s.values, (b.y-a.y)/(b.x-a.x))
				s.highs = append(s.highs, (b.yh-a.yh)/(b.xh-a.xh))
			}
		}
	}
	return max(min(median(s.values), median(s.highs)), 0)
}

// idleSlope is that of the points where nothing was in front of the WRs: their
// low quantile alone tells, as nothing but size lifts it.
func (s *fitting) idleSlope(points []point) float64 {
	s.values = s.values[:0]
	var first, last point
	for i, a := range points {
		if a.deep {
			continue
		}
		if last = a; first.y == 0 {
			first = a
		}
		for _, b := range points[i+1:] {
			if !b.deep && b.x >= slopeRatio*max(a.x, 1) {
				s.values = append(s.values, (b.y-a.y)/(b.x-a.x))
			}
		}
	}
	slope := max(median(s.values), 0)
	// A slope inside the noise of the floor is none.
	if slope*(last.x-first.x) < noise*first.y {
		return 0
	}
	return slope
}

// base is the median over the points near the origin of what is left of them
// without the slope.
func (s *fitting) base(points []point, slope float64) uint64 {
	values := s.values[:0]
	for _, p := range points {
		if p.x <= slopeRatio*max(points[0].x, 1) {
			values = append(values, p.y-float64(slope*p.x))
		}
	}
	s.values = values
	return uint64(max(math.Round(median(values)), 0))
}

// median of values, which it sorts; 0 for none.
func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	slices.SortFunc(values, cmp.Compare[float64])
	middle := len(values) / 2
	if len(values)%2 == 0 {
		return (values[middle-1] + values[middle]) / 2
	}
	return values[middle]
}
