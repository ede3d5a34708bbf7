package attribution

import "github.com/rdmatrace/rdmatrace/event"

// observe hands a settled work request to Config.Observe. What is only known at
// the end of the window, such as the names of threads, is left out.
func (a *aggregates) observe(m *measured, segments []segment) {
	names := newNaming(&event.Context{Host: event.Host{Arch: a.cfg.Arch}})
	w := a.describe(m, names)
	out := make([]Segment, 0, len(segments))
	for i := range segments {
		s := &segments[i]
		out = append(out, Segment{Cause: s.cause, Begin: s.begin, End: s.end, Who: names.culprit(s.who), TID: s.tid, CPU: int32(s.cpu)})
	}
	a.cfg.Observe(&w, out)
}
