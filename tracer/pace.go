package tracer

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cilium/ebpf/link"

	"github.com/rdmatrace/rdmatrace/bpf"
	"github.com/rdmatrace/rdmatrace/event"
	"github.com/rdmatrace/rdmatrace/tracer/calibrate"
)

// The pace of observing: what the probes cost the threads that run into them,
// against the time that these threads run; and with Config.MaxOverhead, pauses
// in which the probes of posts and polls are out, so long that their cost since
// the beginning stays below that share.

const (
	paceStep  = 50 * time.Millisecond
	paceMeter = time.Second // between looks where there is no limit
	// A window of observing: so long that pauses and windows together take
	// paceCycle, but not shorter or longer than this.
	paceCycle   = 2 * time.Second
	windowLeast = 50 * time.Millisecond
	windowMost  = time.Second
)

// pacer is the follower's part that does so.
type pacer struct {
	limit float64 // share of the threads' time; 0: none
	trap  calibrate.Result
	runs  runTimes

	users  users
	unseen unseen

	opened uint64 // since when there is no pause
	window uint64 // how long it should not be
	begun  spent  // what was spent when this window began
	now    spent
	rate   float64 // what the latest window cost, ns of traps each ns
	edges  float64 // what was spent besides, ns, while probes went in for it and out after it
	grew   uint64  // when the threads were last seen to have run
	grewTo float64 // and what spent.cpu was then
}

// spent is what was, since the trace began, ns.
type spent struct {
	traps float64 // by probes that were hit
	cpu   float64 // by the threads that hit them, these included
}

// cost is what the hits of a process's probes took, ns.
func (p *pacer) cost(a *attacher) (sum float64) {
	for i := range a.probes {
		r := &a.probes[i]
		trap := p.trap.Emulated
		if r.stepped {
			trap = p.trap.Stepped
		}
		ns := trap.Entry
		if r.probe.Kind == "uretprobe" {
			ns = max(trap.Pair-trap.Entry, 0)
		}
		sum += (ns + p.runs.of(r.key.program)) * float64(a.kernel.hits(r))
	}
	return sum
}

func (f *follower) meter() {
	p := &f.pace
	p.now = spent{cpu: p.users.cpu(monotonic()) + p.unseen.ran(f.jobRan())}
	for _, tg := range f.targets.list() {
		if tg.attach != nil {
			p.now.traps += p.cost(tg.attach)
		}
	}
	// Which sites have no number is not known: the dearer half of a pair for each hit.
	pair := p.trap.Emulated
	p.now.traps += (max(pair.Entry, pair.Pair-pair.Entry) + p.runs.most(dataPrograms)) * float64(f.kernel.unnumbered())
}

// share is what probes took of their threads' time so far; 0: not known.
func (p *pacer) share() float64 {
	if p.now.cpu <= 0 {
		return 0
	}
	return p.now.traps / p.now.cpu
}

// keepPace takes one look, and pauses or goes on.
func (f *follower) keepPace() error {
	f.meter()
	p := &f.pace
	err := f.clearEnded()
	now := monotonic()
	p.grow(now)
	switch {
	case p.limit == 0:
	case !f.kernel.paused && p.due(now) && !f.switching():
		p.plan(now)
		err = errors.Join(err, f.pause())
		f.meter()
		p.edges += p.now.traps - p.begun.traps - p.rate*float64(now-p.opened)
	case f.kernel.paused && (p.affords() || p.asleep(now)):
		err = errors.Join(err, f.goOn())
	}
	err = errors.Join(err, p.runs.look(f.kernel, monotonic()))
	f.paceLater(p.nextLook())
	return err
}

// clearEnded takes out the probes of processes that have ended, beside the follower:
// others stand still until it lets them go. One lot at a time.
func (f *follower) clearEnded() error {
	if !f.clearing.CompareAndSwap(false, true) {
		return nil
	}
	left, err := f.targets.leave()
	if len(left.links)+len(left.numbers) == 0 {
		f.clearing.Store(false)
		return err
	}
	f.idle.Go(func() {
		defer f.clearing.Store(false)
		if err := f.kernel.clear(f.links, left); err != nil {
			f.say(err)
		}
	})
	return err
}

// nextLook is how long the next look can wait.
func (p *pacer) nextLook() time.Duration {
	switch {
	case p.limit > 0:
		return paceStep
	case p.runs.asked != nil:
		return runsLook
	}
	return paceMeter
}

// switching says that the observation of a poll function or of builders changes
// over, which takes a moment and is not to be interrupted. A trial, which may
// last, is.
func (f *follower) switching() bool {
	return slices.ContainsFunc(f.targets.list(), func(tg *target) bool {
		return tg.attach != nil && !tg.hasEnded() && (slices.ContainsFunc(tg.attach.polls, func(s *pollSlot) bool {
			return s.state > pollTrying && s.state < pollSites || s.state == pollLeaving
		}) || slices.ContainsFunc(tg.attach.builds, func(s *buildSlot) bool { return s.state == buildClosing }))
	})
}

func (f *follower) paceLater(delay time.Duration) {
	time.AfterFunc(delay, func() { f.add(change{what: keepPace}) })
}

// grow notes whether the threads have run.
func (p *pacer) grow(now uint64) {
	if p.now.cpu > p.grewTo {
		p.grew, p.grewTo = now, p.now.cpu
	}
}

// due says that a window has lasted long enough, and too much was spent. As long
// as nobody is known whose time it was, there is no pause: it would not end. Where
// the window cost nothing, as nobody runs into the probes, taking them out saves nothing.
func (p *pacer) due(now uint64) bool {
	return now-p.opened >= p.window && p.now.cpu > 0 && p.now.traps > p.begun.traps && p.now.traps > p.limit*p.now.cpu
}

// asleep says that no thread that is known to post or poll has run for long. Probes
// cost such threads nothing, and it takes probes to know others.
func (p *pacer) asleep(now uint64) bool { return now-p.grew >= uint64(paceCycle) }

// plan finds how long the next window should be, from what this one cost.
func (p *pacer) plan(now uint64) {
	traps, cpu := p.now.traps-p.begun.traps, p.now.cpu-p.begun.cpu
	if traps <= 0 || cpu <= 0 {
		return
	}
	p.window = uint64(min(max(float64(paceCycle)*p.limit*cpu/traps, float64(windowLeast)), float64(windowMost)))
	p.rate = traps / float64(now-p.opened)
}

// affords says that another window like the last one would not exceed the limit, with
// what it takes until its probes are in and, afterwards, until they are out.
func (p *pacer) affords() bool {
	return p.now.traps+p.rate*float64(p.window)+p.edges <= p.limit*p.now.cpu
}

// pause takes the probes of posts and polls out.
func (f *follower) pause() error {
	if err := f.kernel.setRound(0); err != nil {
		return err
	}
	f.kernel.paused = true
	f.pace.unseen.turn(f.jobRan(), f.pace.users.gone())
	f.tell(event.PauseBegin)
	var errs []error
	for _, tg := range f.targets.list() {
		if tg.attach == nil || tg.hasEnded() {
			continue
		}
		// Of a poll under way some probes will be missed: it is no evidence.
		for _, s := range tg.attach.trials() {
			s.suspend()
		}
		for _, s := range tg.attach.proofs() {
			errs = append(errs, f.kernel.setBuild(s, bpf.RdmaBuildModeBUILD_SETTERS, s.beginAt))
		}
		errs = append(errs, tg.attach.pause())
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("take out the probes of posts and polls for a while: %w", err)
	}
	return nil
}

// goOn puts them in again.
func (f *follower) goOn() error {
	var errs []error
	if err := f.kernel.eachTask(bpf.RdmaProgCallsForgotten); err != nil {
		return err // it stays paused: a return might be taken for another call's
	}
	f.kernel.paused = false
	for _, tg := range f.targets.list() {
		if tg.attach == nil || tg.hasEnded() {
			continue
		}
		errs = append(errs, tg.attach.goOn())
		for _, s := range tg.attach.polls {
			errs = append(errs, f.checkPutBack(s))
		}
		errs = append(errs, f.tryProbes(tg))
		for _, s := range tg.attach.trials() {
			errs = append(errs, f.beginTrial(s))
		}
		for _, s := range tg.attach.proofs() {
			errs = append(errs, f.kernel.setBuild(s, s.mode(), s.beginAt))
		}
	}
	f.tell(event.PauseEnd)           // not after what comes: posts are observed from then on
	if errors.Join(errs...) == nil { // else what passes the probes that are missing is our own doing
		f.kernel.round++
		errs = append(errs, f.kernel.setRound(f.kernel.round))
	}
	f.pace.unseen.turn(f.jobRan(), f.pace.users.gone())
	p := &f.pace
	before := p.now.traps
	f.meter()
	p.opened, p.begun = monotonic(), p.now
	p.edges = p.now.traps - before
	p.grew = p.opened
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("put the probes of posts and polls in again: %w", err)
	}
	return nil
}

// setRound tells the programs that all probes of posts and polls are in, for the
// round'th time; 0: some are not.
func (k *kernel) setRound(round uint32) error {
	if err := k.coll.Variables[bpf.RdmaVarCqRound].Set(round); err != nil {
		return fmt.Errorf("tell the programs that probes are out, or in again: %w", err)
	}
	return nil
}

// tell puts the begin or the end of a pause among the events.
func (f *follower) tell(what uint32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.found = append(f.found, event.Event{Time: monotonic(), Kind: event.KindPause, Flags: what})
}

// dataPrograms are those that posts and polls run into.
var dataPrograms = []string{
	bpf.RdmaProgPostSendEnter, bpf.RdmaProgPostRecvEnter, bpf.RdmaProgPostExit,
	bpf.RdmaProgPollEnter, bpf.RdmaProgPollExit, bpf.RdmaProgPollExEnter, bpf.RdmaProgPollExExit,
	bpf.RdmaProgPollSite, bpf.RdmaProgPollExSite,
	bpf.RdmaProgReqNotifyEnter,
	bpf.RdmaProgBuildStart, bpf.RdmaProgBuildWr, bpf.RdmaProgBuildData, bpf.RdmaProgBuildUdAddr,
	bpf.RdmaProgBuildCompleteEnter, bpf.RdmaProgBuildCompleteExit, bpf.RdmaProgBuildAbort,
}

// pauses says that a pause takes the batch out.
func (b *batch) pauses() bool { return slices.Contains(dataPrograms, b.program) }

// keep remembers batches, and which of them a pause takes out.
func (a *attacher) keep(batches []*batch) {
	a.batches = append(a.batches, batches...)
	for _, b := range batches {
		if b.pauses() {
			a.data = append(a.data, b)
		}
	}
}

// has says whether a program of the slot is in, or will be after the pause.
func (a *attacher) has(s *pollSlot, program string) bool {
	return slices.ContainsFunc(a.data, func(b *batch) bool { return b.slot == s && b.program == program })
}

// trials are the poll functions of which a candidate is tried.
func (a *attacher) trials() (all []*pollSlot) {
	for _, s := range a.polls {
		if s.state == pollTrying {
			all = append(all, s)
		}
	}
	return all
}

// discard forgets the batches of a program that was taken out for good.
func (a *attacher) discard(s *pollSlot, program string) {
	a.data = slices.DeleteFunc(a.data, func(b *batch) bool { return b.slot == s && b.program == program })
}

// pause takes out the probes of posts and polls.
func (a *attacher) pause() error {
	var out []link.Link
	for _, b := range a.data {
		out = append(out, b.links...)
		b.links = nil
	}
	return a.links.drop(out...)
}

// goOn puts them in again.
func (a *attacher) goOn() error {
	slices.SortStableFunc(a.data, byTurn)
	// A filter may have come meanwhile.
	if err := a.returnProbesAllowed(); err != nil {
		for _, b := range a.data {
			a.told(b, err)
		}
		return err
	}
	var errs []error
	without := map[siteKey]bool{} // functions whose return could not be probed
	for _, b := range a.data {
		if len(b.links) > 0 {
			continue
		}
		err := a.putBack(b, without)
		if err != nil && gone(a.pid) {
			return nil
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
