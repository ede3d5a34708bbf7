package main

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/rdmatrace/rdmatrace/tracer/locate"
)

//go:embed naive.bt
var naive string

// functions are the offsets that the straightforward script probes.
type functions struct {
	library            string
	post, posted, poll uint64
}

func findTargets(pid int, builders bool) (functions, error) {
	p, err := locate.Open(pid)
	if err != nil {
		return functions{}, err
	}
	defer p.Close()
	snap, err := p.Scan(context.Background(), locate.Options{})
	if err != nil {
		return functions{}, err
	}
	var f functions
	for _, fn := range snap.Functions {
		if !fn.Live {
			continue
		}
		switch {
		case fn.Verb == locate.PollCQ:
			f.library, f.poll = fn.Library.Path, fn.Offset
		case fn.Verb == locate.PostSend && !builders:
			f.post, f.posted = fn.Offset, fn.Offset
		case fn.Verb == locate.WRStart && builders:
			f.post = fn.Offset
		case fn.Verb == locate.WRComplete && builders:
			f.posted = fn.Offset
		}
	}
	return f, nil
}

// script is the straightforward one, for the client.
func (b *bench) script() (string, error) {
	f, err := findTargets(b.pid, b.builders)
	if err != nil {
		return "", err
	}
	offset := func(o uint64) string { return fmt.Sprintf("%#x", o) }
	return strings.NewReplacer("LIB", f.library, "POSTED", offset(f.posted), "POST", offset(f.post), "POLL", offset(f.poll)).
		Replace(naive), nil
}

// observer is a tool that traces the client.
type observer struct {
	cmd  *exec.Cmd
	out  *output
	deaf bool // it may forget an interrupt
}

// output is what it prints.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

// observeWith starts a tool and waits until it is ready, to judge by what it printed.
func (b *bench) observeWith(ctx context.Context, ready func(out string) bool, argv ...string) (*observer, error) {
	deaf := argv[0] == "bpftrace"
	argv = append([]string{"taskset", "-c", otherCPU}, argv...)
	t := &observer{cmd: exec.CommandContext(ctx, argv[0], argv[1:]...), out: &output{}, deaf: deaf}
	t.cmd.Stdout, t.cmd.Stderr = io.Writer(t.out), t.out
	if err := t.cmd.Start(); err != nil {
		return nil, err
	}
	gone := make(chan struct{})
	go func() { _ = t.cmd.Wait(); close(gone) }()
	for !ready(t.out.String()) {
		select {
		case <-time.After(5 * time.Millisecond):
		case <-gone:
			return nil, fmt.Errorf("it ended: %s", t.out)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return t, nil
}

func (t *observer) pid() int { return t.cmd.Process.Pid }

// stop interrupts the tool and waits until its probes are out. bpftrace looks
// whether it was interrupted and then waits for events: an interrupt in between
// is forgotten, so it is told again. rdmatrace is not: a second one ends it at once.
func (t *observer) stop() error {
	fd, err := unix.PidfdOpen(t.pid(), 0)
	if errors.Is(err, unix.ESRCH) {
		return nil // it has ended
	}
	if err != nil {
		return fmt.Errorf("wait for process %d: %w", t.pid(), err)
	}
	defer unix.Close(fd)
	patience := -1
	if t.deaf {
		patience = 2000 // ms
	}
	for {
		if err := t.cmd.Process.Signal(os.Interrupt); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return err
		}
		n, err := waitEnd(fd, patience)
		if n > 0 || err != nil {
			return err
		}
	}
}

// waitEnd waits for the end of the process behind a pidfd, so many ms at most; -1:
// without a limit. n is 0 if it did not come.
func waitEnd(fd, ms int) (n int, err error) {
	for {
		n, err = unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, ms)
		if !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}

// hits are runs of uprobe programs.
type hits struct {
	all   uint64
	polls uint64 // of rdmatrace's programs at entry and return of polls
	// stepped are those at ibv_req_notify_cq, of which no instruction is emulated in
	// libmlx5, and of the empty program at such places.
	stepped uint64
}

// hitCounter counts the runs from when it was made.
type hitCounter struct {
	on    io.Closer
	begin hits
}

func startHits() (*hitCounter, error) {
	on, err := ebpf.EnableStats(uint32(unix.BPF_STATS_RUN_TIME))
	if err != nil {
		return nil, err
	}
	begin, err := countHits()
	if err != nil {
		return nil, errors.Join(err, on.Close())
	}
	return &hitCounter{on, begin}, nil
}

func (c *hitCounter) since() (hits, error) {
	now, err := countHits()
	return hits{now.all - c.begin.all, now.polls - c.begin.polls, now.stepped - c.begin.stepped}, err
}

func (c *hitCounter) close() error { return c.on.Close() }

// countHits adds up the runs of all programs of the kind that uprobes run:
// nothing else is traced on the machine meanwhile.
func countHits() (h hits, err error) {
	id := ebpf.ProgramID(0)
	for {
		next, err := ebpf.ProgramGetNextID(id)
		if errors.Is(err, os.ErrNotExist) {
			return h, nil
		}
		if err != nil {
			return h, err
		}
		id = next
		p, err := ebpf.NewProgramFromID(id)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return h, err
		}
		info, err := p.Info()
		if err == nil && p.Type() == ebpf.Kprobe {
			if s, err := p.Stats(); err == nil {
				h.all += s.RunCount
				switch info.Name {
				case "poll_enter", "poll_exit":
					h.polls += s.RunCount
				case steppedName, "req_notify_ente", "req_notify_enter": // the kernel keeps 15 characters
					h.stepped += s.RunCount
				}
			}
		}
		p.Close()
		if err != nil {
			return h, err
		}
	}
}
