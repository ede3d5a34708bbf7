package tracer

import (
	"fmt"

	"github.com/rdmatrace/rdmatrace/tracer/locate"
)

// manyPolls: how a function is observed that was called less often matters little.
const manyPolls = 1000

// pollCosts say of each poll function in use what its empty polls cost, and why.
func (tg *target) pollCosts() []string {
	if tg.attach == nil {
		return nil
	}
	var out []string
	for _, s := range tg.attach.polls {
		name := fmt.Sprintf("%s+%#x", s.library.Path, s.fn.Offset)
		why := s.whyObserved()
		switch {
		case s.state >= pollLearned && s.state <= pollSites:
			out = append(out, fmt.Sprintf("empty polls cost nothing in %s: completions are seen where it consumes them", name))
		case s.state >= pollLeaving || tg.attach.hits(s, s.enter()) >= manyPolls:
			out = append(out, fmt.Sprintf("empty polls cost two traps each in %s: %s", name, why))
		}
	}
	return out
}

// pollDoubts say of which completions may be missing, or badly dated: those of functions
// at whose sites they were seen until that would not do.
func (tg *target) pollDoubts() (out []string) {
	if tg.attach == nil {
		return nil
	}
	for _, s := range tg.attach.polls {
		if s.left {
			out = append(out, fmt.Sprintf("completions may have been missed, or badly dated, until %s+%#x was observed at its entry and return again: %s",
				s.library.Path, s.fn.Offset, s.why))
		}
	}
	return out
}

// whyObserved says why a function is observed at entry and return.
func (s *pollSlot) whyObserved() string {
	switch {
	case s.state >= pollLeaving:
		return s.why
	case s.state == pollTrying:
		return "too few completions came to learn the path that consumes them"
	case s.state == pollAligning:
		return "so short a trace needs them to align the device's clock"
	case s.state == pollUnused && s.library.Role&locate.RoleMLX5 == 0:
		return "the kernel was not seen to write the entries of its completions, the times are told by them alone"
	case s.library.Role&locate.RoleMLX5 == 0:
		return "the times at which its completions came are told by them alone"
	}
	return "where the times in its completions' entries are could not be learned"
}

// hits counts those of one of the slot's programs.
func (a *attacher) hits(s *pollSlot, program string) (n uint64) {
	for i := range a.probes {
		if r := &a.probes[i]; s.owns(r.key) && r.key.program == program {
			n += a.kernel.hits(r)
		}
	}
	return n
}

// owns says that a probe is one of the slot's.
func (s *pollSlot) owns(key siteKey) bool {
	return key.dev == s.library.Dev && key.ino == s.library.Ino && (key.offset == s.fn.Offset || s.hasSite(key.offset))
}

// resource says in the list of probes where the sites of a slot come from.
func (a *attacher) resource(s *pollSlot, source string) {
	for i := range a.probes {
		if r := &a.probes[i]; r.key.program == s.site() && s.owns(r.key) {
			r.probe.Source = source
		}
	}
}

// outdated says in the list of probes that entry and return were taken out.
func (a *attacher) outdated(s *pollSlot) {
	for i := range a.probes {
		r := &a.probes[i]
		if s.owns(r.key) && (r.key.program == s.enter() || r.key.program == s.exit()) {
			r.probe.Source, r.probe.Removed = s.fn.Source+"; taken out when the path was learned", true
		}
	}
}
