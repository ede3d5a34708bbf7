package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmatrace/rdmatrace/internal/loopback"
	"github.com/rdmatrace/rdmatrace/testbed/softmlx5/truth"
)

const (
	softmlx5  = "testbed/softmlx5/softmlx5"
	programs  = "testbed/programs/build/"
	rdmatrace = "bin/rdmatrace"
	// clientCPU is the client's. Everything else shares the other: the device
	// or the server, and what traces.
	// Nothing has a real-time priority, which would keep others away: with both
	// CPUs taken like this, the kernel's grace periods do not end, and to place
	// a probe takes minutes.
	clientCPU, otherCPU = "0", "1"
)

// bench is one workload, measured in all ways.
type bench struct {
	workload workload
	argv     []string
	builders bool
	rounds   int
	window   time.Duration
	hit      float64 // least cost of a probe's hit, ns
	stepped  float64 // of one at an instruction that the kernel single-steps

	dir     string
	pid     int    // of the client
	told    string // what a program said of its polls
	windows []window
	rows    []truth.Row // of the client's requests, in the order of their doorbells
}

// api is how its work requests are posted.
func (b *bench) api() string {
	if b.builders {
		return "builders"
	}
	return "post_send"
}

// way is how a workload is observed.
type way uint8

const (
	untraced way = iota
	byRdmatrace
	byAllPolls
	byBpftrace
	byEmpties
	ways
)

func (w way) String() string {
	return [...]string{"nothing", "rdmatrace", "rdmatrace --empty-polls", "bpftrace", "empty programs"}[w]
}

// wanted are the ways in which a workload is observed.
func (w *workload) wanted() []way {
	switch {
	case w.neighbour:
		return []way{untraced, byRdmatrace}
	case w.idle:
		return []way{untraced, byRdmatrace, byBpftrace}
	}
	return []way{untraced, byRdmatrace, byAllPolls, byBpftrace, byEmpties}
}

// window is one measurement. Hits are counted in a window of their own, since
// to count them takes time too.
type window struct {
	way        way
	begin, end int64
	count      bool
	hits       hits
}

func (b *bench) run(ctx context.Context) (err error) {
	if b.dir, err = os.MkdirTemp("", "bench"); err != nil {
		return err
	}
	defer os.RemoveAll(b.dir)
	os.Setenv("SOFTMLX5_DIR", b.dir)
	params := []string{"start", "CPU=" + otherCPU, "RT=0", "POLL=spin", "LOG_MB=4000"}
	if b.workload.shared {
		params = []string{"start", "CPU=" + otherCPU}
	}
	if out, err := exec.CommandContext(ctx, softmlx5, params...).CombinedOutput(); err != nil {
		return fmt.Errorf("start the device: %w: %s", err, out)
	}
	stopped := false
	stop := func() error {
		stopped = true
		return exec.Command(softmlx5, "stop").Run()
	}
	defer func() {
		if !stopped {
			err = errors.Join(err, stop())
		}
	}()
	start := b.start
	if b.workload.alone {
		start = b.startAlone
	}
	other, client, err := start(ctx)
	if err != nil {
		return err
	}
	defer end(other)
	defer end(client)
	b.pid = client.Process.Pid
	if err := b.measureAll(ctx); err != nil {
		return err
	}
	end(client)
	if b.workload.alone {
		of := client
		if b.workload.neighbour {
			end(other)
			of = other
		}
		b.told = of.Stdout.(*bytes.Buffer).String()
	}
	if err := stop(); err != nil {
		return err
	}
	return b.readRows()
}

// measureAll ends early when it is asked to, with what it has so far.
func (b *bench) measureAll(ctx context.Context) error {
	for round := range b.rounds {
		order := b.workload.wanted()
		if round%2 == 1 {
			slices.Reverse(order) // what comes first may find another machine than what comes last
		}
		for _, w := range order {
			err := b.measure(ctx, w)
			if ctx.Err() != nil {
				return nil
			}
			if err != nil {
				return fmt.Errorf("traced by %v: %w", w, err)
			}
		}
	}
	return nil
}

// startAlone runs a program that is its own peer; the other is its neighbour.
func (b *bench) startAlone(ctx context.Context) (other, client *exec.Cmd, err error) {
	argv := append([]string{programs + b.argv[0]}, b.argv[1:]...)
	client = b.command(ctx, clientCPU, argv...)
	other = exec.Command("true")
	if b.workload.neighbour {
		other = b.command(ctx, clientCPU, argv...)
	}
	for _, cmd := range []*exec.Cmd{other, client} {
		if err := cmd.Start(); err != nil {
			end(other)
			return nil, nil, err
		}
	}
	b.pid = client.Process.Pid
	for !b.works() {
		if ended(client) {
			end(other)
			return nil, nil, fmt.Errorf("the program ended: %s", client.Stdout)
		}
		time.Sleep(10 * time.Millisecond)
	}
	return other, client, nil
}

// start runs server and client; both run for longer than is measured.
func (b *bench) start(ctx context.Context) (server, client *exec.Cmd, err error) {
	port, err := loopback.FreePort()
	if err != nil {
		return nil, nil, err
	}
	argv := append(slices.Clone(b.argv), "-n", "5000000", "-p", strconv.Itoa(port))
	if b.argv[0] == "ib_write_bw" { // without -N it keeps a time for each
		argv = append(slices.Clone(b.argv), "-n", "100000000", "-N", "-p", strconv.Itoa(port))
	}
	serverCPU := otherCPU
	if b.workload.events {
		serverCPU = clientCPU
	}
	server = b.command(ctx, serverCPU, argv...)
	if err := server.Start(); err != nil {
		return nil, nil, err
	}
	for {
		is, err := loopback.Listening(port)
		if err != nil {
			end(server)
			return nil, nil, err
		}
		if is {
			break
		}
		if ended(server) {
			return nil, nil, fmt.Errorf("the server ended: %s", server.Stdout)
		}
		time.Sleep(10 * time.Millisecond)
	}
	client = b.command(ctx, clientCPU, append(argv, "127.0.0.1")...)
	if err := client.Start(); err != nil {
		end(server)
		return nil, nil, err
	}
	b.pid = client.Process.Pid
	for !b.works() {
		if ended(client) {
			end(server)
			return nil, nil, fmt.Errorf("the client ended: %s", client.Stdout)
		}
		time.Sleep(10 * time.Millisecond)
	}
	return server, client, nil
}

// command runs a program on the device; exec all the way, so its pid is the program's.
func (b *bench) command(ctx context.Context, cpu string, argv ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "taskset", append([]string{"-c", cpu, softmlx5, "run"}, argv...)...)
	out := &bytes.Buffer{}
	cmd.Stdout, cmd.Stderr = out, out
	return cmd
}

// works says that the client has queues at work: the offsets can be found.
func (b *bench) works() bool {
	t, err := findTargets(b.pid, b.builders)
	return err == nil && t.poll != 0 && t.post != 0
}

func end(cmd *exec.Cmd) {
	if cmd.ProcessState != nil {
		return
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
}

func ended(cmd *exec.Cmd) bool {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", cmd.Process.Pid))
	return err != nil || strings.Contains(string(raw), ") Z ")
}

// measure observes the client in one way and keeps its windows.
func (b *bench) measure(ctx context.Context, w way) (err error) {
	stop, err := b.observe(ctx, w)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	b.sleep(w, b.window)
	if w == untraced || b.workload.idle {
		return nil
	}
	before, err := startHits()
	if err != nil {
		return err
	}
	defer before.close()
	b.sleep(w, b.window/2)
	last := &b.windows[len(b.windows)-1]
	last.count = true
	last.hits, err = before.since()
	return err
}

// observe begins to observe the client, and gives how to stop.
func (b *bench) observe(ctx context.Context, w way) (stop func() error, err error) {
	var tool *observer
	pid := strconv.Itoa(b.pid)
	tracing := []string{rdmatrace, "-p", pid, "--debug"}
	switch w {
	case untraced:
		return func() error { return nil }, nil
	case byRdmatrace:
		tool, err = b.observeWith(ctx, says("empty polls\"=\"cost nothing"), tracing...)
	case byAllPolls:
		ready := filepath.Join(b.dir, "ready")
		_ = os.Remove(ready)
		tool, err = b.observeWith(ctx, func(string) bool {
			_, err := os.Stat(ready)
			return err == nil
		}, append(tracing, "--empty-polls", "--ready-file", ready)...)
	case byBpftrace:
		var script string
		if script, err = b.script(); err != nil {
			return nil, err
		}
		// Unsafe: the library has no symbols to check the offsets against.
		tool, err = b.observeWith(ctx, says("attached\n"), "bpftrace", "--unsafe", "-p", pid, "-e", script)
	case byEmpties:
		e, err := placeEmpties(ctx, b.pid)
		if err != nil {
			return nil, err
		}
		return e.close, nil
	}
	if err != nil {
		return nil, err
	}
	return tool.stop, nil
}

// says is when a tool has printed a text.
func says(text string) func(string) bool {
	return func(out string) bool { return strings.Contains(out, text) }
}

func (b *bench) sleep(w way, d time.Duration) {
	begin := monotonic()
	time.Sleep(d)
	b.windows = append(b.windows, window{way: w, begin: begin, end: monotonic()})
}

func (b *bench) readRows() error {
	all, err := truth.ReadFile(filepath.Join(b.dir, "truth.csv"))
	if err != nil {
		return err
	}
	b.rows = slices.DeleteFunc(all, func(r truth.Row) bool { return r.Kind != truth.Send || r.PID != b.pid })
	slices.SortStableFunc(b.rows, func(x, y truth.Row) int { return cmp.Compare(x.Doorbell, y.Doorbell) })
	return nil
}

func monotonic() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err)
	}
	return ts.Nano()
}
