package tracer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rdmatrace/rdmatrace/bpf"
	"github.com/rdmatrace/rdmatrace/event"
	"github.com/rdmatrace/rdmatrace/tracer/locate"
)

// change is something that a target did which may call for more probes.
type change struct {
	what changeKind
	pid  uint32
	from uint32 // the parent of a new process
	addr uint64 // of the object
	// delay until the next look, should this one not do
	delay time.Duration
	slot  *pollSlot  // of a pollStep, a pollLook
	build *buildSlot // of a buildStep
}

type changeKind uint8

const (
	newProcess changeKind = iota + 1
	newProgram            // exec
	newLibrary
	newContext
	newQP // or one that became ready to send
	newCQ
	newLayout // a look at the objects is due
	newTarget // the gate is open
	pollStep  // a poll function's switchover goes on
	pollLook  // its trial has new evidence
	keepPace  // a look at what probes cost is due
	buildStep // what is known of a library's builders may have changed
)

// holds says after which changes a process of ours stands still until it is let go.
var holds = [...]bool{newProgram: true, newLibrary: true, newContext: true, newQP: true, newCQ: false, newLayout: false, newTarget: false, pollStep: false, pollLook: false, keepPace: false, buildStep: false}

// follower places probes for what the targets do while they are traced. It
// works beside the reader, which must not wait for it.
type follower struct {
	targets *targets
	kernel  *kernel
	links   *links
	ctx     context.Context
	cancel  context.CancelFunc

	mu      sync.Mutex
	wake    *sync.Cond
	pending []change
	newborn int // processes that wait to be adopted
	found   []event.Event
	stopped bool
	idle    sync.WaitGroup
	notes   []string
	pace    pacer
	// clearing: probes of processes that have ended are being taken out.
	clearing atomic.Bool
}

// maxPending bounds the changes that wait: a target that makes more objects
// than can be looked at must not fill the memory.
const maxPending = 1 << 16

func newFollower(ts *targets, k *kernel, l *links) *follower {
	f := &follower{targets: ts, kernel: k, links: l}
	f.ctx, f.cancel = context.WithCancel(context.Background())
	f.wake = sync.NewCond(&f.mu)
	for _, tg := range ts.list() {
		if len(tg.snap.MLX5) > 0 && !tg.layoutsKnown {
			f.retryLayouts(tg, layoutRetry)
		}
	}
	return f
}

// begin begins to work, once the gate is open: what there is to be done until
// then waits.
func (f *follower) begin() {
	f.pace.opened = monotonic()
	f.pace.unseen.job = f.jobRan()
	f.add(change{what: keepPace})
	f.idle.Go(f.run)
	for _, tg := range f.targets.list() {
		if tg.hasEnded() {
			continue // its number may be another's
		}
		f.add(change{what: newTarget, pid: uint32(tg.pid)})
	}
}

// note takes a change from an event, if it is one.
func (f *follower) note(e *event.Event) {
	f.pace.users.note(e)
	c := change{pid: e.PID}
	switch o := e.Object; {
	case o == nil:
		return
	case o.Task != nil:
		c.from = o.Task.ParentPID
		switch {
		case o.Task.Event == event.TaskExec:
			c.what = newProgram
		case o.Task.Event == event.TaskStarted && e.TID == e.PID:
			c.what = newProcess
		}
	case o.Context != nil && o.Event == event.ObjectCreated:
		c.what, c.addr = newContext, o.Context.Addr
	case o.CQ != nil && o.Event == event.ObjectCreated:
		c.what, c.addr = newCQ, o.CQ.Addr
	case o.QP != nil && o.Event == event.ObjectModified && o.QP.AttrMask&attrState != 0 && o.QP.State == stateRTS:
		c.what, c.addr = newQP, o.QP.Addr
	}
	if c.what != 0 {
		f.add(c)
	}
}

// As in <infiniband/verbs.h>: enum ibv_qp_attr_mask, ibv_qp_state.
const (
	attrState = 1
	stateRTS  = 3
)

// noteRecord takes a change from a record that is no event; true if it was one.
func (f *follower) noteRecord(raw []byte) bool {
	var h bpf.RdmaRecordHeader
	if decodeHeader(raw, &h) != nil {
		return false
	}
	if kind := bpf.RdmaRecordKind(h.Kind); kind != bpf.RdmaRecordKindRECORD_LIBRARY {
		return f.noteTrial(kind, raw)
	}
	f.add(change{what: newLibrary, pid: h.Pid})
	return true
}

func (f *follower) add(c change) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.pending) == maxPending && c.what != keepPace {
		f.keepNote("more objects were made than could be looked at: some may lack probes")
		return
	}
	f.pending = append(f.pending, c)
	if c.what == newProcess {
		f.newborn++
	}
	f.wake.Signal()
}

func (f *follower) run() {
	for {
		f.mu.Lock()
		for len(f.pending) == 0 && !f.stopped {
			f.wake.Wait()
		}
		if f.stopped {
			f.mu.Unlock()
			return
		}
		c := f.pending[0]
		f.pending = f.pending[1:]
		f.mu.Unlock()
		if err := f.handle(c); err != nil && f.ctx.Err() == nil {
			f.say(err)
		}
		if c.what == newProcess {
			f.mu.Lock()
			f.newborn--
			f.mu.Unlock()
		}
	}
}

// adopting reports whether there are processes that wait to be adopted: their
// parent may have ended before.
func (f *follower) adopting() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.newborn > 0
}

// awaits reports whether such a change of a process waits to be handled.
func (f *follower) awaits(what changeKind, pid int) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.ContainsFunc(f.pending, func(c change) bool { return c.what == what && c.pid == uint32(pid) })
}

// stop ends the work; what is pending stays undone.
func (f *follower) stop() {
	f.cancel()
	f.mu.Lock()
	f.stopped = true
	f.wake.Signal()
	f.mu.Unlock()
	f.idle.Wait()
	if err := f.pace.runs.end(f.kernel, monotonic()); err != nil {
		f.say(fmt.Errorf("end the measurement of programs: %w", err))
	}
}

// say keeps an error as a note.
func (f *follower) say(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.keepNote(err.Error())
}

// maxNotes bounds what is said of a trace that goes wrong without end.
const maxNotes = 32

// keepNote keeps each text once, up to maxNotes. f.mu is held.
func (f *follower) keepNote(text string) {
	if len(f.notes) < maxNotes && !slices.Contains(f.notes, text) {
		f.notes = append(f.notes, text)
	}
}

func (f *follower) log() *slog.Logger { return f.targets.cfg.Log }

func (f *follower) handle(c change) (err error) {
	if c.what == keepPace {
		return f.keepPace()
	}
	if c.slot != nil || c.build != nil {
		switch tg := f.targets.get(c.pid); {
		case tg == nil || tg.hasEnded():
			return nil
		case c.build != nil:
			return f.stepBuild(c.build)
		}
		return f.stepPoll(c.slot, c.what)
	}
	if f.ours(c) && holds[c.what] {
		defer func() { err = errors.Join(err, resume(int(c.pid))) }()
	}
	tg := f.targets.get(c.pid)
	if tg == nil {
		if tg, err = f.adopt(c); err != nil || tg == nil {
			return err
		}
	}
	if tg.closed {
		return nil
	}
	if c.what == newProcess || c.what == newProgram {
		tg.look() // it may have ended before the trace does
	}
	if c.what == newLayout {
		if err := f.tryLayouts(tg, c); err != nil && !tg.hasEnded() {
			return fmt.Errorf("look at the queues of process %d: %w", tg.pid, err)
		}
		return f.tryProbes(tg)
	}
	if c.what == newTarget {
		return f.tryProbes(tg)
	}
	if c.what == newQP || c.what == newCQ {
		tg.addObject(c)
		if !tg.layoutsKnown && len(tg.newQPs)+len(tg.newCQs) == 1 {
			f.retryLayouts(tg, layoutRetry)
		}
	}
	fns, err := f.functions(tg, c)
	if err != nil {
		if tg.hasEnded() {
			return nil
		}
		err = fmt.Errorf("find code of process %d after it changed: %w", tg.pid, err)
	} else {
		_, err = tg.attach.attach(fns)
	}
	if c.what == newLibrary && !tg.ours {
		tg.load(fns)
		err = errors.Join(err, f.catchUp(tg))
	}
	if tg.hasEnded() {
		return nil
	}
	return errors.Join(err, f.tryProbes(tg))
}

// tryProbes begins with what can be observed with fewer probes than at first.
func (f *follower) tryProbes(tg *target) error {
	return errors.Join(f.tryPolls(tg), f.tryBuilds(tg))
}

// catchUp finds what a process that could not be held made between loading a
// library and the probes in it. Programs load a provider after the other: one
// look after the last does. It is due even if no function was added: those of a
// provider count as soon as there is a context of it, which may be there now.
func (f *follower) catchUp(tg *target) error {
	if !tg.behind || f.awaits(newLibrary, tg.pid) {
		return nil
	}
	begin := monotonic()
	if err := tg.lookAgain(f.ctx); err != nil {
		return err
	}
	tg.behind = false
	f.mu.Lock()
	defer f.mu.Unlock()
	f.found = append(f.found, found(tg.pid, tg.snap, begin)...)
	return nil
}

// takeFound are the events of objects that were found, and of pauses, until t, by time, each once.
func (f *follower) takeFound(t uint64) (out []event.Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.found = slices.DeleteFunc(f.found, func(e event.Event) bool {
		if e.Time > t {
			return false
		}
		out = append(out, e)
		return true
	})
	slices.SortStableFunc(out, func(a, b event.Event) int { return cmp.Compare(a.Time, b.Time) })
	return out
}

// ours reports whether the change is of the command that we started or of a
// descendant of it: those are held, others never.
func (f *follower) ours(c change) bool {
	if tg := f.targets.get(c.pid); tg != nil {
		return tg.ours
	}
	if parent := f.targets.get(c.from); parent != nil {
		return parent.ours
	}
	return f.targets.cmd != nil
}

// adopt makes a child process a target of user space: BPF made it one already.
// It returns nil if the child is gone.
func (f *follower) adopt(c change) (*target, error) {
	parent := f.targets.get(c.from)
	tg, err := followTarget(int(c.pid), f.targets.cfg, f.ours(c))
	if err != nil {
		if gone(int(c.pid)) {
			return nil, nil
		}
		return nil, err
	}
	tg.attach = newAttacher(f.kernel, f.links, tg.pid, f.targets.cfg.Host)
	f.targets.add(tg)
	if parent == nil {
		return tg, nil
	}
	// It has the same libraries mapped, for as long as it doesn't exec.
	if _, err := tg.attach.attach(parent.attach.functions); err != nil && !tg.hasEnded() {
		return tg, err
	}
	return tg, nil
}

// functions are those that the change brought.
func (f *follower) functions(tg *target, c change) (fns locate.Functions, err error) {
	switch c.what {
	case newContext:
		return f.contextFunctions(tg, c.addr)
	case newQP:
		_, fns, err = tg.finder.QPFunctions(c.addr)
	case newCQ:
		_, fns, err = tg.finder.CQFunctions(c.addr)
	case newProgram:
		if err := tg.reopen(f.targets.cfg); err != nil {
			return nil, err
		}
		snap, serr := tg.finder.Static(f.ctx)
		if serr != nil {
			return nil, serr
		}
		return inUse(snap), tg.attach.attachLinker()
	case newLibrary:
		added, rerr := tg.finder.Refresh()
		if rerr != nil || !added {
			return nil, rerr
		}
		snap, serr := tg.finder.Static(f.ctx)
		if serr != nil {
			return nil, serr
		}
		return inUse(snap), nil
	}
	return fns, err
}

// contextFunctions are those of the device just opened, and what else its
// provider has for the queues that will be made on it.
func (f *follower) contextFunctions(tg *target, addr uint64) (locate.Functions, error) {
	dev, fns, err := tg.finder.ContextFunctions(addr)
	if err != nil || dev.Provider == nil {
		return fns, err
	}
	snap, err := tg.finder.Static(f.ctx)
	if err != nil {
		return fns, err
	}
	snap.Contexts = []locate.DeviceContext{dev}
	return append(fns, inUse(snap)...), nil
}
