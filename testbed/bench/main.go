// Command bench measures what observing costs: perftest on the software device
// runs untraced, under rdmatrace, and under the straightforward bpftrace
// script, in turns within one run of the program, so that all three see the
// same machine. Times are those of the device's own log.
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/rdmatrace/rdmatrace/tracer/calibrate"
)

// workload is a perftest program with its arguments.
type workload struct {
	argv []string
	// shared: client and server poll busily, so each has a CPU, and the device
	// sleeps between looks. Else the device spins on a CPU of its own.
	shared bool
	// events: client and server sleep until they are told of a completion, in turn, so
	// one CPU is enough for both, and the device spins on the other.
	events bool
	// alone: a program of testbed/programs, which has no server, and tells how
	// often it polled.
	alone bool
	// idle: what matters is how often it polls, compared round by round.
	idle bool
	// neighbour: the figures are of a second process, which nobody observes.
	neighbour bool
}

// name is what -only looks at.
func (w *workload) name(argv []string) string {
	name := strings.Join(argv, " ")
	switch {
	case w.neighbour:
		name += " neighbour"
	case w.idle:
		name += " idle"
	}
	return name
}

const small, large = "1024", "65536"

var workloads = []workload{
	{argv: []string{"ib_read_lat", "-s", small}},
	{argv: []string{"ib_read_lat", "-s", large}},
	{argv: []string{"ib_write_lat", "-s", small}, shared: true},
	{argv: []string{"ib_write_lat", "-s", large}, shared: true},
	{argv: []string{"ib_send_lat", "-s", small}, shared: true},
	{argv: []string{"ib_send_lat", "-s", large}, shared: true},
	{argv: []string{"ib_send_lat", "-e", "-s", small}, events: true},
	{argv: []string{"ib_write_bw", "-s", small}},
	{argv: []string{"ib_write_bw", "-s", large}},
	{argv: []string{"oracle-turn", "op=write", "size=" + small}, alone: true},
	{argv: []string{"oracle-turn", "op=write", "size=" + large}, alone: true},
	{argv: []string{"oracle-turn", "op=send", "size=" + small}, alone: true},
	{argv: []string{"oracle-turn", "op=send", "size=" + large}, alone: true},
	{argv: []string{"oracle-turn", "cqs=16"}, alone: true},
	{argv: []string{"oracle-turn", "burst=64", "every=100000000"}, alone: true, idle: true},
	{argv: []string{"oracle-turn", "burst=64", "every=100000000"}, alone: true, idle: true, neighbour: true},
}

// idlePairs are the least rounds of those that are compared round by round.
const idlePairs = 20

func main() {
	rounds := flag.Int("rounds", 3, "`times` that each way is measured")
	window := flag.Duration("window", 500*time.Millisecond, "of each measurement")
	only := flag.String("only", "", "run the workloads whose command contains `TEXT`")
	api := flag.String("api", "", "of the posting `API`s run only this: builders or post_send")
	into := flag.String("o", "", "write the tables to `FILE` as well, once all are there")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var all bytes.Buffer
	err := run(ctx, io.MultiWriter(os.Stdout, &all), *rounds, *window, *only, *api)
	if err == nil && *into != "" && ctx.Err() == nil {
		err = os.WriteFile(*into, append(bytes.TrimRight(all.Bytes(), "\n"), '\n'), 0o666)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer, rounds int, window time.Duration, only, onlyAPI string) error {
	trap, err := calibrate.Run(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "# Figures of what observing costs\n\nWritten by `make bench-overhead`; docs/overhead.md says what they mean.\n\n"+
		"A trap with an empty program cost %.0f ns at an emulated instruction, entry and return %.0f ns.\n"+
		"The floor is that price for as many hits as each request takes, half a pair each. At an instruction that the kernel\n"+
		"single-steps an entry cost %.0f ns; the floor has that for those hits.\n\n",
		trap.Emulated.Entry, trap.Emulated.Pair, trap.Stepped.Entry)
	var idle []string
	for _, b := range benches(only, onlyAPI) {
		b.rounds, b.window, b.hit, b.stepped = rounds, window, trap.Emulated.Pair/2, trap.Stepped.Entry
		if b.workload.idle {
			b.rounds = max(rounds, idlePairs)
		}
		if err := b.run(ctx); err != nil {
			return fmt.Errorf("%s: %w", strings.Join(b.argv, " "), err)
		}
		if b.workload.idle {
			idle = append(idle, b.idleRows()...)
		} else {
			b.print(out, strings.Join(b.workload.argv, " ")+", "+b.api())
		}
		if ctx.Err() != nil {
			break // with what there is
		}
	}
	if len(idle) == 0 {
		return nil
	}
	fmt.Fprintf(out, "## Polls of an idle busy poller\n\nPolls each second of CPU time, against the untraced window of the same round:\n\n"+
		"| of | observed by | rounds | untraced | change | 95 %% interval of its median |\n| --- | --- | --- | --- | --- | --- |\n")
	for _, row := range idle {
		fmt.Fprintln(out, row)
	}
	return nil
}

// benches are the workloads in both posting APIs, those that are asked for.
func benches(only, onlyAPI string) (all []*bench) {
	for _, w := range workloads {
		for _, builders := range []bool{true, false} {
			b := &bench{workload: w, argv: slices.Clone(w.argv), builders: builders}
			switch {
			case w.idle && builders:
				continue // polls are what matters
			case builders && w.alone:
				b.argv = append(b.argv, "builders=1")
			case !builders && !w.alone:
				b.argv = append(b.argv, "--use_old_post_send")
			}
			if strings.Contains(w.name(b.argv), only) && (onlyAPI == "" || onlyAPI == b.api()) {
				all = append(all, b)
			}
		}
	}
	return all
}
