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

	dir     string
	pid     int // of the client
	windows []window
	rows    []truth.Row // of the client's requests, in the order of their doorbells
}

// way is how a workload is observed.
type way uint8

const (
	untraced way = iota
	byRdmatrace
	byBpftrace
	ways
)

func (w way) String() string { return [...]string{"nothing", "rdmatrace", "bpftrace"}[w] }

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
	server, client, err := b.start(ctx)
	if err != nil {
		return err
	}
	defer end(server)
	defer end(client)
	b.pid = client.Process.Pid
	for range b.rounds {
		for w := range ways {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err := b.measure(ctx, w); err != nil {
				return fmt.Errorf("traced by %v: %w", w, err)
			}
		}
	}
	end(client)
	if err := stop(); err != nil {
		return err
	}
	return b.readRows()
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
	server = b.command(ctx, otherCPU, argv...)
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
	var tool *observer
	switch w {
	case byRdmatrace:
		tool, err = b.observeWith(ctx, "empty polls\"=\"cost nothing", rdmatrace, "-p",
			strconv.Itoa(b.pid), "--debug", "-o", filepath.Join(b.dir, "bench.rdt"))
	case byBpftrace:
		var script string
		if script, err = b.script(); err != nil {
			return err
		}
		// Unsafe: the library has no symbols to check the offsets against.
		tool, err = b.observeWith(ctx, "attached\n", "bpftrace", "--unsafe", "-p", strconv.Itoa(b.pid), "-e", script)
	}
	if err != nil {
		return err
	}
	defer func() {
		if tool != nil {
			err = errors.Join(err, tool.stop())
		}
	}()
	b.sleep(w, b.window)
	if w == untraced {
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
