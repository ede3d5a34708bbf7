package tracer

import (
	"errors"
	"fmt"
	"time"

	"github.com/rdmatrace/rdmatrace/bpf"
	"github.com/rdmatrace/rdmatrace/tracer/locate"
)

// What the sites of a poll function are looked at for, and how often.
const (
	sitesCheck = time.Second
	// fewTimeless completions without a time say nothing; then, one in
	// timelessShare is too many.
	fewTimeless   = 16
	timelessShare = 50
	// fewMissed completions that passed no site may be what libmlx5 takes from the
	// queue for itself: at a resize, or an error.
	fewMissed = 8
	// fewLooks in a time of sitesCheck, with more completions than that, are too
	// few, if it goes on for blindChecks.
	fewLooks    = 16
	blindChecks = 3
)

// siteCounts is what the programs counted of a poll function whose sites report.
type siteCounts struct {
	taken    uint32 // completions
	unfit    uint32 // hits that were none
	timeless uint32 // completions whose entry could not be read
	missed   uint32 // completions that passed no site, by the consumer's index at the next that did
	looks    uint32 // at the queues, between completions
	behind   uint32 // those that saw the consumer's index beyond what had passed a site
}

// each calls fn with what the counts are called in the programs.
func (c *siteCounts) each(fn func(name string, count *uint32)) {
	fn(bpf.RdmaVarPollTaken, &c.taken)
	fn(bpf.RdmaVarPollUnfit, &c.unfit)
	fn(bpf.RdmaVarPollTimeless, &c.timeless)
	fn(bpf.RdmaVarPollMissed, &c.missed)
	fn(bpf.RdmaVarPollLooks, &c.looks)
	fn(bpf.RdmaVarPollBehind, &c.behind)
}

func (k *kernel) siteCounts(s *pollSlot) (c siteCounts, err error) {
	base := map[string]uint32{}
	s.base.each(func(name string, count *uint32) { base[name] = *count })
	c.each(func(name string, count *uint32) {
		n, e := k.pollCount(name, s)
		*count, err = n-base[name], errors.Join(err, e)
	})
	return c, err
}

// siteWatch is how the sites of a poll function do.
type siteWatch struct {
	written bool // the kernel was seen to write the entries
	last    siteCounts
	blind   int // checks in a row with too few looks
}

// look takes the counts of a check, and says why polls have to be observed at
// entry and return instead; nil: they need not.
//
// The sites report no empty polls. What takes their place is the time in the
// completion's entry, and to align the device's clock, which wrote it, looks at
// the queue whenever its threads are interrupted. Where one of them is missing
// nothing tells wire from a late poll. Where the kernel writes the entries their
// times are known: they are read to check that the hits are their completions.
func (w *siteWatch) look(now siteCounts) error {
	taken, looks := now.taken-w.last.taken, now.looks-w.last.looks
	w.last = now
	if w.written || looks >= fewLooks || looks >= taken {
		w.blind = 0
	} else {
		w.blind++
	}
	switch {
	case now.unfit > 0:
		return fmt.Errorf("%d hits on the path that had been learned were no completions; some may have been missed", now.unfit)
	case now.missed >= fewMissed:
		return fmt.Errorf("%d completions did not pass the path that had been learned, beside %d that did", now.missed, now.taken)
	case now.behind >= fewMissed:
		return errors.New("completions do not pass the path that had been learned any more")
	case now.timeless >= fewTimeless && now.timeless >= now.taken/timelessShare:
		return fmt.Errorf("the entries of %d of %d completions could not be read, %s", now.timeless, now.taken, w.use())
	case w.blind >= blindChecks:
		return errors.New("its threads are hardly ever interrupted, so that nothing else shows when a completion was not there yet")
	}
	return nil
}

// use is what entries are read for.
func (w *siteWatch) use() string {
	if w.written {
		return "which show that it consumes them there"
	}
	return "which have the times that take the place of empty polls"
}

// checkSites goes back to entry and return if the sites alone don't do. Where some
// completions pass none it cannot be told which function of the library took them.
func (f *follower) checkSites(s *pollSlot) error {
	now, err := f.kernel.siteCounts(s)
	if err != nil {
		return err
	}
	why := s.watch.look(now)
	if why == nil {
		f.stepLater(s, sitesCheck)
		return nil
	}
	errs := []error{f.observeWhole(s, why)}
	for _, other := range s.attach.polls {
		if other.state == pollSites && other.library.FileID == s.library.FileID && now.missed+now.behind >= fewMissed {
			errs = append(errs, f.observeWhole(other, why))
		}
	}
	return errors.Join(errs...)
}

// observeWhole puts a poll function's entry and return back for good. A poll that
// began before they were in is reported by the sites, which stay for a while.
func (f *follower) observeWhole(s *pollSlot, why error) error {
	f.kernel.polls.unlearn(s)
	if err := f.kernel.forgetPolls(s); err != nil {
		return err
	}
	s.attach.forget(s, s.enter(), s.exit())
	if _, err := s.attach.attach(locate.Functions{s.fn}); err != nil {
		f.stepLater(s, sitesCheck)
		return err // the sites are better than nothing
	}
	s.state, s.why, s.delay, s.left = pollLeaving, why.Error(), 0, true
	f.stepLater(s, sitesCheck)
	return f.kernel.setPoll(s, func(e *bpf.RdmaPollSlot) { e.Mode, e.Alone = uint32(bpf.RdmaPollModePOLL_LEAVE), 0 })
}

// leaveSites takes the sites out as soon as no poll is under way that began, with
// its entry seen, while they reported.
func (f *follower) leaveSites(s *pollSlot) error {
	n, err := f.kernel.pollsAtSites(s)
	if err != nil {
		return err
	}
	if n > 0 {
		f.retry(s)
		return nil
	}
	return f.keepPoll(s, errors.New(s.why))
}
