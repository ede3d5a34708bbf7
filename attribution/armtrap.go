package attribution

import "github.com/rdmatrace/rdmatrace/event"

// A thread that arms a completion queue runs into our probe of ibv_req_notify_cq, mostly
// between its waking and its poll: while a completion waits. The kernel single-steps it in
// most providers, whose functions have no branch; that takes longer than all else there.

// armTrap is such a trap of a thread. It takes so much of the time that the thread runs.
type armTrap struct{ begin, cost uint64 }

func (a *armTrap) beganAt() uint64 { return a.begin }

// armTrapStale is how long after a trap began nobody asks any more what is left of it, ns.
const armTrapStale = 10_000_000

// trapped takes a KindArm.
func (e *Engine) trapped(th *thread, r *verbRecord) {
	if r.Traps == 0 {
		return // it came to be known without one
	}
	cost := e.costTrap
	if r.flags&event.ArmStepped != 0 {
		cost = e.costStepped
	}
	if cost == 0 {
		e.met.unpriced++
		return
	}
	makeRoom(&th.traps, func(i uint64) uint64 { return th.traps.at(i).begin + armTrapStale }, e.threads.need)
	th.traps.push(armTrap{r.time, cost})
}

// charge appends the segments of w.plain, which cover [begin, end] of th, with its traps in
// them: from where one begins on, what the thread runs is the trap's as long as that takes.
// Where it is in a poll or a post, it has left the trap behind.
func (w *walker) charge(th *thread, begin, end uint64) {
	seq, ok := search(&th.traps, begin, (*armTrap).beganAt)
	var at armTrap
	switch {
	case !ok:
		seq = th.traps.first
	default:
		if at = *th.traps.at(seq); at.begin < begin {
			at.cost -= min(at.cost, w.ranBefore(th, at.begin, begin))
		}
		seq++
	}
	for _, s := range w.plain {
		for s.tid == th.tid && s.cause == LatePoll && s.begin < s.end {
			until := s.end // of what at is about
			if seq != th.traps.next {
				until = min(until, th.traps.at(seq).begin)
			}
			if until <= s.begin {
				at = *th.traps.at(seq)
				seq++
				continue
			}
			trap := s
			trap.cause, trap.end = Probe, min(s.begin+at.cost, until)
			at.cost -= trap.end - trap.begin
			w.segments = appendSegment(w.segments, trap)
			s.begin = trap.end
			rest := s
			rest.end = until
			w.segments = appendSegment(w.segments, rest)
			s.begin = until
		}
		w.segments = appendSegment(w.segments, s)
	}
}

// ranBefore is how long a thread ran in [begin, end], without what was on top of it; all
// of it, if that is long.
func (w *walker) ranBefore(th *thread, begin, end uint64) (ns uint64) {
	if end-begin >= armTrapStale {
		return end - begin
	}
	out := w.segments
	w.segments = w.before[:0]
	w.doings(th, begin, end)
	w.before, w.segments = w.segments, out
	for i := range w.before {
		if s := &w.before[i]; s.tid == th.tid && isRunning(s.cause) {
			ns += s.end - s.begin
		}
	}
	return ns
}
