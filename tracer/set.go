package tracer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/rdmatrace/rdmatrace/event"
	"github.com/rdmatrace/rdmatrace/tracer/locate"
)

// targets are all traced processes: those given, and the children that follow.
type targets struct {
	cfg  *Config
	cmd  *Command
	work *follower
	// letRun: the command runs.
	letRun bool

	mu  sync.Mutex // the follower adds while the reader looks
	all []*target
}

func openTargets(ctx context.Context, cfg *Config) (*targets, error) {
	ts := &targets{cfg: cfg}
	pids := slices.Clone(cfg.PIDs)
	slices.Sort(pids)
	for _, pid := range slices.Compact(pids) {
		tg, err := openTarget(ctx, pid, cfg)
		if err != nil {
			return nil, errors.Join(err, ts.close())
		}
		ts.add(tg)
	}
	if len(cfg.Command) == 0 {
		return ts, nil
	}
	err := locate.PreflightStart(cfg.Host)
	if err != nil {
		return nil, errors.Join(err, ts.close())
	}
	if ts.cmd, err = startHeld(cfg.Command, cfg.CommandStdout); err != nil {
		return nil, errors.Join(err, ts.close())
	}
	tg, err := followTarget(ts.cmd.pid, cfg, true)
	if err != nil {
		return nil, errors.Join(err, ts.cmd.drop(), ts.close())
	}
	ts.add(tg)
	return ts, nil
}

func (ts *targets) add(tg *target) {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	ts.all = append(ts.all, tg)
}

func (ts *targets) get(pid uint32) *target {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	i := slices.IndexFunc(ts.all, func(tg *target) bool { return uint32(tg.pid) == pid && !tg.ended.Load() })
	if i < 0 {
		return nil
	}
	return ts.all[i]
}

func (ts *targets) list() []*target {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	return slices.Clone(ts.all)
}

// attach makes the processes targets of the programs and places the probes. One
// of several that ends meanwhile is left out.
func (ts *targets) attach(ctx context.Context, k *kernel, l *links) error {
	all, left := ts.list(), 0
	for i, tg := range all {
		err := tg.begin(ctx, k, l, ts.cfg)
		switch {
		case err == nil:
			left++
		case ctx.Err() != nil, left == 0 && i == len(all)-1, !tg.ends():
			return err
		default:
			tg.notes = append(tg.notes, "it ended while probes were placed: nothing was traced of it")
		}
	}
	ts.work = newFollower(ts, k, l)
	return nil
}

// found emits what exists when the gate opens.
func (ts *targets) found(now uint64, sink func(*event.Event) error) error {
	for _, tg := range ts.list() {
		if tg.hasEnded() {
			continue
		}
		if err := deliver(found(tg.pid, tg.snap, now), sink); err != nil {
			return err
		}
	}
	return nil
}

// release lets a command run that was held.
func (ts *targets) release() error {
	if ts.cmd == nil {
		return nil
	}
	ts.letRun = true
	return resume(ts.cmd.pid)
}

// drop ends a command that was not let run.
func (ts *targets) drop() error {
	if ts.cmd == nil || ts.letRun {
		return nil
	}
	return ts.cmd.drop()
}

// ended reports whether no target is left. Those that have ended are targets
// of the programs no more: their numbers may be given to others.
func (ts *targets) ended(k *kernel) (all bool, err error) {
	all = !ts.work.adopting()
	ts.mu.Lock()
	defer ts.mu.Unlock()
	for _, tg := range ts.all {
		switch {
		case !tg.hasEnded():
			all = false
		case !tg.removed:
			tg.removed = true
			err = errors.Join(err, k.removeTarget(uint32(tg.pid)))
		}
	}
	return all, err
}

// leave gives up what the processes that have ended held, and gives what is left to be
// cleared of them.
func (ts *targets) leave() (left leftover, err error) {
	var over []*target
	ts.mu.Lock()
	for _, tg := range ts.all {
		if tg.removed && !tg.closed && tg.attach != nil {
			over = append(over, tg)
		}
	}
	ts.mu.Unlock()
	for _, tg := range over {
		of := tg.attach.leave()
		left.links = append(left.links, of.links...)
		left.numbers = append(left.numbers, of.numbers...)
		err = errors.Join(err, tg.close())
	}
	return left, err
}

// halt ends the following: no probe is added any more.
func (ts *targets) halt() {
	if ts.work != nil {
		ts.work.stop()
	}
}

// stop ends the following. Processes of ours that stand still go on.
func (ts *targets) stop() error {
	ts.halt()
	var errs []error
	for _, tg := range ts.list() {
		if tg.ours && !tg.hasEnded() {
			errs = append(errs, resume(tg.pid))
		}
	}
	return errors.Join(errs...)
}

func (ts *targets) close() error {
	errs := []error{ts.stop()}
	for _, tg := range ts.list() {
		errs = append(errs, tg.close())
	}
	return errors.Join(errs...)
}

// costs are sentences on what observing costs where, and why.
func (ts *targets) costs() (out []string) {
	for _, tg := range ts.list() {
		for _, n := range slices.Concat(tg.pollCosts(), tg.buildCosts()) {
			out = append(out, fmt.Sprintf("process %d: %s", tg.pid, n))
		}
	}
	return out
}

// notes are sentences on what could not be observed of the targets.
func (ts *targets) notes() []string {
	var out []string
	for _, tg := range ts.list() {
		for _, n := range slices.Concat(tg.notes, tg.pollDoubts()) {
			out = append(out, fmt.Sprintf("process %d: %s", tg.pid, n))
		}
	}
	if ts.work != nil {
		out = append(out, ts.work.notes...)
	}
	return out
}
