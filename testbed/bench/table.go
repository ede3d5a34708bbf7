package main

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/rdmatrace/rdmatrace/testbed/softmlx5/truth"
)

// figures are those of one window.
type figures struct {
	p50, p99, rate float64 // ns, ns, 1/s
	hits, empty    float64 // each WR
	stepped        float64 // of the hits
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
		f.stepped = float64(w.hits.stepped) / float64(len(rows))
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

// print writes the table of a workload, medians over the rounds: but of the p50 the
// least, and how far the added time reaches over them. By the mean is what the rate
// tells, in which all is that takes time from the client or its device.
func (b *bench) print(out io.Writer, title string) {
	times, counts := b.sorted(title)
	fmt.Fprintf(out, "## %s\n\n"+
		"| observed by | p50, ns | p99, ns | WRs/s | p50 added, ns | over the rounds | added by the mean, ns | hits/WR | in empty polls | floor, ns |\n"+
		"| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n", title)
	for _, w := range b.workload.wanted() {
		fmt.Fprintf(out, "| %v | %.0f | %.0f | %.0f |%s%s\n", w, least(times[w]),
			middle(times[w], func(f figures) float64 { return f.p99 }), rate(times[w]), added(times[w], times[untraced]), b.hits(w, counts[w]))
	}
	fmt.Fprintln(out)
}

// sorted are the windows of each way: of times, and of hits.
func (b *bench) sorted(title string) (times, counts [ways][]figures) {
	for _, w := range b.windows {
		f, ok := b.figures(w, b.rows)
		switch {
		case !ok:
			fmt.Fprintf(os.Stderr, "bench: %s, observed by %v: too few requests in a window\n", title, w.way)
		case f.counted:
			counts[w.way] = append(counts[w.way], f)
		default:
			times[w.way] = append(times[w.way], f)
		}
	}
	return times, counts
}

// added are the columns of what is added to the untraced rounds; empty for these.
func added(all, none []figures) string {
	n := min(len(all), len(none))
	if n == 0 || &all[0] == &none[0] {
		return " | | |"
	}
	var each []float64
	for i := range n {
		each = append(each, all[i].p50-none[i].p50)
	}
	slices.Sort(each)
	return fmt.Sprintf(" %.0f | %.0f to %.0f | %.0f |", least(all)-least(none), each[0], each[n-1], 1e9/rate(all)-1e9/rate(none))
}

// hits are the columns of hits; empty where none were counted.
func (b *bench) hits(w way, counts []figures) string {
	if len(counts) == 0 {
		return " | | |"
	}
	all := middle(counts, func(f figures) float64 { return f.hits })
	empty := "" // not told apart by programs that do nothing
	if w != byEmpties {
		empty = fmt.Sprintf("%.2f", middle(counts, func(f figures) float64 { return f.empty }))
	}
	text := fmt.Sprintf("%.2f", all)
	stepped := middle(counts, func(f figures) float64 { return f.stepped })
	if stepped >= 0.005 {
		text += fmt.Sprintf(", %.2f single-stepped", stepped)
	}
	return fmt.Sprintf(" %s | %s | %.0f |", text, empty, (all-stepped)*b.hit+stepped*b.stepped)
}

func rate(all []figures) float64 {
	return middle(all, func(f figures) float64 { return f.rate })
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
