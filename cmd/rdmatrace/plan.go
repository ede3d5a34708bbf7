package main

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/rdmatrace/rdmatrace/export"
	"github.com/rdmatrace/rdmatrace/tracer"
)

// plan prints what a trace would place in the processes, and places nothing.
func (c *command) plan() error {
	ctx, sig := watchSignals(context.Background(), false, func() {})
	defer sig.stop()
	p, err := tracer.MakePlan(ctx, tracer.Config{PIDs: c.pids, Debug: c.debug, Log: c.logger(), EmptyPolls: c.emptyPolls})
	if err != nil {
		return err
	}
	b := &planText{width: min(max(textOptions(c.stdout).Width, planWidth), 3*planWidth/2)}
	for _, t := range p.Targets {
		b.target(&t)
	}
	b.prose("IN THE KERNEL  ", strings.Join(p.Kernel, " "))
	for _, n := range p.Notes {
		b.prose("  - ", printable(n))
	}
	_, err = b.WriteTo(c.stdout)
	return printed("the plan", err)
}

// planText is what is printed of a plan, sentences wrapped to width columns. Nothing
// fails that is written to it.
type planText struct {
	bytes.Buffer
	width int
}

// planWidth is the least.
const planWidth = 80

func (b *planText) target(t *tracer.TargetPlan) {
	fmt.Fprintf(b, "PROBES IN PROCESS %d  %d would be placed; none was\n", t.PID, len(t.Probes))
	b.prose("  ", planWords)
	var rows bytes.Buffer
	w := tabwriter.NewWriter(&rows, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "  verb\tat\twhere\ta hit costs")
	for _, probe := range t.Probes {
		fmt.Fprintln(w, planned(&probe))
	}
	_ = w.Flush() // a Buffer takes all
	for i, row := range strings.Split(strings.TrimSuffix(rows.String(), "\n"), "\n") {
		fmt.Fprintln(b, row)
		if i > 0 {
			b.prose("      ", whyThere(&t.Probes[i-1]))
		}
	}
	if len(t.Costs) == 0 {
		return
	}
	b.prose("COST OF A WORK REQUEST  ", fmt.Sprintf("in process %d, the traps: our programs take some 0.2 to 0.5 us more at each", t.PID))
	for _, c := range t.Costs {
		b.prose("  - ", printable(costOf(&c)))
	}
	for _, s := range inAll(t.Costs) {
		b.prose("  = ", printable(s))
	}
}

// planWords explains those of the table.
const planWords = "Each probe is a breakpoint; a hit of it is a trap into the kernel. The kernel emulates the instruction under it, " +
	"or has to single-step it, which is dearer. Behind that stands how the function was found: in the library's file " +
	"(exported, a table of its operations, code that fills in a queue pair), or as an object of the live process points to it."

// waysOfPosting by the step that posts.
var waysOfPosting = map[tracer.StepKind]string{
	tracer.StepPostSend: "ibv_post_send",
	tracer.StepBuilders: "builders (ibv_wr_*)",
}

// inAll is what a work request that is posted alone costs with its completion, once
// all is learned that can be, for each way of posting.
func inAll(costs []tracer.PlannedCost) (out []string) {
	last := func(c tracer.PlannedCost) tracer.PlannedTraps {
		if c.Then.Traps > 0 {
			return c.Then
		}
		return c.First
	}
	for _, poll := range costs {
		if poll.Kind != tracer.StepPoll {
			continue
		}
		for _, post := range costs {
			way := waysOfPosting[post.Kind]
			if way == "" || post.Library != poll.Library {
				continue
			}
			a, c := last(post), last(poll)
			sum := tracer.PlannedTraps{Traps: a.Traps + c.Traps, NS: a.NS + c.NS}
			if a.NS <= 0 || c.NS <= 0 {
				sum.NS = 0
			}
			more := ""
			if poll.Then.Traps == 0 {
				more = fmt.Sprintf("; each poll that finds nothing takes %s more", traps(poll.First))
			}
			if i := slices.IndexFunc(costs, func(c tracer.PlannedCost) bool { return c.Kind == tracer.StepArm && c.Library == poll.Library }); i >= 0 {
				more += fmt.Sprintf("; where the program sleeps until the event, the arm takes %s more", traps(last(costs[i])))
			}
			out = append(out, fmt.Sprintf("in all, for a work request posted alone by %s and its completion: %s (%s)%s", way, traps(sum), post.Library, more))
		}
	}
	return out
}

// prose begins with first, and goes on below its end.
func (b *planText) prose(first, text string) {
	for _, line := range export.Wrap(text, b.width-len(first)) {
		fmt.Fprintln(b, first+line)
		first = strings.Repeat(" ", len(first))
	}
}

// planned is a row of the table, tab-separated.
func planned(p *tracer.PlannedProbe) string {
	at := "entry"
	if p.Return {
		at = "return"
	}
	return strings.Join([]string{"  " + p.Verb, at, fmt.Sprintf("%s+%#x", printable(filepath.Base(p.Library)), p.Offset), micros(p.CostNS)}, "\t")
}

// whyThere is the reason for the place of a probe, and how its function was found.
func whyThere(p *tracer.PlannedProbe) string {
	if p.Place == "" || p.Return {
		return printable(p.Found)
	}
	return printable(p.Place + "; " + p.Found)
}

func costOf(c *tracer.PlannedCost) string {
	s := fmt.Sprintf("%s: %s (%s)", c.Step, traps(c.First), c.Library)
	if c.When != "" {
		s += fmt.Sprintf("; %s: %s", c.When, traps(c.Then))
	}
	return s
}

func traps(t tracer.PlannedTraps) string {
	noun := "traps"
	if t.Traps == 1 {
		noun = "trap"
	}
	return fmt.Sprintf("%d %s, %s", t.Traps, noun, micros(t.NS))
}

// micros writes a cost; 0 is one that is not known.
func micros(ns float64) string {
	if ns <= 0 {
		return "unknown"
	}
	return fmt.Sprintf("%.2f us", ns/1000)
}
