package attribution

import (
	"fmt"
	"slices"
)

// slowFactor: a WR is slow when its latency is this many times the median.
const slowFactor = 4

// slowPattern says when the slow WRs came: the longest WR of each slice of
// the series is looked at, and neighbouring slices are one burst.
func (s *series) slowPattern(median int64) Slow {
	slow := Slow{ThresholdNS: slowFactor * median}
	if !s.used || median == 0 {
		return slow
	}
	var bursts []uint64 // when the worst WR of each was posted
	var worst *slice    // of the burst that is open
	busy, slowSlices := int64(0), int64(0)
	for n := s.first; n <= s.last; n++ {
		slice := &s.slices[n%seriesMost]
		if slice.count > 0 {
			busy++
		}
		if slice.max <= uint64(slow.ThresholdNS) {
			worst = nil
			continue
		}
		slowSlices++
		switch {
		case worst == nil:
			worst = slice
			bursts = append(bursts, slice.maxAt)
		case slice.max > worst.max:
			worst = slice
			bursts[len(bursts)-1] = slice.maxAt
		}
	}
	slow.Bursts = int64(len(bursts))
	slow.PeriodNS = period(bursts)
	switch {
	case len(bursts) == 0:
		slow.Pattern = "none"
	case slow.PeriodNS > 0:
		slow.Pattern = "every " + formatPeriod(slow.PeriodNS)
	case slowSlices*2 > busy && busy > 4:
		slow.Pattern = "throughout"
	case len(bursts) == 1:
		slow.Pattern = "once"
	default:
		slow.Pattern = "irregular"
	}
	return slow
}

// period of at least four bursts: their median distance, where nearly all
// distances are within a twentieth of it, or of twice or three times it (a
// burst can go unseen).
func period(bursts []uint64) int64 {
	if len(bursts) < 4 {
		return 0
	}
	slices.Sort(bursts)
	distances := make([]uint64, 0, len(bursts)-1)
	for i := range bursts[1:] {
		distances = append(distances, bursts[i+1]-bursts[i])
	}
	slices.Sort(distances)
	// The lower median: unseen bursts make distances longer.
	step := distances[(len(distances)-1)/2]
	if step == 0 {
		return 0
	}
	fitting, steps, sum := 0, uint64(0), uint64(0)
	for _, d := range distances {
		multiple := (d + step/2) / step
		if off := max(d, multiple*step) - min(d, multiple*step); multiple >= 1 && multiple <= 3 && off <= step/20 {
			fitting++
			steps += multiple
			sum += d
		}
	}
	if fitting*10 < len(distances)*9 {
		return 0
	}
	return int64(sum / steps)
}

func formatPeriod(ns int64) string {
	switch {
	case ns >= 1e9:
		return fmt.Sprintf("%.2f s", float64(ns)/1e9)
	case ns >= 1e6:
		return fmt.Sprintf("%.2f ms", float64(ns)/1e6)
	}
	return fmt.Sprintf("%.0f us", float64(ns)/1e3)
}
