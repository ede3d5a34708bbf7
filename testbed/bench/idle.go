package main

import (
	"fmt"
	"math"
	"slices"
	"sort"
	"strings"
)

// told is a line of oracle-turn: when, how long it had run, and its polls.
type told struct{ at, ran, polls float64 }

func (b *bench) tellings() (all []told) {
	for line := range strings.Lines(b.told) {
		var t told
		if n, err := fmt.Sscan(line, &t.at, &t.ran, &t.polls); n == 3 && err == nil {
			all = append(all, t)
		}
	}
	return all
}

// pollRate is how often the program polled in a window, each second that it ran;
// 0: it told too little in it.
func pollRate(all []told, w window) float64 {
	first := sort.Search(len(all), func(i int) bool { return all[i].at >= float64(w.begin) })
	next := sort.Search(len(all), func(i int) bool { return all[i].at > float64(w.end) })
	if next-first < 2 {
		return 0
	}
	a, z := all[first], all[next-1]
	return (z.polls - a.polls) / ((z.ran - a.ran) / 1e9)
}

// idleRows compare the windows of each round with the untraced one of it.
func (b *bench) idleRows() (rows []string) {
	tellings := b.tellings()
	rates := map[way][]float64{}
	for _, w := range b.windows {
		rates[w.way] = append(rates[w.way], pollRate(tellings, w))
	}
	of := "an idle busy poller"
	if b.workload.neighbour {
		of = "an untraced neighbour of one"
	}
	for _, w := range b.workload.wanted()[1:] {
		var changes, before []float64
		for i := range min(len(rates[untraced]), len(rates[w])) {
			if rates[untraced][i] > 0 && rates[w][i] > 0 {
				changes = append(changes, rates[w][i]/rates[untraced][i]-1)
				before = append(before, rates[untraced][i])
			}
		}
		slices.Sort(changes)
		slices.Sort(before)
		low, high := medianInterval(changes)
		rows = append(rows, fmt.Sprintf("| %s | %v | %d | %.2f M/s | %+.1f %% | %+.1f to %+.1f %% |", of, w, len(changes),
			quantile(before, 0.5)/1e6, 100*quantile(changes, 0.5), 100*low, 100*high))
	}
	return rows
}

// medianInterval bounds the median with a confidence of 95 %, whatever the
// distribution, by order statistics: the ranks n/2 -+ 0.98 sqrt(n).
func medianInterval(sorted []float64) (low, high float64) {
	n := len(sorted)
	if n == 0 {
		return 0, 0
	}
	away := 0.98 * math.Sqrt(float64(n))
	i := max(int(math.Floor(float64(n)/2-away)), 0)
	return sorted[i], sorted[n-1-i]
}
