// Command bench measures what observing costs: perftest on the software device
// runs untraced, under rdmatrace, and under the straightforward bpftrace
// script, in turns within one run of the program, so that all three see the
// same machine. Times are those of the device's own log.
package main

import (
	"context"
	"flag"
	"fmt"
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

var workloads = []workload{
	{argv: []string{"ib_read_lat"}},
	{argv: []string{"ib_write_lat"}, shared: true},
	{argv: []string{"ib_send_lat"}, shared: true},
	{argv: []string{"ib_write_bw", "-s", "1024"}},
	{argv: []string{"ib_write_bw", "-s", "65536"}},
	{argv: []string{"oracle-turn", "op=write"}, alone: true},
	{argv: []string{"oracle-turn", "op=send"}, alone: true},
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
	api := flag.String("api", "", "of those that are run with both, run only `builders` or post_send")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *rounds, *window, *only, *api); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, rounds int, window time.Duration, only, onlyAPI string) error {
	trap, err := calibrate.Run(ctx)
	if err != nil {
		return err
	}
	fmt.Printf("A trap with an empty program costs %.0f ns at an emulated instruction, entry and return %.0f ns.\n"+
		"The floor is that price for as many hits as each request takes, half a pair each.\n\n",
		trap.Emulated.Entry, trap.Emulated.Pair)
	var idle []string
	fmt.Println("| workload | API | traced by | per WR p50, ns | p99, ns | WRs/s | p50 added, ns | its spread | hits/WR | of them in empty polls | floor, ns |")
	fmt.Println("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")
	for _, w := range workloads {
		for _, api := range []string{"builders", "post_send"} {
			argv := slices.Clone(w.argv)
			if api == "post_send" && !w.alone {
				argv = append(argv, "--use_old_post_send")
			}
			if name := w.name(argv); ctx.Err() != nil || !strings.Contains(name, only) ||
				w.alone && api == "builders" || !w.alone && onlyAPI != "" && api != onlyAPI {
				continue
			}
			b := bench{workload: w, argv: argv, builders: api == "builders", rounds: rounds, window: window, hit: trap.Emulated.Pair / 2}
			if w.idle {
				b.rounds = max(rounds, idlePairs)
			}
			if err := b.run(ctx); err != nil {
				return fmt.Errorf("%s: %w", strings.Join(argv, " "), err)
			}
			if w.idle {
				idle = append(idle, b.idleRows()...)
			} else {
				b.print(strings.Join(w.argv, " "), api)
			}
		}
	}
	if len(idle) == 0 {
		return nil
	}
	fmt.Printf("\nPolls each second of CPU time, against the untraced window of the same round:\n\n" +
		"| of | observed by | rounds | untraced | change | 95 %% interval of its median |\n| --- | --- | --- | --- | --- | --- |\n")
	for _, row := range idle {
		fmt.Println(row)
	}
	return nil
}
