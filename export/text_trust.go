package export

import (
	"cmp"
	"fmt"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/rdmatrace/rdmatrace/attribution"
	"github.com/rdmatrace/rdmatrace/event"
)

// doneMeaning explains the sources of `done`, by their names.
var doneMeaning = map[string]string{
	attribution.DoneCQE.String():       "the NIC's time stamp in the completion",
	attribution.DoneKernel.String():    "the kernel function that wrote the completion",
	attribution.DoneInterrupt.String(): "the interrupt that woke the thread",
	attribution.DoneBracket.String():   "between an empty poll and the one that returned it",
	attribution.DoneBounded.String():   "only between the post and the poll that returned it",
	attribution.DoneUnknown.String():   "not known",
}

func doneSources(p *page, r *attribution.Report) {
	var total float64
	for _, s := range r.DoneSources {
		total += float64(s.Count)
	}
	if total == 0 {
		return
	}
	p.heading("WHERE `DONE` COMES FROM", "the end of wire: when the completion was there")
	t := newTable("lrrl")
	for _, s := range r.DoneSources {
		if s.Count > 0 {
			t.row(plain(clean(s.Name), count(s.Count), percent(float64(s.Count), total), doneMeaning[s.Name])...)
		}
	}
	t.write(p)
	if r.Uncertain > 0 {
		text := fmt.Sprintf("%s (%s) in doubt by more than 1 us and 10 %% of the latency: of their doubtful part, what nothing typical decides is undecided, %s in all.",
			counted(r.Uncertain, "work request"), percent(float64(r.Uncertain), float64(r.Latency.Count)), durationNS(r.Undecided.TotalNS))
		if r.Doubt.Count > 0 {
			text += fmt.Sprintf(" Width of the doubt: p50 %s, p99 %s.", durationNS(r.Doubt.P50NS), durationNS(r.Doubt.P99NS))
		}
		p.prose("  ", "", text)
	}
}

// doubts are sentences for the reader: those of the analysis, what the tracer
// could not observe, and what does not fit together.
func doubts(p *page, r *attribution.Report) {
	list := allDoubts(r)
	if len(list) == 0 {
		return
	}
	p.heading("DOUBTS", "what limits the conclusions")
	for _, d := range list {
		p.prose("  - ", "", d)
	}
}

func allDoubts(r *attribution.Report) (list []string) {
	seen := map[string]bool{}
	for _, d := range append(append(append([]string(nil), r.Doubts...), context(r).Notes...), contradictions(r)...) {
		if d = cleanText(d); d != "" && !seen[d] {
			seen[d] = true
			list = append(list, d)
		}
	}
	return list
}

// contradictions of a report with itself: they are faults of rdmatrace.
func contradictions(r *attribution.Report) (list []string) {
	var sum int64
	for _, d := range r.Classes {
		sum += d.TotalNS
	}
	if sum != r.Latency.TotalNS {
		list = append(list, fmt.Sprintf("The classes add up to %s, the latency to %s: this is a fault of rdmatrace.",
			durationNS(sum), durationNS(r.Latency.TotalNS)))
	}
	if off := imbalance(r.WRs); off != 0 {
		list = append(list, fmt.Sprintf("The books are off by %s work requests: this is a fault of rdmatrace.", count(off)))
	}
	return list
}

// imbalance of the books: posted less all that became of it.
func imbalance(b attribution.Books) int64 {
	return b.Posted - b.Completed - b.Outstanding - b.Flushed - b.Lost - b.Excluded
}

// losses are what was dropped, missed, unreadable or not attached.
func losses(p *page, r *attribution.Report) {
	c := context(r)
	t := newTable("lr")
	for _, n := range c.Counters {
		if n.Value > 0 {
			t.row(plain(clean(n.Name), count(int64(min(n.Value, 1<<62))))...)
		}
	}
	for _, pr := range c.Probes {
		if pr.Misses > 0 {
			t.row(plain("missed by probe "+clean(pr.Name), count(int64(min(pr.Misses, 1<<62))))...)
		}
	}
	p.heading("LOSSES", "records dropped, missed or unreadable")
	if len(t.rows) == 0 {
		p.line(fmt.Sprintf("  none; %s watched", counted(int64(len(c.Counters)), "counter")))
	}
	t.write(p)
	for _, pr := range c.Probes {
		if pr.Error != "" {
			of := ""
			if pr.PID != 0 && len(c.Targets) > 1 {
				of = fmt.Sprintf(" of pid %d", pr.PID)
			}
			p.prose("  - ", "", fmt.Sprintf("probe %s%s (%s) is not there: %s", clean(pr.Name), of, clean(pr.Kind), cleanText(pr.Error)))
		}
	}
}

func books(p *page, r *attribution.Report) {
	p.heading("BOOKS", "posted = completed + outstanding + flushed + lost + excluded")
	t := newTable("lrrrrrrl", "", "posted", "completed", "outstanding", "flushed", "lost", "excluded", "")
	kinds := make([]string, 0, len(r.Kinds))
	for k := range r.Kinds {
		kinds = append(kinds, k)
	}
	sort.Strings(kinds)
	add := func(name string, b attribution.Books) {
		balance, ansi := "balanced", ""
		if off := imbalance(b); off != 0 {
			balance, ansi = "off by "+count(off), ansiWarn
		}
		cells := plain(name, count(b.Posted), count(b.Completed), count(b.Outstanding), count(b.Flushed), count(b.Lost), count(b.Excluded))
		t.row(append(cells, cell{text: balance, ansi: ansi})...)
	}
	for _, k := range kinds {
		add(clean(k), r.Kinds[k])
	}
	if len(kinds) != 1 {
		add("all", r.WRs)
	}
	t.write(p)
	if r.WRs.Excluded > 0 {
		p.prose("  ", ansiDim, "Excluded: posted before the place of their queue pair was proven, or while it was in doubt.")
	}
}

// cost of observing, as calibrated in this run.
func cost(p *page, r *attribution.Report) {
	c := context(r)
	if len(c.Probes) == 0 && c.Cost == (event.Cost{}) && len(c.Costs) == 0 {
		return
	}
	p.heading("COST OF OBSERVING", "calibrated in this run")
	window := float64(windowNS(c))
	lines := []string{trapSentence(r, window)}
	if s := steppedSentence(c); s != "" {
		lines = append(lines, s)
	}
	if r.Probe.TotalNS > 0 {
		lines = append(lines, fmt.Sprintf("Inside the latencies: %s, %s on average (cause software.probe).",
			percent(float64(r.Probe.TotalNS), float64(r.Latency.TotalNS)), duration(r.Probe.MeanNS)))
	}
	if s := ofThreads(r); s != "" {
		lines = append(lines, s)
	}
	if c.Cost.Tracepoints > 0 {
		lines = append(lines, fmt.Sprintf("Our programs at the kernel's tracepoints took %s of one CPU.", percent(c.Cost.Tracepoints, 1)))
	}
	if c.Cost.CPUTime > 0 {
		own := fmt.Sprintf("rdmatrace itself ran for %s", duration(float64(c.Cost.CPUTime)))
		if window >= float64(time.Second) { // else most of it was before the window
			own += fmt.Sprintf(", %s of one CPU", percent(float64(c.Cost.CPUTime), window))
		}
		lines = append(lines, own+".")
	}
	p.prose("  ", "", strings.Join(lines, " "))
	for _, what := range c.Costs {
		p.prose("  - ", "", cleanText(what))
	}
}

// trapSentence: how often the target ran into our probes, and what that cost.
func trapSentence(r *attribution.Report, window float64) string {
	c := context(r)
	entries, returns := probeHits(c)
	if entries+returns == 0 && r.WRs.Posted > 0 {
		s := "How often the target ran into our probes was not counted"
		if c.Cost.TrapNS > 0 {
			s += "; one entry costs " + duration(c.Cost.TrapNS)
		}
		return s + "."
	}
	s := fmt.Sprintf("%s of the target", counted(entries+returns, "trap"))
	if r.Latency.Count > 0 {
		s += fmt.Sprintf(" (%.1f a measured work request%s)", float64(entries+returns)/float64(r.Latency.Count), learning(r))
	}
	return s + trapCost(c, float64(entries+returns), window) + "."
}

// learning says how many of the traps were only at the beginning: a short trace has more
// of them for each work request than a long one.
func learning(r *attribution.Report) string {
	var hits float64
	for _, pr := range context(r).Probes {
		if pr.Removed {
			hits += float64(pr.Hits)
		}
	}
	if hits == 0 {
		return ""
	}
	return fmt.Sprintf(", of which %.1f at probes that were taken out after learning, at the beginning", hits/float64(r.Latency.Count))
}

// trapCost of the probes that were hit, and of their programs.
func trapCost(context *event.Context, hits, window float64) string {
	if context.Cost.TrapNS <= 0 {
		return "; what one costs was not calibrated"
	}
	traps, dearest := trapsTook(context)
	each := "up to " + duration(cmp.Or(dearest, context.Cost.TrapNS)) + " each"
	ran := programsRan(context)
	if ran > 0 && hits > 0 {
		each += ", and " + duration(ran/hits) + " for our programs"
	}
	return fmt.Sprintf(", %s: %s of its threads' time, %s of one CPU", each, duration(traps+ran), percent(traps+ran, window))
}

// trapsTook is what the traps of the target took, and one of the dearest that it ran
// into, ns: of instructions that the kernel emulates, or has to single-step.
func trapsTook(c *event.Context) (sum, dearest float64) {
	for _, pr := range c.Probes {
		trap, pair := c.Cost.TrapNS, c.Cost.PairNS
		if pr.Stepped {
			trap, pair = max(c.Cost.SteppedTrapNS, trap), max(c.Cost.SteppedPairNS, pair)
		}
		switch pr.Kind {
		case "uprobe":
		case "uretprobe":
			trap = max(pair-trap, 0)
		default:
			continue
		}
		if pr.Hits > 0 {
			sum += trap * float64(pr.Hits)
			dearest = max(dearest, trap)
		}
	}
	return sum, dearest
}

// programsRan is how long our programs ran at the hits of the target's probes, ns; 0:
// not measured.
func programsRan(c *event.Context) (ns float64) {
	for _, pr := range c.Probes {
		if pr.Kind == "uprobe" || pr.Kind == "uretprobe" {
			ns += max(pr.RunNS, 0) * float64(pr.Hits)
		}
	}
	return ns
}

// steppedSentence: which of the traps are the dear ones. What they take is known of
// another program only.
func steppedSentence(c *event.Context) string {
	var hits uint64
	var at []string
	for _, pr := range c.Probes {
		if pr.Stepped && pr.Hits > 0 && pr.Kind == "uprobe" {
			hits += min(pr.Hits, 1<<62)
			if name := clean(pr.Name); !slices.Contains(at, name) {
				at = append(at, name)
			}
		}
	}
	if hits == 0 || c.Cost.SteppedTrapNS <= 0 {
		return ""
	}
	return fmt.Sprintf("%s of them at an instruction of %s that the kernel has to single-step: %s each, as measured on a program of our own; "+
		"what one takes beyond that is in software.", count(int64(min(hits, 1<<62))), strings.Join(at, ", "), duration(c.Cost.SteppedTrapNS))
}

// probeHits inside the target, entry and return probes apart.
func probeHits(c *event.Context) (entries, returns int64) {
	for _, pr := range c.Probes {
		switch pr.Kind {
		case "uprobe":
			entries += int64(min(pr.Hits, 1<<62))
		case "uretprobe":
			returns += int64(min(pr.Hits, 1<<62))
		}
	}
	return entries, returns
}
