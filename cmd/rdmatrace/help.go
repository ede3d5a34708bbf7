package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

const usage = `rdmatrace: where does the latency of RDMA work requests come from?

It watches a running, unmodified program from the kernel and splits the time from
posting each work request to having its completion into software, interrupt,
scheduling and wire. Ctrl-C, -d or the end of the program ends the trace and prints
a summary. A second Ctrl-C ends at once and discards what is not finished.

Usage:
  rdmatrace -p PID[,PID...] [flags]    trace running processes
  rdmatrace [flags] -- PROGRAM ARGS    start a program and trace it; stderr says how it ended
  rdmatrace report FILE [flags]        the same from a capture file (-: stdin)
  rdmatrace version
`

// filesAndCodes are the same for all.
const filesAndCodes = `
A file called - is stdout; the summary then goes to stderr. Files appear whole or
not at all: while they grow they are called FILE.<number>.tmp. On a terminal the
summary is cut to its width, in a file or pipe it is whole, unless COLUMNS is set.
Exit code: 0 success, 1 failure, 2 wrong usage; in a shell also 141, whoever read stdout
is gone, and 129, 130 or 143, ended at once by SIGHUP, SIGINT or SIGTERM.
`

const examples = `
Examples:
  rdmatrace -p 4242 -d 10s                      ten seconds of process 4242
  rdmatrace -p 4242 -o job.rdt --pprof job.pb   and keep a capture and a profile
  rdmatrace report job.rdt --flamegraph job.svg the same later, elsewhere
`

const reportUsage = `rdmatrace report: the summary of a capture file, and files made of it.

The file is one of rdmatrace -o. It has all that a trace had, so the same report can be
made later, elsewhere, without rights and without RDMA.

Usage:
  rdmatrace report FILE [flags]    (-: stdin)
`

const reportExamples = `
Examples:
  rdmatrace report job.rdt                      the summary again
  rdmatrace report job.rdt --pprof job.pb.gz    for go tool pprof -http=: job.pb.gz
  ssh host cat job.rdt | rdmatrace report - --json
`

// help on a topic: report, or all.
func help(flags *pflag.FlagSet, topic string) string {
	var b strings.Builder
	usage, examples, without := usage, examples, []string(nil)
	if topic == "report" {
		usage, examples, without = reportUsage, reportExamples, notOfReport
	}
	b.WriteString(usage)
	for _, group := range groups {
		part := pflag.NewFlagSet("", pflag.ContinueOnError)
		part.SortFlags = false
		flags.VisitAll(func(f *pflag.Flag) {
			if g := f.Annotations[groupKey]; len(g) == 1 && g[0] == group && !slices.Contains(without, f.Name) {
				part.AddFlag(f)
			}
		})
		if !part.HasFlags() {
			continue
		}
		fmt.Fprintf(&b, "\n%s:\n", group)
		// What pflag says of a switch's values is true and helps nobody; the columns count on its width.
		const values = "[=true|false]"
		b.WriteString(strings.ReplaceAll(part.FlagUsages(), values, strings.Repeat(" ", len(values))))
	}
	b.WriteString(filesAndCodes + examples)
	return b.String()
}
