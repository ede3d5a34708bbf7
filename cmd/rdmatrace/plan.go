package main

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"text/tabwriter"

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
	var b bytes.Buffer // what is written to it is complete, and has no errors
	for _, t := range p.Targets {
		fmt.Fprintf(&b, "PROBES IN PROCESS %d  %d would be placed; none was\n", t.PID, len(t.Probes))
		w := tabwriter.NewWriter(&b, 0, 8, 2, ' ', 0)
		fmt.Fprintln(w, "  verb\tat\twhere\ta hit costs\twhy there; how the function was found")
		for _, probe := range t.Probes {
			fmt.Fprintln(w, planned(&probe))
		}
		if err := w.Flush(); err != nil {
			return err
		}
	}
	fmt.Fprintf(&b, "IN THE KERNEL  %s\n", strings.Join(p.Kernel, " "))
	for _, n := range p.Notes {
		fmt.Fprintf(&b, "  - %s\n", printable(n))
	}
	_, err = b.WriteTo(c.stdout)
	return printed("the plan", err)
}

// planned is a row of the table, tab-separated.
func planned(p *tracer.PlannedProbe) string {
	at, cost, why := "entry", "unknown", printable(p.Found)
	if p.Return {
		at = "return"
	} else if p.Place != "" {
		why = printable(p.Place + "; " + p.Found)
	}
	if p.CostNS > 0 {
		cost = fmt.Sprintf("%.2f us", p.CostNS/1000)
	}
	where := fmt.Sprintf("%s+%#x", printable(filepath.Base(p.Library)), p.Offset)
	return strings.Join([]string{"  " + p.Verb, at, where, cost, why}, "\t")
}
