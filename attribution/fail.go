package attribution

const statusFlush = 5 // IBV_WC_WR_FLUSH_ERR

// failed takes a completion in error. Of it only wr_id, status, qp_num and
// vendor_err are valid (ibv_poll_cq(3)), so which of the queue pair's queues it
// belongs to has to be found out. What is on the queue pair after the first
// error is a consequence.
func (e *Engine) failed(qp *queuePair, c *verbRecord, cq *completionQueue) {
	q, i := e.failedWR(qp, c, cq)
	first := !qp.failed && c.Status != statusFlush
	qp.failed = true
	e.out.add(&measured{qp: qp, status: c.Status, wrID: c.WRID, reapTID: c.tid, reap: c.time})
	if i < 0 {
		return
	}
	q.doubtShuffled(i)
	if q.shared || q.receive && i > 0 {
		e.leave(qp, q, q.at(i), settledFlushed)
		q.at(i).is |= isTaken
		q.trim()
		return
	}
	for j := range i {
		p, how := q.at(j), settledFlushed
		if p.is&isTaken != 0 {
			continue
		}
		if first && p.is&isSignalled == 0 {
			how = settledRetired // unsignalled and in front of the one that failed
		}
		e.leave(qp, q, p, how)
	}
	e.leave(qp, q, q.at(i), settledFlushed)
	q.drop(i + 1)
	q.trim()
	e.noteLeft(qp, q, c.time)
}

// failedWR finds the WR of a completion in error: in the queue that completes
// on this CQ, else by wr_id, else at the head of the send queue. -1: in none.
func (e *Engine) failedWR(qp *queuePair, c *verbRecord, cq *completionQueue) (*workQueue, int) {
	send, receive := &qp.sendQueue, e.receiveQueue(qp)
	s, r := send.named(c), receive.named(c)
	switch {
	case qp.sendCQ != qp.recvCQ && qp.sendCQ == cq.addr:
		r = -1
	case qp.sendCQ != qp.recvCQ && qp.recvCQ == cq.addr:
		s = -1
	}
	switch {
	case s < 0 && r < 0:
		return nil, -1
	case s < 0:
		return receive, r
	case r < 0:
		return send, s
	}
	// Both have it: the one where it is the oldest.
	if r == 0 && s > 0 {
		return receive, r
	}
	return send, s
}

// named gives the oldest WR with a completion's wr_id, signalled or not: after
// an error every WR gets a completion.
func (q *workQueue) named(c *verbRecord) int {
	if i, known := q.byWQE(c); known && i >= 0 {
		return i
	}
	if q.shared && q.ids[c.WRID] == 0 {
		return -1
	}
	for i := range q.len() {
		if p := q.at(i); p.wrID == c.WRID && p.is&isTaken == 0 {
			return i
		}
	}
	return -1
}

// doubtShuffled: if which of several WRs failed is not certain, neither is
// which completions the others got.
func (q *workQueue) doubtShuffled(i int) {
	if q.at(i).is&(isShuffled|isRacing) == 0 {
		return
	}
	for j := range q.len() {
		if p := q.at(j); p.is&(isShuffled|isRacing) != 0 && p.wrID == q.at(i).wrID {
			p.is |= isAmbiguous
		}
	}
}
