package attribution

// promptNS: a thread that reaps within this time on the CPU since done was
// polling, even where empty polls are not observed.
const promptNS = 2000

// demandOf says whether anybody was seen to need m's completion.
//
// waited: receives; a thread slept on the CQ at done; it had been looked for,
// which an empty poll since the post shows; or it was reaped as soon as its
// thread had the CPU. dependent: the send queue was full. That it had run dry
// and this reap led to the next post is seen later, see hand.
func (e *Engine) demandOf(m *measured, q *workQueue, c *verbRecord) Demand {
	var onCPU uint64
	for i := range m.segments {
		s := &m.segments[i]
		if s.begin < m.done {
			continue
		}
		switch s.cause {
		case Delivery, Handler, Handoff:
			return Waited
		case LatePoll, Reap, Probe:
			onCPU += s.length()
		case OwnSleep:
			onCPU = never / 2
		}
	}
	switch {
	case m.receive, m.lookedFor(c), !m.uncertain && onCPU <= promptNS && m.done >= m.postEnd:
		return Waited
	case q != nil && (q.blocked || m.qp.maxSendWR > 0 && q.depth() >= int32(m.qp.maxSendWR)):
		return Dependent
	}
	return Unproven
}

// lookedFor says that a poll found the CQ empty after the post. That our own
// programs found it so says nothing of anybody's need.
func (m *measured) lookedFor(c *verbRecord) bool {
	return c.emptySeen() && c.LastEmptyTID != 0 && c.LastEmpty >= m.postEnd
}

// undemandedWR is a measured WR whose demand the queue pair's next post will tell.
type undemandedWR struct {
	m       measured
	waiting bool
}

// followUp: a thread that posts within this time after a reap that left the
// queue empty, without having slept, had waited for it.
const followUp = 20_000

// hand gives m to the sink. If nobody was seen to need it, but it leaves the
// queue empty, its reap may lead to the next post: it is held until then.
func (e *Engine) hand(m *measured, q *workQueue) {
	h := m.qp.undemanded
	e.letGo(m.qp, 0, 0)
	if q == nil || m.receive || m.demand != Unproven || q.len() > int(m.retired)+1 {
		e.handOn(m)
		return
	}
	if h == nil {
		h = new(undemandedWR)
		m.qp.undemanded = h
	}
	segments := append(h.m.segments[:0], m.segments...)
	h.m = *m
	h.m.segments = segments
	h.waiting = true
}

// letGo hands on what is held of a queue pair, on which tid now posts at t.
func (e *Engine) letGo(qp *queuePair, tid uint32, t uint64) {
	h := qp.undemanded
	if h == nil || !h.waiting {
		return
	}
	h.waiting = false
	if h.m.reapTID == tid && t >= h.m.reap && t-h.m.reap <= followUp && !e.threads.sleptSince(tid, h.m.reap) {
		h.m.demand = Dependent
	}
	e.handOn(&h.m)
}

// handOn gives m, whose demand is known, to all who sum it up.
func (e *Engine) handOn(m *measured) {
	e.keptWaiting(m)
	e.out.add(m)
}

// sleptSince says whether a thread slept after t.
func (tl *timelines) sleptSince(tid uint32, t uint64) bool {
	th := tl.known(tid)
	if th == nil {
		return false
	}
	for seq := th.spans.next; seq > th.spans.first; seq-- {
		s := th.spans.at(seq - 1)
		if s.begin < t {
			break
		}
		if s.state == stateAsleep {
			return true
		}
	}
	return false
}
