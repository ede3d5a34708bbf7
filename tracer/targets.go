package tracer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/rdmatrace/rdmatrace/event"
	"github.com/rdmatrace/rdmatrace/tracer/image"
	"github.com/rdmatrace/rdmatrace/tracer/locate"
)

// finder is what is needed of locate.Process.
type finder interface {
	Scan(ctx context.Context, opt locate.Options) (*locate.Snapshot, error)
	Static(ctx context.Context) (*locate.Snapshot, error)
	Refresh() (added bool, err error)
	ContextFunctions(addr uint64) (locate.DeviceContext, locate.Functions, error)
	QPFunctions(addr uint64) (locate.QP, locate.Functions, error)
	CQFunctions(addr uint64) (locate.CQ, locate.Functions, error)
	MLX5(ctx context.Context, qps, cqs []uint64) ([]locate.MLX5Layout, error)
	Close() error
}

// target is one traced process.
type target struct {
	pid    int
	finder finder
	attach *attacher
	snap   *locate.Snapshot // as of the start
	pidfd  int
	ended  atomic.Bool
	ours   bool // we started it: it is stopped until probes are in
	notes  []string
	// removed: it is no target of the programs any more; closed: nor is anything held of it
	removed, closed bool

	// layoutsKnown: the private layout of libmlx5 is proven; until then these
	// objects, made later than the first look, may prove it.
	layoutsKnown   bool
	newQPs, newCQs []uint64

	// behind: it loaded libraries since the last look at what it made, such as
	// it had not loaded before.
	behind bool
	loaded map[locate.FileID]bool

	facts   event.Target
	threads []event.Thread
}

// openTarget makes sure that a running process can be traced and looks at what
// it has.
func openTarget(ctx context.Context, pid int, cfg *Config) (*target, error) {
	facts, err := cfg.preflight(pid, cfg.Host)
	if err != nil {
		return nil, err
	}
	if err := noReturnProbes(pid, facts.NoReturnProbes); err != nil {
		return nil, err
	}
	tg, err := followTarget(pid, cfg, false)
	if err != nil {
		return nil, err
	}
	if tg.snap, err = tg.finder.Scan(ctx, locate.Options{}); err != nil {
		return nil, errors.Join(err, tg.close())
	}
	tg.notes = append(tg.notes, tg.snap.Notes...)
	if facts.Stopped {
		cfg.Log.Warn("the process is stopped: nothing is seen of it until it goes on (SIGCONT)", "pid", pid)
		tg.notes = append(tg.notes, "it was stopped, by a signal or a debugger, when the trace began")
	}
	return tg, nil
}

// followTarget takes a process that we started, or that is a target's child:
// its code is looked for as it appears.
func followTarget(pid int, cfg *Config, ours bool) (*target, error) {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil, fmt.Errorf("watch process %d: %w", pid, err)
	}
	unix.CloseOnExec(fd)
	tg := &target{pid: pid, pidfd: fd, ours: ours, snap: &locate.Snapshot{}, loaded: map[locate.FileID]bool{}, facts: event.Target{PID: uint32(pid), Rank: -1}}
	if tg.finder, err = cfg.find(pid); err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	return tg, nil
}

// reopen looks at the process anew: an exec gave it another address space.
func (tg *target) reopen(cfg *Config) error {
	finder, err := cfg.find(tg.pid)
	if err != nil {
		return err
	}
	err = tg.finder.Close()
	tg.finder = finder
	return err
}

// begin makes it a target of the programs, with its probes.
func (tg *target) begin(ctx context.Context, k *kernel, l *links, cfg *Config) error {
	if err := k.addTarget(uint32(tg.pid), tg.ours); err != nil {
		return err
	}
	if err := tg.place(k, l, cfg); err != nil {
		return err
	}
	return tg.lookAgain(ctx)
}

// place attaches what the first look found. A running process in which no
// probe can be placed cannot be traced; one that begins has its code to come.
func (tg *target) place(k *kernel, l *links, cfg *Config) error {
	tg.attach = newAttacher(k, l, tg.pid, cfg.Host)
	n, err := tg.attach.attach(inUse(tg.snap))
	if n == 0 && err != nil {
		return err
	}
	if err != nil {
		tg.notes = append(tg.notes, "some probes could not be placed: "+err.Error())
	}
	if err := tg.attach.attachLinker(); err != nil {
		if tg.ours {
			return err
		}
		tg.notes = append(tg.notes, "libraries loaded later are not seen: "+err.Error())
	}
	cfg.Log.Debug("attached", "pid", tg.pid, "probes", n)
	return tg.learnLayouts(k, tg.snap.MLX5)
}

// lookAgain finds what the process loaded and made between the first look and
// the probes: what it makes from now on, they see.
func (tg *target) lookAgain(ctx context.Context) error {
	if tg.ours {
		return nil // it stood still
	}
	// New probes take their time: what it makes meanwhile needs another look.
	for range lookRounds {
		if _, err := tg.finder.Refresh(); err != nil {
			return err
		}
		snap, err := tg.finder.Scan(ctx, locate.Options{})
		if err != nil {
			return err
		}
		tg.snap = snap
		added, err := tg.attach.attach(inUse(snap))
		if err != nil {
			tg.notes = append(tg.notes, "some probes could not be placed: "+err.Error())
		}
		if added == 0 {
			break
		}
	}
	return tg.learnLayouts(tg.attach.kernel, tg.snap.MLX5)
}

// load notes libraries with functions that are new to the process. One that it
// loads time and again has its probes.
func (tg *target) load(fns locate.Functions) {
	for _, fn := range fns {
		if !tg.loaded[fn.Library.FileID] {
			tg.loaded[fn.Library.FileID] = true
			tg.behind = true
		}
	}
}

// lookRounds: the context, its queues, and once more.
const lookRounds = 3

// inUse leaves out the functions of providers that no open device uses: every
// provider installed is mapped by every program, and each probe costs time to
// place and to take out.
func inUse(snap *locate.Snapshot) locate.Functions {
	var out locate.Functions
	for _, fn := range snap.Functions {
		if fn.Library.Role&locate.RoleProvider == 0 || fn.Live || provides(snap.Contexts, fn.Library) {
			out = append(out, fn)
		}
	}
	return out
}

func provides(contexts []locate.DeviceContext, lib *locate.Library) bool {
	return slices.ContainsFunc(contexts, func(c locate.DeviceContext) bool {
		return c.Provider != nil && c.Provider.FileID == lib.FileID
	})
}

// close gives back what a target holds open, once.
func (tg *target) close() error {
	if tg.closed {
		return nil
	}
	tg.closed = true
	var errs []error
	if tg.finder != nil {
		errs = append(errs, tg.finder.Close())
	}
	return errors.Join(append(errs, unix.Close(tg.pidfd))...)
}

// gone reports whether there is no such process, or only what is left for its
// parent to collect.
func gone(pid int) bool {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return errors.Is(err, unix.ESRCH) // else it is we who lack something, such as descriptors
	}
	defer unix.Close(fd)
	return exits(fd, 0)
}

// exits reports whether the process that a pidfd is of has exited, or does within
// so many ms (pidfd_open(2): it is readable then).
func exits(pidfd, withinMS int) bool {
	fds := []unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, withinMS)
	return err == nil && n == 1
}

// ends reports whether the process has exited or is about to: its memory goes
// first, then its files, which takes time where much memory is registered, and
// only then it has exited.
func (tg *target) ends() bool {
	for range endingChecks {
		if exits(tg.pidfd, endingCheckMS) {
			break
		}
		if maps, err := image.ReadMaps(uint32(tg.pid)); err == nil && len(maps) > 0 {
			return false // it lives
		}
	}
	return tg.hasEnded()
}

// A process without memory is given so long to exit.
const (
	endingChecks  = 100
	endingCheckMS = 100
)

// hasEnded reports whether the whole process has exited.
func (tg *target) hasEnded() bool {
	if tg.ended.Load() {
		return true
	}
	if exits(tg.pidfd, 0) {
		tg.ended.Store(true) // the reader asks, and the follower
	}
	return tg.ended.Load()
}
