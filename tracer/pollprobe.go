package tracer

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/rdmatrace/rdmatrace/bpf"
	"github.com/rdmatrace/rdmatrace/tracer/locate"
	"github.com/rdmatrace/rdmatrace/tracer/locate/object"
	"github.com/rdmatrace/rdmatrace/tracer/pollpath"
)

// A poll function is observed at its entry and its return until the path on
// which it consumes completions is known; docs/polling.md tells the steps.

const (
	pendingRetry = 5 * time.Millisecond
	retryMax     = time.Second
	// alignTime: so long empty polls are observed once the path is found. They
	// tell the rate of the device's clock: brackets of 100 ns at both ends, to
	// better than a part in 10^6, so that what comes after is dated by it until
	// other bounds do.
	alignTime = 250 * time.Millisecond
)

// tryPolls begins with the poll functions of a process that are ready for it:
// those of libraries whose completion entries, and so their times, are found,
// and those of others, where it can be seen when the kernel writes entries.
func (f *follower) tryPolls(tg *target) error {
	var errs []error
	for _, s := range tg.attach.polls {
		if s.state != pollIdle || s.links[s.enter()] == nil || !f.kernel.times(s.library) {
			continue
		}
		s.state = pollUnused
		errs = append(errs, f.beginPoll(s))
	}
	return errors.Join(errs...)
}

// times says whether something else than empty polls may tell when a library's
// completions were done.
func (k *kernel) times(lib *locate.Library) bool {
	if lib.Role&locate.RoleMLX5 == 0 {
		return k.written
	}
	cq, _ := k.layouts.ready(lib)
	return cq
}

// beginPoll begins with a function that the process has called: a library has
// several, of which one is in use. If it is not libmlx5's, the kernel has to be
// seen to write the entries of its queues.
func (f *follower) beginPoll(s *pollSlot) error {
	seen, err := f.kernel.pollCount(bpf.RdmaVarPollSeen, s)
	if err != nil {
		return err
	}
	mlx5 := s.library.Role&locate.RoleMLX5 != 0
	if s.written = !mlx5 && seen&seenWritten != 0; !s.written && !(mlx5 && seen&seenCalled != 0) {
		f.retry(s)
		return nil
	}
	if known, ok := f.kernel.polls.path(s); ok {
		s.candidates = []pollpath.Candidate{known.candidate}
		if err := f.attachSites(s, "known from another process"); err != nil {
			return f.keepPoll(s, err)
		}
		return f.align(s, known)
	}
	candidates, err := findPaths(s.library, s.fn)
	if err != nil {
		return f.keepPoll(s, err)
	}
	s.candidates = candidates
	return f.tryNext(s)
}

// findPaths looks at the code of a poll function.
func findPaths(lib *locate.Library, fn locate.Function) ([]pollpath.Candidate, error) {
	file, err := lib.OpenFile()
	if err != nil {
		return nil, fmt.Errorf("read the code of %s: %w", lib.Path, err)
	}
	defer file.Close()
	o, err := object.New(file)
	if err != nil {
		return nil, fmt.Errorf("read the code of %s: %w", lib.Path, err)
	}
	if fn.Verb != locate.PollCQ {
		return pollpath.FindCurrent(pollpath.ImageOf(o), fn.Vaddr)
	}
	return pollpath.Find(pollpath.ImageOf(o), fn.Vaddr)
}

// tryNext tries the next candidate, if there is one.
func (f *follower) tryNext(s *pollSlot) error {
	if err := f.attachSites(s, "tried"); err != nil {
		return f.keepPoll(s, err)
	}
	s.state = pollTrying
	c := s.candidate()
	f.log().Debug("poll path", "pid", s.attach.pid, "library", s.library.Path, "entry", s.fn.Vaddr, "try", c.Why)
	// The sites are in: only polls that begin from here on are part of the trial.
	return f.beginTrial(s)
}

// beginTrial collects evidence from here on.
func (f *follower) beginTrial(s *pollSlot) error {
	s.mu.Lock()
	s.trial.begin()
	s.mu.Unlock()
	return f.allowTrials(s, bpf.RdmaPollModePOLL_TRY)
}

// suspend takes no more evidence of the trial.
func (s *pollSlot) suspend() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trial.active = false
}

func (s *pollSlot) candidate() pollpath.Candidate { return s.candidates[s.tried] }

// allowTrials lets some more polls be recorded.
func (f *follower) allowTrials(s *pollSlot, mode bpf.RdmaPollMode) error {
	n, err := f.kernel.pollCount(bpf.RdmaVarPollTrials, s)
	if err != nil {
		return err
	}
	return f.kernel.setPoll(s, func(e *bpf.RdmaPollSlot) { e.Mode, e.Trials = uint32(mode), n+trialPolls })
}

// attachSites puts the program on the candidate's sites. They report nothing
// before the slot's mode says so.
func (f *follower) attachSites(s *pollSlot, how string) error {
	c := s.candidate()
	fn := s.fn
	fn.Source = fmt.Sprintf("success path: %s, %s", c.Why, how)
	b := &batch{library: s.library, program: s.site(), slot: s}
	for _, addr := range c.Sites {
		// Code and its file differ by the same distance in all of one function.
		at := fn
		at.Vaddr, at.Offset = addr, s.fn.Offset+(addr-s.fn.Vaddr)
		one := site{fn: at, offset: at.Offset, cookie: f.kernel.layouts.cookie(s.library) | s.cookie()}
		if s.attach.done[s.attach.key(b, one)] {
			return errors.New("another poll function shares its path")
		}
		b.sites = append(b.sites, one)
	}
	_, err := s.attach.attachFile(s.library, func(*os.File) []*batch { return []*batch{b} })
	return err
}

// takeOut removes one of the slot's programs. It stays marked as done, so that
// it is not put back when the function is found once more.
func (f *follower) takeOut(s *pollSlot, program string) error {
	links := s.links[program]
	delete(s.links, program)
	s.attach.discard(s, program)
	if err := f.links.drop(links...); err != nil {
		return fmt.Errorf("take %s out of process %d: %w", program, s.attach.pid, err)
	}
	return nil
}

// takeSitesOut removes the candidate's sites.
func (f *follower) takeSitesOut(s *pollSlot) error {
	err := errors.Join(f.kernel.setPollMode(s, bpf.RdmaPollModePOLL_RETURN), f.takeOut(s, s.site()))
	s.attach.forget(s, s.site())
	return err
}

// forget lets programs be put in anew.
func (a *attacher) forget(s *pollSlot, programs ...string) {
	for key := range a.done {
		if s.owns(key) && slices.Contains(programs, key.program) {
			delete(a.done, key)
		}
	}
}

func (s *pollSlot) hasSite(offset uint64) bool {
	if len(s.candidates) == 0 {
		return false
	}
	for _, addr := range s.candidate().Sites {
		if s.fn.Offset+(addr-s.fn.Vaddr) == offset {
			return true
		}
	}
	return false
}

// keepPoll leaves a poll function to its entry and its return.
func (f *follower) keepPoll(s *pollSlot, why error) error {
	s.state, s.why = pollKept, why.Error()
	f.log().Debug("poll path", "pid", s.attach.pid, "library", s.library.Path, "entry", s.fn.Vaddr, "kept at entry and return", s.why)
	if !s.attach.has(s, s.site()) {
		return nil
	}
	return f.takeSitesOut(s)
}

// stepPoll takes a poll function's observation one step on. Of each state but
// the trial there is one pollStep at a time.
func (f *follower) stepPoll(s *pollSlot, what changeKind) error {
	switch s.state {
	case pollUnused:
		return f.beginPoll(s)
	case pollTrying:
		return f.judge(s)
	}
	if what == pollLook {
		return nil // it came before the trial had ended
	}
	switch s.state {
	case pollAligning:
		if f.kernel.paused {
			f.stepLater(s, alignTime)
			return nil
		}
		return f.switchPoll(s)
	case pollLearned, pollClosing:
		return f.closeReturn(s)
	case pollSites:
		return f.checkSites(s)
	case pollLeaving:
		return f.leaveSites(s)
	}
	return nil
}

// judge looks at what the trial has shown so far.
func (f *follower) judge(s *pollSlot) error {
	s.mu.Lock()
	path, err := s.trial.learn(s.candidate(), s.current())
	polls := len(s.trial.calls)
	if err == nil || !errors.Is(err, pollpath.ErrMoreTraffic) {
		s.trial.active = false
		s.trial.open, s.trial.calls = nil, nil
	}
	s.mu.Unlock()
	switch {
	case err == nil:
		f.kernel.polls.learn(s, path)
		s.attach.resource(s, fmt.Sprintf("success path: %s, learned from %d completions", path.candidate.Why, path.completions))
		return f.align(s, path)
	case errors.Is(err, pollpath.ErrMoreTraffic) && polls < trialMost:
		return f.allowTrials(s, bpf.RdmaPollModePOLL_TRY)
	}
	f.log().Debug("poll path", "pid", s.attach.pid, "candidate", s.candidate().Why, "refused", err)
	if s.tried+1 == len(s.candidates) {
		return f.keepPoll(s, err)
	}
	if err := f.takeSitesOut(s); err != nil {
		return err
	}
	s.tried++
	return f.tryNext(s)
}

// align leaves entry and return in for a while, now that the path is known, if
// it is a device's clock that tells when completions were done. In a pause they
// are out, and it waits for the end of that.
func (f *follower) align(s *pollSlot, path pollPath) error {
	s.path, s.state = path, pollAligning
	delay := alignTime
	if s.written {
		delay = 0
	}
	f.stepLater(s, delay)
	return nil
}

// switchPoll lets the sites report, for every poll that begins from now on.
func (f *follower) switchPoll(s *pollSlot) error {
	path := &s.path
	s.state, s.delay = pollLearned, 0
	f.log().Debug("poll path", "pid", s.attach.pid, "library", s.library.Path, "entry", s.fn.Vaddr, "path", path.candidate.Why,
		"cq", path.learned.CQ, "cq offset", path.learned.CQOffset, "wc", path.learned.WC, "offset", path.learned.WCOffset, "completions", path.completions)
	where := func(e *bpf.RdmaPollSlot) {
		e.CqAt, e.WcAt = uint32(path.learned.CQ), uint32(path.learned.WC)
		e.CqOffset = int32(path.learned.CQOffset)
		e.WcOffset = int32(path.learned.WCOffset)
	}
	// First where, then that: the programs read while this is written.
	if err := f.kernel.setPoll(s, where); err != nil {
		return err
	}
	if err := f.kernel.setPollMode(s, bpf.RdmaPollModePOLL_SITE); err != nil {
		return err
	}
	return f.closeReturn(s)
}

// closeReturn takes entry and return out as soon as no poll is under way whose
// return has to report.
func (f *follower) closeReturn(s *pollSlot) error {
	n, err := f.kernel.pollsPending(s)
	if err != nil {
		return err
	}
	if n > 0 {
		f.retry(s)
		return nil
	}
	if s.state == pollLearned {
		// Once it is out no entry program runs: one that had read the old mode
		// before it changed has left its mark by then.
		s.state = pollClosing
		if err := f.takeOut(s, s.enter()); err != nil {
			return err
		}
		return f.closeReturn(s)
	}
	s.state = pollSites
	s.watch.written = s.written
	s.attach.outdated(s)
	f.stepLater(s, sitesCheck)
	if err := f.kernel.setPoll(s, func(e *bpf.RdmaPollSlot) { e.Alone = 1 }); err != nil {
		return err
	}
	if err := f.takeOut(s, s.exit()); err != nil {
		return err
	}
	f.log().Debug("poll path", "pid", s.attach.pid, "library", s.library.Path, "entry", s.fn.Vaddr, "empty polls", "cost nothing")
	return nil
}

// retry waits longer each time.
func (f *follower) retry(s *pollSlot) {
	s.delay = min(max(2*s.delay, pendingRetry), retryMax)
	f.stepLater(s, s.delay)
}

func (f *follower) stepLater(s *pollSlot, delay time.Duration) {
	time.AfterFunc(delay, func() { f.add(change{what: pollStep, pid: uint32(s.attach.pid), slot: s}) })
}
