package main

import (
	"cmp"
	"fmt"
	"os"
	"slices"

	"github.com/rdmatrace/rdmatrace/testbed/softmlx5/truth"
)

// figures are those of one window.
type figures struct {
	p50, p99, rate float64 // ns, ns, 1/s
	hits, empty    float64 // each WR
	counted        bool
}

func (b *bench) figures(w window, rows []truth.Row) (f figures, ok bool) {
	from, _ := slices.BinarySearchFunc(rows, w.begin, func(r truth.Row, t int64) int { return int(r.Doorbell - t) })
	to, _ := slices.BinarySearchFunc(rows, w.end, func(r truth.Row, t int64) int { return int(r.Doorbell - t) })
	if to-from < 100 {
		return f, false
	}
	rows = rows[from:to]
	// From one doorbell to the next, shared by the requests that it rang for.
	var cycles []float64
	signaled := 0
	for i, last := 0, 0; i < len(rows); i++ {
		if rows[i].Flags.Has(truth.Signaled) {
			signaled++
		}
		if i > 0 && rows[i].Batch == 0 {
			cycles = append(cycles, float64(rows[i].Doorbell-rows[last].Doorbell)/float64(i-last))
			last = i
		}
	}
	slices.Sort(cycles)
	f.p50, f.p99 = quantile(cycles, 0.5), quantile(cycles, 0.99)
	f.rate = float64(len(rows)) / (float64(w.end-w.begin) / 1e9)
	if w.count {
		f.counted = true
		f.hits = float64(w.hits.all) / float64(len(rows))
		empty := float64(w.hits.polls)
		switch w.way {
		case byAllPolls:
			// Of those that returned something, had each returned one only.
			empty -= 2 * float64(signaled)
		case byBpftrace:
			// What is left of all hits when posts and polls that returned
			// something are taken away, had each returned one only.
			empty = float64(w.hits.all) - 2*float64(len(rows)) - 2*float64(signaled)
		}
		f.empty = max(empty, 0) / float64(len(rows))
	}
	return f, true
}

func quantile(sorted []float64, q float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[int(q*float64(len(sorted)-1))]
}

// print writes the rows of the table: medians over the rounds, but of the p50
// the least, and how far the added time reaches over them.
func (b *bench) print(name, api string) {
	var times, counts [ways][]figures
	for _, w := range b.windows {
		f, ok := b.figures(w, b.rows)
		switch {
		case !ok:
			fmt.Fprintf(os.Stderr, "bench: %s, %s, traced by %v: too few requests in a window\n", name, api, w.way)
		case f.counted:
			counts[w.way] = append(counts[w.way], f)
		default:
			times[w.way] = append(times[w.way], f)
		}
	}
	for _, w := range b.workload.wanted() {
		added := " | |"
		if w != untraced {
			var all []float64
			for i := range min(len(times[w]), len(times[untraced])) {
				all = append(all, times[w][i].p50-times[untraced][i].p50)
			}
			slices.Sort(all)
			if len(all) > 0 {
				added = fmt.Sprintf("%.0f | %.0f to %.0f |", least(times[w])-least(times[untraced]), all[0], all[len(all)-1])
			}
		}
		hits := " | | |"
		if len(counts[w]) > 0 {
			all := middle(counts[w], func(f figures) float64 { return f.hits })
			empty := "" // not told apart by programs that do nothing
			if w != byEmpties {
				empty = fmt.Sprintf("%.2f", middle(counts[w], func(f figures) float64 { return f.empty }))
			}
			hits = fmt.Sprintf("%.2f | %s | %.0f |", all, empty, all*b.hit)
		}
		fmt.Printf("| %s | %s | %v | %.0f | %.0f | %.0f | %s %s\n", name, api, w,
			least(times[w]), middle(times[w], func(f figures) float64 { return f.p99 }),
			middle(times[w], func(f figures) float64 { return f.rate }), added, hits)
	}
}

// least is the p50 of the round that was disturbed least.
func least(all []figures) float64 {
	if len(all) == 0 {
		return 0
	}
	return slices.MinFunc(all, func(x, y figures) int { return cmp.Compare(x.p50, y.p50) }).p50
}

func middle(all []figures, of func(figures) float64) float64 {
	var v []float64
	for _, f := range all {
		v = append(v, of(f))
	}
	slices.Sort(v)
	return quantile(v, 0.5)
}
