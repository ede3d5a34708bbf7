package attribution

import "github.com/rdmatrace/rdmatrace/event"

// locate finds out between which times m was done for certain, and when it most
// likely was.
//
// What bounds [doneLow, doneHigh] is proof: m was not done before its post, not
// before the latest poll that found the CQ empty, and not before what the same
// thread reaped from that CQ earlier, as CQEs become visible in order; it was
// done when it was reaped, and when the kernel told the CQ's channel of it. The time stamp in the CQE narrows that by what the
// clock's alignment proves.
//
// What others of its kind took proves nothing. It bounds [likelyLow, likelyHigh],
// which the cut goes by, and nothing that is said of m may be inherited from
// that. Inside, the best of the following is done: the time stamp, if the clock
// is aligned well enough (a program that sleeps looks at its CQ rarely, which
// bounds little); when the kernel began to write the CQE; the interrupt or the wakeup that ended a sleep on the CQ; the
// middle.
func (e *Engine) locate(m *measured, c *verbRecord, cq *completionQueue) {
	low := m.postBegin
	if m.unmatched {
		low = 0 // it may have been done before we looked
	}
	m.doneSource = DoneBounded
	if c.LastEmpty > low && e.provesEmpty(c) {
		low = c.LastEmpty
		m.doneSource = DoneBracket
	}
	m.doneHigh = m.reap
	m.doneLow = max(low, cq.order.before(c, m.doneHigh))
	if c.noticed > m.doneLow {
		m.doneHigh = min(m.doneHigh, c.noticed)
	}
	kind := e.flights.of(m)
	stamped := e.stamped(m, c, kind, low)
	switch {
	case stamped && !isDoubtful(m.doneHigh-m.doneLow, m.reap-m.postBegin):
	case m.writtenByKernel(c, kind):
	case e.interruptedSleep(m, c, kind, cq), stamped:
	default:
		m.expect(c, kind)
	}
	cq.order.follow(c, m.doneLow)
}

// reapOrder is what the order of completions proves of the next one that the same
// thread reaps.
type reapOrder struct {
	tid     uint32
	index   uint16
	reap    uint64
	doneLow uint64
}

// before gives the bound that the completions before c leave for it, 0: none. A
// bound that contradicts high proves nothing, and neither does what was reaped
// after c, where c had to wait for the return of its post call.
func (o *reapOrder) before(c *verbRecord, high uint64) uint64 {
	if o.tid != c.tid || o.follows(c) || o.doneLow > high {
		return 0
	}
	return o.doneLow
}

func (o *reapOrder) follows(c *verbRecord) bool {
	return o.reap > c.time || o.reap == c.time && o.index > c.Index
}

func (o *reapOrder) follow(c *verbRecord, doneLow uint64) {
	if o.tid != c.tid || !o.follows(c) {
		*o = reapOrder{c.tid, c.Index, c.time, doneLow}
	}
}

// foreignEmpty: an empty poll of another thread is over when that thread has run
// so long since, ns. If it was not over when this poll began, this poll may have
// taken the completion that the other did not find.
const foreignEmpty = 20_000

// emptySeen says that the CQ seems to have been empty at LastEmpty.
func (c *verbRecord) emptySeen() bool {
	switch {
	case c.flags&event.CompletionNoEmpty != 0, c.LastEmpty == 0, c.LastEmpty > c.time:
		return false
	case c.LastEmptyTID == c.tid, c.LastEmptyTID == 0:
		return true
	}
	return c.LastEmpty+foreignEmpty < c.Begin
}

// provesEmpty says that the completion was not there at LastEmpty.
func (e *Engine) provesEmpty(c *verbRecord) bool {
	if !c.emptySeen() {
		return false
	}
	return c.LastEmptyTID == c.tid || c.LastEmptyTID == 0 ||
		e.threads.ran(c.LastEmptyTID, c.LastEmpty, c.LastEmpty+foreignEmpty)
}

// stamped uses the time stamp in the CQE. low is the bound that does not rest
// on time stamps itself.
func (e *Engine) stamped(m *measured, c *verbRecord, kind *flightKind, low uint64) bool {
	if c.flags&event.CompletionHWTime == 0 || c.Status != 0 {
		return false
	}
	clock := e.clockOf(m.qp)
	from, to, ok := clock.meet(c.HWTime, low, m.doneHigh)
	if !ok || from > m.doneHigh || to < m.doneLow {
		return false
	}
	sharper := to-from <= m.doneHigh-m.doneLow || to-from <= doubtNS
	m.doneLow, m.doneHigh = max(from, m.doneLow), min(to, m.doneHigh)
	if !sharper {
		return false
	}
	m.likelyLow, m.likelyHigh = m.doneLow, m.doneHigh
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
// kind of work request, the surplus is in doubt.
//
// Only the first completion after the wakeup caused it, of the CQ whose event woke,
// or of all CQs on the channel where that is not known, and not if it was not there
// yet when the handler began.
//
// It bounds nothing for certain. A read also ends by a signal. The event may be
// that of a completion reaped earlier: a program that arms the CQ and then reaps
// what it holds (perftest, and the example in ibv_get_cq_event's manual) gets
// one for each, as mlx5 compares its consumer index with that of the arming. And
// a handler goes on with what comes after its entry (mlx5_eq_comp_int).
func (e *Engine) interruptedSleep(m *measured, c *verbRecord, kind *flightKind, cq *completionQueue) bool {
	th := e.threads.known(c.tid)
	if th == nil || th.spans.len() < 2 || th.spans.last().begin <= m.doneLow {
		return false
	}
	e.walker.cq = cq
	up, ok := e.walker.lastWake(th, m.doneLow, m.reap, 0)
	if !ok || up == nil || cq.latestReap >= up.time || up.isOthers(cq) || up.cq == 0 && cq.channel.reapedSince(up.time) {
		return false
	}
	at := up.time
	if up.interrupt != event.InterruptNone {
		at = up.interruptBegin
	}
	if c.noticed != 0 {
		at = min(at, c.noticed) // before it wakes
	}
	if at < m.doneLow || at > m.doneHigh {
		return false
	}
	m.doneSource = DoneInterrupt
	m.done, m.likelyLow, m.likelyHigh = at, at, at
	if most, known := kind.known(fromInterrupts).usual(); known {
		m.likelyLow = max(m.doneLow, min(at, m.postBegin+most))
	}
	kind.learn(fromInterrupts, at-m.postBegin, at-m.postBegin)
	return true
}

// expect uses what is typical, if narrow bounds or time stamps taught it.
func (m *measured) expect(c *verbRecord, kind *flightKind) {
	if (m.doneSource == DoneBounded || isDoubtful(m.doneHigh-m.doneLow, m.reap-m.postBegin)) && c.flags&event.CompletionNoEmpty == 0 {
		kind.known(fromPolls).miss()
	}
	least := max(kind.known(fromPolls).least(), kind.known(fromStamps).least())
	m.likelyLow, m.likelyHigh = max(m.doneLow, min(m.postBegin+least, m.doneHigh)), m.doneHigh
	if width := m.doneHigh - m.doneLow; !isDoubtful(width, m.reap-m.postBegin) {
		// The poll that found it empty and the one that found it look at the
		// CQE equally late after their entries.
		high := m.doneHigh
		if c.Begin > m.likelyLow && c.Begin < high {
			high = middle(c.Begin, high)
		}
		m.done = middle(m.likelyLow, high)
		if m.doneSource == DoneBracket {
			m.teach(kind, fromPolls)
		}
		return
	}
	// What is typical narrows it only where the CQ was looked at after the
	// post: it had not come then, and it may be a slow one if nobody looked.
	most, known := kind.known(fromPolls).most()
	if known && m.doneSource == DoneBracket && m.postBegin+most >= m.likelyLow {
		m.likelyHigh = min(m.likelyHigh, m.postBegin+most)
	}
	m.done = middle(m.likelyLow, m.likelyHigh)
}

// teach how long this kind of work request is in flight.
func (m *measured) teach(kind *flightKind, source flightSource) {
	if !isDoubtful(m.doneHigh-m.doneLow, m.reap-m.postBegin) {
		kind.learn(source, m.doneLow-m.postBegin, m.doneHigh-m.postBegin)
	}
}
