package attribution

// A doubt about done is worth showing when it exceeds both.
const (
	doubtNS    = 1000
	doubtShare = 10 // latency / doubtShare
)

// cut makes the segments of m: [post_begin, reap] without gap or overlap, for
// receives [done, reap].
//
// Up to post_end the posting thread is walked, then it is wire until done, then
// the reaping thread is walked. What is not known to be before or after done is
// undecided, unless it is short or inside the posting call, where the thread
// that reaps could not have known.
func (e *Engine) cut(m *measured, p *pending, c *verbRecord, cq *completionQueue) {
	w := &e.walker
	w.segments = m.segments
	same := !m.receive && m.postTID == m.reapTID
	doubtful := func(low, high uint64) (from, to uint64, is bool) {
		if same {
			low, high = max(low, min(m.postEnd, m.reap)), max(high, min(m.postEnd, m.reap))
		}
		latency := m.reap - m.postBegin
		if m.receive {
			latency = m.reap - low
		}
		return low, high, isDoubtful(high-low, latency)
	}
	_, _, m.uncertain = doubtful(m.doneLow, m.doneHigh)
	low, high, open := doubtful(m.likelyLow, m.likelyHigh)
	wireEnd, from := m.done, m.done
	if open {
		wireEnd, from = low, high
	}
	if m.receive {
		m.done = wireEnd
	} else {
		submitEnd := min(m.postEnd, wireEnd)
		e.submitted(p, m, submitEnd)
		w.emit(submitEnd, wireEnd, WireUnsplit, nil, 0, -1)
	}
	w.emit(wireEnd, from, CauseUndecided, nil, 0, -1)
	w.submitEnd = 0
	if same {
		w.submitEnd = m.postEnd
	}
	m.waitsFrom = from
	e.reaped(m, c, cq, from)
	m.segments, w.segments = w.segments, nil
}

func isDoubtful(doubt, latency uint64) bool {
	return doubt > doubtNS && doubt > latency/doubtShare
}

// submitted puts [post_begin, end], a part of the posting call.
func (e *Engine) submitted(p *pending, m *measured, end uint64) {
	w := &e.walker
	if p.submit == 0 {
		w.emit(m.postBegin, end, Submit, nil, p.tid, int32(p.cpu))
		return
	}
	for _, s := range e.submits.segments(p.submit) {
		s.begin, s.end = max(s.begin, m.postBegin), min(s.end, end)
		w.segments = appendSegment(w.segments, s)
	}
}

// reaped walks [from, reap] on the threads that could have reaped.
func (e *Engine) reaped(m *measured, c *verbRecord, cq *completionQueue, from uint64) {
	w := &e.walker
	w.cq, w.running, w.reapBegin = cq, LatePoll, m.reap
	if c.Begin != 0 && c.Begin <= c.time {
		w.reapBegin = c.Begin
	}
	reaper := e.threads.thread(c.pid, c.tid)
	m.pollers = 1
	others := e.others[:0]
	for i := range cq.pollers {
		if p := &cq.pollers[i]; p.tid != c.tid && p.polledLately(m.done) {
			m.pollers++
			if th := e.threads.known(p.tid); th != nil {
				others = append(others, th)
			}
		}
	}
	e.others = others
	if len(others) == 0 || from >= m.reap {
		w.thread(reaper, from, m.reap)
		return
	}
	e.compete(reaper, others, from, m.reap)
}

// compete walks several threads and charges, at each instant, the one that was
// most available; of equals the one that reaped.
func (e *Engine) compete(reaper *thread, others []*thread, from, to uint64) {
	w := &e.walker
	out := w.segments
	lanes := e.lanes[:0]
	for i := range len(others) + 1 {
		th := reaper
		if i > 0 {
			th = others[i-1]
			w.reapBegin, w.submitEnd = never, 0
		}
		if i < cap(lanes) {
			lanes = lanes[:i+1]
		} else {
			lanes = append(lanes, lane{})
		}
		w.segments = lanes[i].segments[:0]
		w.thread(th, from, to)
		lanes[i] = lane{segments: w.segments}
	}
	e.lanes = lanes
	for at := from; at < to; {
		best, end := -1, to
		for i := range lanes {
			l := &lanes[i]
			for l.next+1 < len(l.segments) && l.segments[l.next].end <= at {
				l.next++
			}
			end = min(end, l.segments[l.next].end)
			if best < 0 || l.rank() > lanes[best].rank() {
				best = i
			}
		}
		s := lanes[best].segments[lanes[best].next]
		s.begin, s.end = at, end
		out = appendSegment(out, s)
		at = end
	}
	w.segments = out
}

// lane is the walk of one of several threads.
type lane struct {
	segments []segment
	next     int
}

// rank of what the thread does: the higher the closer it is to a poll.
func (l *lane) rank() int { return availability[l.segments[l.next].cause] }

var availability = [numCauses]int{
	Submit:    5,
	LatePoll:  5,
	Reap:      5,
	Probe:     5,
	IRQOnTop:  4,
	Runqueue:  3,
	Preempted: 3,
	Yielded:   3,
	Throttled: 3,
	Handler:   2,
	Delivery:  2,
	Handoff:   2,
	OwnSleep:  1,
}

// chargeProbes takes what our own traps in posts and polls took out of the segments
// they ran in.
func (e *Engine) chargeProbes(m *measured, p *pending, c *verbRecord) {
	if e.costInPost > 0 && p.traps > 0 && !m.receive {
		traps := uint64(max(0, int(p.traps)-2))
		m.segments = chargeProbe(m.segments, e.costInPost+traps*e.costTrap, Submit)
	}
	if e.costTrap > 0 && c.Traps > 0 {
		m.segments = chargeProbe(m.segments, uint64(c.Traps)*e.costTrap, Reap)
	}
}

// chargeProbe turns the end of the longest segment of a cause into probe.
func chargeProbe(segments []segment, ns uint64, from Cause) []segment {
	longest := -1
	for i := range segments {
		if segments[i].cause == from && (longest < 0 || segments[i].length() > segments[longest].length()) {
			longest = i
		}
	}
	if longest < 0 || ns == 0 {
		return segments
	}
	s := &segments[longest]
	if ns >= s.length() {
		s.cause = Probe
		return segments
	}
	probe := *s
	s.end -= ns
	probe.begin, probe.cause = s.end, Probe
	segments = append(segments, segment{})
	copy(segments[longest+2:], segments[longest+1:])
	segments[longest+1] = probe
	return segments
}

func (s *segment) length() uint64 { return s.end - s.begin }
