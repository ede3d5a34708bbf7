package attribution

import "github.com/rdmatrace/rdmatrace/event"

const (
	wcBindMW   = 5 // enum ibv_wc_opcode
	wcLocalInv = 6
	wcDriver1  = 135
)

// completed takes a KindCompletion.
func (e *Engine) completed(c *verbRecord) {
	th := e.threads.thread(c.pid, c.tid)
	e.threads.runs(th, c.time, c.cpu)
	e.usesVerbs(c.pid, c.tid)
	cq := e.objects.cq(c.pid, c.CQ)
	cq.polled(c.tid, c.time)
	if c.emptySeen() && c.LastEmptyTID != 0 {
		cq.polled(c.LastEmptyTID, c.LastEmpty)
	}
	if uncertain := e.holds(c, cq); uncertain || cq.held > 0 {
		e.hold(c, cq, uncertain)
		cq.latestTID = c.tid
		return
	}
	e.reap(c, cq)
}

// reap takes a completion whose place among others is certain.
func (e *Engine) reap(c *verbRecord, cq *completionQueue) {
	if c.flags&(event.CompletionUnreadable|event.CompletionLost) != 0 {
		e.met.unreadable += max(1, int64(c.Count))
		e.loseCQ(cq, c.time)
		cq.writings.lose()
		cq.notices.lose()
		return
	}
	e.findWriting(c, cq)
	c.noticed = cq.notices.of(c)
	e.pair(c, cq)
	cq.latestTID, cq.latestReap = c.tid, c.time
	if cq.channel != nil {
		cq.channel.latestReap = c.time
	}
	cq.fire(c.time)
}

// pair finds the WR that a completion belongs to.
func (e *Engine) pair(c *verbRecord, cq *completionQueue) {
	qp := e.objects.completed(c.pid, c.QPNum, cq)
	if qp == nil {
		e.met.strayCompletions++
		return
	}
	if c.Begin != 0 && c.Begin < qp.emptyAt {
		e.met.strayCompletions++ // taken before the queue pair was reset, returned after
		return
	}
	if c.Status != 0 {
		e.failed(qp, c, cq)
		return
	}
	q := &qp.sendQueue
	if c.Opcode&wcReceive != 0 {
		q = e.receiveQueue(qp)
		learnCQ(&qp.recvCQ, cq)
	} else {
		learnCQ(&qp.sendCQ, cq)
	}
	i, by := e.find(qp, q, c)
	if i < 0 {
		if q.receive {
			e.measureReceive(qp, c, cq)
		}
		return
	}
	e.take(qp, q, i, c, cq)
	if by != unproven && !q.proven() && !q.anchor.isLossy(c.time) {
		q.prove(by)
	}
}

func learnCQ(known *uint64, cq *completionQueue) {
	if *known == 0 {
		*known = cq.addr
	}
}

// receiveQueue gives the queue that a queue pair receives from. Which SRQ it
// uses is not known of one made before we looked; if there is but one, it is that.
func (e *Engine) receiveQueue(qp *queuePair) *workQueue {
	if qp.srq != 0 {
		return &e.objects.srq(qp.pid, qp.srq).queue
	}
	if qp.recvQueue.next == 0 {
		if s := e.objects.onlySRQ(qp.pid); s != nil {
			return &s.queue
		}
	}
	return &qp.recvQueue
}

// take pairs a completion with the i-th WR of the queue, and settles what it
// retires: the unsignalled WRs since the signalled one before. A signalled one
// that is passed over was completed without our seeing it, unless another
// thread has its completion and returns later.
func (e *Engine) take(qp *queuePair, q *workQueue, i int, c *verbRecord, cq *completionQueue) {
	p := q.at(i)
	if q.shared || q.receive && i > 0 {
		e.finish(qp, q, p, c, cq, retired{})
		p.is |= isTaken
		q.trim()
		return
	}
	passed := 0
	for j := range i {
		if q.at(j).is&(isSignalled|isTaken) == isSignalled {
			passed = j + 1
		}
	}
	wait := passed > 0 && e.mayFollow(q, c)
	for j := 0; j < passed && !wait; j++ {
		e.forget(qp, q, q.at(j))
	}
	var with retired
	for j := passed; j < i; j++ {
		if r := q.at(j); r.is&isTaken == 0 {
			with.wrs++
			with.bytes += uint64(r.bytes)
			e.leave(qp, q, r, settledRetired)
			r.is |= isTaken
		}
	}
	e.finish(qp, q, p, c, cq, with)
	if p.is&isBeforeLoss == 0 {
		q.anchor.whole = true
	}
	if wait {
		p.is |= isTaken
	} else {
		q.drop(i + 1)
		q.trim()
	}
	q.blocked = false
	e.noteLeft(qp, q, c.time)
}

// mayFollow says that the completions of the signalled WRs passed over may
// still come: WQE indices will tell whose they are, and several threads reap.
// For those of a loss, or passed over long ago, nothing is waited for.
func (e *Engine) mayFollow(q *workQueue, c *verbRecord) bool {
	first := q.firstSignalled()
	p := q.at(first)
	if e.manyThreads[c.pid] != severalThreads || !q.proven() || p.is&(isWQEValid|isBeforeLoss) != isWQEValid {
		return false
	}
	if p.is&isPassed == 0 {
		p.is |= isPassed
		q.passedAt = c.time
	}
	return c.time <= q.passedAt+overlapNS
}

// retired are the unsignalled WRs that a completion retired.
type retired struct {
	wrs   int32
	bytes uint64
}

// verdict says how a WR that has its completion is booked. Without the return
// of its post call its latency cannot be cut: where the thread that posted it
// polls, the call has returned for certain.
func (e *Engine) verdict(p *pending, c *verbRecord) settlement {
	switch {
	case p.is&isEndMissing != 0, p.postEnd == 0 && p.tid == c.tid:
		return settledLost
	case p.is&isAmbiguous != 0:
		return settledExcluded
	}
	return settledMeasured
}
