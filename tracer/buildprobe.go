package tracer

import (
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"time"

	"github.com/cilium/ebpf/link"

	"github.com/rdmatrace/rdmatrace/bpf"
	"github.com/rdmatrace/rdmatrace/tracer/locate"
)

// What builders are told is seen by a probe on each setter, until the send queue
// is proven to tell the same when wr_complete begins; docs/builders.md tells the steps.

const (
	// A word that is no index of a bracket's first WQE is another number in
	// nearly every bracket, since each begins further on.
	learnBrackets   = 32
	compareBrackets = 128
	buildLook       = 10 * time.Millisecond
	// buildCheck: so late at most setters are put in again, if they are needed.
	buildCheck = 200 * time.Millisecond
	pausedLook = windowLeast / 2
)

// As in bpf/wqe.bpf.h.
const (
	buildWords   = 32
	buildCountAt = 2
)

// tryBuilds begins with the builders of a process whose send queues are found.
func (f *follower) tryBuilds(tg *target) error {
	var errs []error
	for _, s := range tg.attach.builds {
		if _, qp := f.kernel.layouts.ready(s.library); qp && s.state == buildIdle {
			errs = append(errs, f.enter(s, buildLearning))
		}
	}
	return errors.Join(errs...)
}

// enter begins a state, and looks at it again later.
func (f *follower) enter(s *buildSlot, state buildState) error {
	s.state, s.delay = state, buildLook
	f.log().Debug("builders", "pid", s.attach.pid, "library", s.library.Path, "mode", s.mode(), "begin_at", s.beginAt)
	mode := s.mode()
	if f.kernel.paused && !s.reads() {
		mode = bpf.RdmaBuildModeBUILD_SETTERS // the end of the pause sets it
	}
	if err := f.kernel.setBuild(s, mode, s.beginAt); err != nil {
		return err
	}
	f.buildLater(s, s.delay)
	return nil
}

func (f *follower) buildLater(s *buildSlot, delay time.Duration) {
	time.AfterFunc(delay, func() { f.add(change{what: buildStep, pid: uint32(s.attach.pid), build: s}) })
}

// wait looks again, later each time; in a pause so soon that it is not the next one
// already, as windows are shorter than what it would come to.
func (f *follower) wait(s *buildSlot) error {
	s.delay = min(2*s.delay, retryMax)
	if f.kernel.paused {
		s.delay = pausedLook
	}
	f.buildLater(s, s.delay)
	return nil
}

// stepBuild takes a library's builders one step on.
func (f *follower) stepBuild(s *buildSlot) error {
	counts, err := f.kernel.buildCounts(s)
	if err != nil {
		return err
	}
	switch s.state {
	case buildLearning:
		if counts.Learned < learnBrackets {
			return f.wait(s)
		}
		if s.beginAt, err = bracketBegin(counts.NotBegin, counts.NotCount); err != nil {
			return f.keepSetters(s, err)
		}
		return f.enter(s, buildComparing)
	case buildComparing:
		switch {
		case counts.Differed > 0:
			return f.keepSetters(s, fmt.Errorf("the send queue told something else in %d of %d posts",
				counts.Differed, counts.Agreed+counts.Differed))
		case counts.Agreed < compareBrackets || f.kernel.paused:
			return f.wait(s)
		}
		if err := f.enter(s, buildClosing); err != nil {
			return err
		}
		waitForPrograms() // one may have read the old mode and not left its mark yet
		return nil
	case buildClosing:
		return f.closeSetters(s)
	case buildReading:
		switch {
		case counts.Unfit == 0:
			f.buildLater(s, buildCheck)
			return nil
		case f.kernel.paused:
			return f.wait(s)
		}
		return f.putSettersBack(s, counts)
	}
	return nil
}

// bracketBegin says which word in front of the send queue is the index at which a
// bracket began, from the words that were not it, and those that were not the
// number of its work requests.
func bracketBegin(notBegin, notCount uint32) (uint32, error) {
	if n := bits.OnesCount32(^notBegin); n != 1 {
		return 0, fmt.Errorf("%d words could be the one that says where a post begins", n)
	}
	at := bits.TrailingZeros32(^notBegin)
	if at < buildCountAt || notCount&(1<<(at-buildCountAt)) != 0 {
		return 0, errors.New("the number of work requests is not where it was in all releases")
	}
	return uint32(at), nil
}

// keepSetters leaves the builders to their probes. A bracket that began while they
// were read is read to its end.
func (f *follower) keepSetters(s *buildSlot, why error) error {
	s.state, s.why = buildKept, why.Error()
	f.log().Debug("builders", "pid", s.attach.pid, "library", s.library.Path, "kept at the setters", s.why)
	return f.kernel.setBuild(s, s.mode(), s.beginAt)
}

// closeSetters takes the setters' probes out once no bracket is under way that needs them.
func (f *follower) closeSetters(s *buildSlot) error {
	n, err := f.kernel.pending(bpf.RdmaProgBuildsFound, bpf.RdmaVarPendingBuild, bpf.RdmaVarBuildsPending, s.index)
	if err != nil {
		return err
	}
	if n > 0 {
		return f.wait(s)
	}
	s.state = buildReading
	f.buildLater(s, buildCheck)
	var out []link.Link
	s.attach.data = slices.DeleteFunc(s.attach.data, func(b *batch) bool {
		if b.setters == s {
			out = append(out, b.links...)
		}
		return b.setters == s
	})
	if err := f.links.drop(out...); err != nil {
		return fmt.Errorf("take the probes of setters out of process %d: %w", s.attach.pid, err)
	}
	s.attach.settersOut(s)
	f.log().Debug("builders", "pid", s.attach.pid, "library", s.library.Path, "setters", "cost nothing")
	return nil
}

// putSettersBack returns to the setters: the send queue was not as it had been.
// Brackets that begin before they are all in are read still.
func (f *follower) putSettersBack(s *buildSlot, counts bpf.RdmaBuildCounts) error {
	why := fmt.Errorf("the send queue could not be read in %d of %d posts", counts.Unfit, counts.Unfit+counts.Read)
	fns := s.attach.setters(s)
	for key := range s.attach.done {
		if isSetterOf(fns, s, key) {
			delete(s.attach.done, key)
		}
	}
	s.state = buildKept // attach leaves out the setters of what is read
	if _, err := s.attach.attach(fns); err != nil {
		s.state = buildReading // what can be read is better than nothing; it is not looked at any more
		return fmt.Errorf("put the probes of setters into process %d again, as %w: %w", s.attach.pid, why, err)
	}
	return f.keepSetters(s, why)
}

// setters are the functions of the slot that the WQEs tell of.
func (a *attacher) setters(s *buildSlot) (out locate.Functions) {
	for _, fn := range a.functions {
		if fn.Library != nil && fn.Library.FileID == s.library.FileID && isSetter(fn.Verb) && !slices.Contains(out, fn) {
			out = append(out, fn)
		}
	}
	return out
}

func isSetterOf(fns locate.Functions, s *buildSlot, key siteKey) bool {
	return key.dev == s.library.Dev && key.ino == s.library.Ino && slices.Contains(setterPrograms, key.program) &&
		slices.ContainsFunc(fns, func(fn locate.Function) bool { return fn.Offset == key.offset })
}

// settersOut says in the list of probes what became of the setters'.
func (a *attacher) settersOut(s *buildSlot) {
	fns := a.setters(s)
	for i := range a.probes {
		if r := &a.probes[i]; isSetterOf(fns, s, r.key) {
			r.probe.Source += "; taken out when the send queue was seen to tell the same"
			r.probe.Removed = true
		}
	}
}

// proofs are the libraries whose builders are being learned.
func (a *attacher) proofs() (all []*buildSlot) {
	for _, s := range a.builds {
		if s.state == buildLearning || s.state == buildComparing {
			all = append(all, s)
		}
	}
	return all
}

// buildCosts say of each library with builders in use what a post costs, and why.
func (tg *target) buildCosts() (out []string) {
	if tg.attach == nil {
		return nil
	}
	for _, s := range tg.attach.builds {
		switch {
		case s.reads():
			out = append(out, fmt.Sprintf("posts by builders cost three traps in %s: the send queue tells what was built", s.library.Path))
		case tg.attach.setterHits(s) >= manyPolls:
			out = append(out, fmt.Sprintf("each call of a builder costs a trap in %s: %s", s.library.Path, s.whySetters()))
		}
	}
	return out
}

func (s *buildSlot) whySetters() string {
	switch s.state {
	case buildKept:
		return s.why
	case buildIdle:
		return "where its send queues are could not be learned"
	}
	return "too few posts came to prove that the send queue tells the same"
}

func (a *attacher) setterHits(s *buildSlot) (n uint64) {
	fns := a.setters(s)
	for i := range a.probes {
		if r := &a.probes[i]; isSetterOf(fns, s, r.key) {
			n += a.kernel.hits(r)
		}
	}
	return n
}
