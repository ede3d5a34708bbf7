package tracer

import (
	"errors"
	"slices"

	"github.com/cilium/ebpf/link"
)

// putBack attaches a batch again after a pause. Where one of its sites spoils that
// for all, each gets its own chance: without has the functions whose return could
// not be probed, at whose entries a probe would begin calls that never end. What is
// missing is tried again after the next pause.
func (a *attacher) putBack(b *batch, without map[siteKey]bool) error {
	file, ex, err := openLibrary(b.library, a.pid)
	if err != nil {
		a.told(b, err)
		return err
	}
	defer file.Close()
	noReturn := func(s site) bool { return !b.ret && without[pairKey(b, s)] }
	whole := b.only(func(s site) bool { return !noReturn(s) })
	a.told(b.only(noReturn), errNoReturn)
	b.links, err = a.attachSome(ex, whole)
	for _, s := range whole.sites {
		if err == nil {
			a.told(whole, nil)
			break
		}
		one := b.only(func(o site) bool { return o.offset == s.offset })
		ls, err := a.attachSome(ex, one)
		b.links = append(b.links, ls...)
		a.told(one, err)
		if err != nil && b.ret {
			without[pairKey(b, s)] = true
		}
	}
	a.links.add(b.links...)
	if b.slot != nil {
		b.slot.links[b.program] = b.links
	}
	return err
}

// attachSome attaches a batch that may be empty.
func (a *attacher) attachSome(ex *link.Executable, b *batch) ([]link.Link, error) {
	if len(b.sites) == 0 {
		return nil, nil
	}
	return a.attachBatch(ex, b)
}

var errNoReturn = errors.New("after a pause its return could not be probed again")

var errSitesOut = errors.New("where it consumes completions, probes could not be placed again after a pause")

// missing says that some of a poll function's sites could not be probed.
func (a *attacher) missing(s *pollSlot) bool {
	return slices.ContainsFunc(a.probes, func(r siteReport) bool {
		return r.key.program == s.site() && s.owns(r.key) && r.probe.Error != ""
	})
}

// checkPutBack leaves a poll function to its entry and its return, or returns to
// them, if some of its sites are out: completions that pass there are seen at no
// other, in a trial as well.
func (f *follower) checkPutBack(s *pollSlot) error {
	if !s.attach.missing(s) {
		return nil
	}
	switch s.state {
	case pollTrying, pollAligning: // the others on the way to pollSites are not interrupted by a pause
		s.suspend()
		return f.keepPoll(s, errSitesOut)
	case pollSites:
		return f.observeWhole(s, errSitesOut)
	}
	return nil
}

// pairKey is of a function, whose entry and return two programs observe.
func pairKey(b *batch, s site) siteKey {
	return siteKey{dev: b.library.Dev, ino: b.library.Ino, offset: s.fn.Offset}
}

// only is the batch with some of its sites, not attached.
func (b *batch) only(which func(site) bool) *batch {
	some := *b
	some.links = nil
	some.sites = slices.DeleteFunc(slices.Clone(b.sites), func(s site) bool { return !which(s) })
	return &some
}

// told keeps for the Context what came of a batch's sites; nil: they are in.
func (a *attacher) told(b *batch, err error) {
	for _, s := range b.sites {
		key := a.key(b, s)
		i := slices.IndexFunc(a.probes, func(r siteReport) bool { return r.key == key })
		if i < 0 {
			continue
		}
		a.probes[i].probe.Error = ""
		if err != nil {
			a.probes[i].probe.Error = probeError(err)
		}
	}
}
