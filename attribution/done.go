package attribution

import "github.com/rdmatrace/rdmatrace/event"

// locate finds out when m was done, and between which times it was for certain.
//
// It was not before its post, nor sooner after it than any like it; not before
// the latest poll that found the CQ empty, and not before what the same thread
// reaped from that CQ earlier: CQEs become visible in order. It was not after
// its reap. Inside these bounds the
// best of the following is taken: the time stamp in the CQE; the interrupt or
// the wakeup that ended a sleep on the CQ; what was typical in cases with
// narrow bounds.
func (e *Engine) locate(m *measured, c *verbRecord, cq *completionQueue) {
	low, high := m.postBegin, m.reap
	m.doneSource = DoneBounded
	if c.emptySeen() && c.LastEmpty > low {
		low = c.LastEmpty
		m.doneSource = DoneBracket
	}
	kind := e.flights.of(m)
	low = max(low, min(m.postBegin+kind.known(fromPolls).least(), high))
	m.doneLow = max(low, min(m.postBegin+kind.known(fromStamps).least(), high))
	m.doneHigh = high
	if cq.orderTID != c.tid {
		cq.orderTID, cq.doneLow = c.tid, 0
	}
	m.doneLow = max(m.doneLow, min(cq.doneLow, high))
	switch {
	case e.stamped(m, c, kind, low):
	case e.interruptedSleep(m, c, kind, cq):
	default:
		m.expect(c, kind)
	}
	cq.doneLow = max(cq.doneLow, m.doneLow)
}

// foreignEmpty: an empty poll of another thread so long before this poll began
// was over by then. Else this poll may have taken the completion that the other
// did not find, and it proves nothing.
const foreignEmpty = 20_000

// emptySeen says that the CQ is known to have been empty at LastEmpty.
func (c *verbRecord) emptySeen() bool {
	switch {
	case c.flags&event.CompletionNoEmpty != 0, c.LastEmpty == 0, c.LastEmpty > c.time:
		return false
	case c.LastEmptyTID == c.tid, c.LastEmptyTID == 0:
		return true
	}
	return c.LastEmpty+foreignEmpty < c.Begin
}

// stamped uses the time stamp in the CQE. low is the bound that does not rest
// on time stamps itself.
func (e *Engine) stamped(m *measured, c *verbRecord, kind *flightKind, low uint64) bool {
	if c.flags&event.CompletionHWTime == 0 || c.Status != 0 {
		return false
	}
	clock := e.clockOf(m.qp)
	from, to, ok := clock.convert(c.HWTime)
	clock.observe(c.HWTime, low, m.doneHigh)
	if !ok || from > m.doneHigh || to < m.doneLow {
		return false
	}
	sharper := to-from <= m.doneHigh-m.doneLow || to-from <= doubtNS
	m.doneLow, m.doneHigh = max(from, m.doneLow), min(to, m.doneHigh)
	if !sharper {
		return false
	}
	m.done = middle(m.doneLow, m.doneHigh)
	m.doneSource = DoneCQE
	m.teach(kind, fromStamps)
	return true
}

func middle(a, b uint64) uint64 { return a + (b-a)/2 }

// interruptedSleep uses that the reaping thread, or a dispatcher that woke it,
// slept on the CQ and was woken since the last bound: done is taken to be the
// entry of the handler, or the wakeup where it came from a task. What passes
// between the CQE and the handler (moderation, an idle CPU's exit) is not seen.
// Where that is usual it looks like wire; where it is more than usual for this
// kind of work request, the surplus is doubt.
//
// Only the first completion after the wakeup caused it.
func (e *Engine) interruptedSleep(m *measured, c *verbRecord, kind *flightKind, cq *completionQueue) bool {
	th := e.threads.known(c.tid)
	if th == nil || th.spans.len() < 2 || th.spans.last().begin <= m.doneLow {
		return false
	}
	e.walker.cq = cq
	up, ok := e.walker.lastWake(th, m.doneLow, m.reap, 0)
	if !ok || up == nil || cq.latestReap >= up.time {
		return false
	}
	at := up.time
	if up.interrupt != event.InterruptNone {
		at = up.interruptBegin
	}
	at = min(max(at, m.doneLow), m.doneHigh)
	most, known := kind.known(fromInterrupts).usual()
	m.doneSource = DoneInterrupt
	m.done = at
	m.doneHigh = at
	if known {
		m.doneLow = max(m.doneLow, min(at, m.postBegin+most))
	} else {
		m.doneLow = at
	}
	kind.learn(fromInterrupts, at-m.postBegin, at-m.postBegin)
	return true
}

// expect uses what is typical, if narrow bounds or time stamps taught it.
func (m *measured) expect(c *verbRecord, kind *flightKind) {
	if m.doneSource == DoneBounded && c.flags&event.CompletionNoEmpty == 0 {
		kind.known(fromPolls).miss()
	}
	if width := m.doneHigh - m.doneLow; !isDoubtful(width, m.reap-m.postBegin) {
		// The poll that found it empty and the one that found it look at the
		// CQE equally late after their entries.
		high := m.doneHigh
		if c.Begin > m.doneLow && c.Begin < high {
			high = middle(c.Begin, high)
		}
		m.done = middle(m.doneLow, high)
		if m.doneSource == DoneBracket {
			m.teach(kind, fromPolls)
		}
		return
	}
	// What is typical narrows it only where the CQ was looked at after the
	// post: it had not come then, and it may be a slow one if nobody looked.
	most, known := kind.known(fromPolls).most()
	if known && m.doneSource == DoneBracket && m.postBegin+most >= m.doneLow {
		m.doneHigh = min(m.doneHigh, m.postBegin+most)
	}
	m.done = middle(m.doneLow, m.doneHigh)
}

// teach how long this kind of work request is in flight.
func (m *measured) teach(kind *flightKind, source flightSource) {
	if !isDoubtful(m.doneHigh-m.doneLow, m.reap-m.postBegin) {
		kind.learn(source, m.doneLow-m.postBegin, m.doneHigh-m.postBegin)
	}
}
