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
	looks    uint32 // at the queues, between completions
}

func (k *kernel) siteCounts(s *pollSlot) (c siteCounts, err error) {
	for _, one := range []struct {
		name string
		into *uint32
	}{
		{bpf.RdmaVarPollTaken, &c.taken}, {bpf.RdmaVarPollUnfit, &c.unfit},
		{bpf.RdmaVarPollTimeless, &c.timeless}, {bpf.RdmaVarPollLooks, &c.looks},
	} {
		if *one.into, err = k.pollCount(one.name, s); err != nil {
			return c, err
		}
	}
	c.taken, c.unfit, c.timeless, c.looks = c.taken-s.base.taken, c.unfit-s.base.unfit, c.timeless-s.base.timeless, c.looks-s.base.looks
	return c, nil
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

// checkSites goes back to entry and return if the sites alone don't do.
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
	return f.observeWhole(s, why)
}

// observeWhole puts a poll function's entry and return back for good.
func (f *follower) observeWhole(s *pollSlot, why error) error {
	f.kernel.polls.unlearn(s)
	s.attach.forget(s, s.enter(), s.exit())
	if _, err := s.attach.attach(locate.Functions{s.fn}); err != nil {
		return err // the sites are better than nothing
	}
	return f.keepPoll(s, why)
}
