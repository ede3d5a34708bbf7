package attribution

import "github.com/rdmatrace/rdmatrace/event"

// unprove says that a queue pair's queues hold an unknown number of WRs.
func (e *Engine) unprove(qp *queuePair, t uint64) {
	qp.sendQueue.unprove(t, e.lossEnd, qp.room())
	qp.recvQueue.unprove(t, e.lossEnd, 0)
}

// lose un-anchors a queue: records of it are missing. What is pending can
// still be matched by its WQE index; without one it is lost.
func (e *Engine) lose(qp *queuePair, q *workQueue, t uint64) {
	e.met.unanchored++
	q.repeats = q.repeats || q.shared // what was posted unseen may have any wr_id
	kept := 0
	for i := range q.len() {
		p := q.at(i)
		p.is |= isBeforeLoss
		if p.is&isWQEValid == 0 {
			e.forget(qp, q, p)
			continue
		}
		*q.at(kept) = *p
		kept++
	}
	q.tail = q.head + uint64(kept)
	e.noteLeft(qp, q, t)
	if qp != nil && !q.receive {
		e.out.lost(qp, min(t, e.now))
	}
	room := uint32(0)
	if qp != nil && !q.receive {
		room = qp.room()
	}
	q.unprove(t, e.lossEnd, room)
}

// forget settles a pending WR that can no longer be matched.
func (e *Engine) forget(qp *queuePair, q *workQueue, p *pending) {
	if p.is&isTaken != 0 {
		return
	}
	how := settledExcluded
	if p.is&isBeforeLoss != 0 || p.is&isUnproven == 0 {
		how = settledLost
	}
	e.leave(qp, q, p, how)
}

// dropOverrun forgets WRs from before a loss that cannot be in flight as r is posted:
// the queue, of 32,768 blocks at most, has come to their place again or is half the
// range of indices further. What lies between was posted while records were lost.
func (e *Engine) dropOverrun(qp *queuePair, q *workQueue, r *verbRecord) {
	for q.len() > 0 && !q.receive && r.flags&event.WRWQEValid != 0 {
		old := q.at(0)
		posted := old.postEnd
		if old.is&isEndMissing != 0 {
			posted = old.postBegin // its return was lost as well
		}
		if old.is&(isBeforeLoss|isWQEValid|isTaken) != isBeforeLoss|isWQEValid || posted == 0 || posted > beginOf(r) || int16(r.WQE-old.wqe) > 0 {
			return
		}
		e.forget(qp, q, old)
		q.drop(1)
		e.noteLeft(qp, q, r.time)
	}
}

// purge drops the WRs of a call that were posted while records were being lost
// and have no WQE index to be matched by.
func (e *Engine) purge(qp *queuePair, q *workQueue, tid, call uint32, t uint64) {
	for i := q.len() - 1; i >= 0; i-- {
		p := q.at(i)
		if p.tid != tid || p.call != call {
			break
		}
		if p.is&isBeforeLoss != 0 && p.is&isWQEValid == 0 {
			e.forget(qp, q, p)
			q.cut(i)
		}
	}
	e.noteLeft(qp, q, t)
}

// loseAll un-anchors all queues: records that matching needs were dropped, of
// whom is unknown. Nothing is proven before the loss has ended.
func (e *Engine) loseAll(begin, end uint64) {
	e.lossEnd = max(e.lossEnd, end)
	e.out.paused(begin)
	for _, qp := range e.objects.live {
		e.lose(qp, &qp.sendQueue, end)
		e.lose(qp, &qp.recvQueue, end)
	}
	for _, s := range e.objects.allSRQs {
		e.lose(nil, &s.queue, end)
	}
}

// loseCQ un-anchors the queues that complete on a completion queue.
func (e *Engine) loseCQ(cq *completionQueue, t uint64) {
	for _, qp := range e.objects.live {
		if qp.pid != cq.pid {
			continue
		}
		if qp.sendCQ == cq.addr || qp.sendCQ == 0 {
			e.lose(qp, &qp.sendQueue, t)
		}
		if qp.recvCQ == cq.addr || qp.recvCQ == 0 {
			e.lose(qp, &qp.recvQueue, t)
		}
	}
	for _, s := range e.objects.allSRQs {
		if s.pid == cq.pid {
			e.lose(nil, &s.queue, t)
		}
	}
}

// tighten uses that a post of tid succeeded: the queue had room for it.
func (e *Engine) tighten(qp *queuePair, q *workQueue, tid uint32, t uint64) {
	a := &q.anchor
	if q.proven() || a.isLossy(t) {
		return
	}
	if e.manyThreads[qp.pid] != soleThread(tid) {
		a.upper = noBound
		return
	}
	for q.overfull(qp.room()) {
		a.upper--
		if a.upper < a.lower || a.completions > a.upper && !e.excludeChain(qp, q) {
			a.upper = noBound // there is more room than we were told
			break
		}
	}
	if q.settled() {
		q.prove(provenCount)
	}
	e.noteLeft(qp, q, t)
}

// excludeChain drops the oldest signalled WR and what is before it: all of it
// is completed, but by which completion is unknown.
func (e *Engine) excludeChain(qp *queuePair, q *workQueue) bool {
	for i := range q.len() {
		if q.at(i).is&isSignalled != 0 {
			for range i + 1 {
				e.forget(qp, q, q.at(0))
				q.drop(1)
			}
			return true
		}
	}
	return false
}

// counted takes a send completion on a queue without proof that names no WR by
// itself, and looks for a proof in what has been seen. It reports whether the
// completion can be paired now.
func (e *Engine) counted(qp *queuePair, q *workQueue, c *verbRecord) bool {
	a := &q.anchor
	if a.isLossy(c.time) {
		return false
	}
	defer e.noteLeft(qp, q, c.time)
	e.inferSignalling(qp, q)
	if done, ok := e.silent(qp, q, c); ok {
		for range done {
			e.forget(qp, q, q.at(0))
			q.drop(1)
		}
		q.prove(provenSilence)
		return true
	}
	a.latestReap = c.time
	if e.manyThreads[qp.pid] != soleThread(c.tid) {
		a.upper = noBound
	}
	if q.noteCompletion() && !e.excludeChain(qp, q) {
		a.upper = noBound
	}
	if q.settled() {
		q.prove(provenCount)
	}
	return false
}

// inferSignalling: a queue whose posts never carry the flag and fill it more
// than once, while completions come, is one on which all are signalled.
func (e *Engine) inferSignalling(qp *queuePair, q *workQueue) {
	room := int64(qp.room())
	if room == 0 {
		room = wrIDRun
	}
	if q.sigAll == sigAllUnknown && !q.anchor.flagged && q.anchor.unflagged > room {
		q.allSignalled()
	}
}

// silent looks for the proof by silence: the poll before this completion found
// the CQ empty when what had been posted was older than any transport keeps it,
// but for WRs posted after the previous completion was reaped. It gives the
// number of WRs that are completed.
func (e *Engine) silent(qp *queuePair, q *workQueue, c *verbRecord) (first int, ok bool) {
	a := &q.anchor
	patience := qp.patience()
	if !c.emptySeen() || c.LastEmpty < a.since+patience {
		return 0, false
	}
	for ; first < q.len(); first++ {
		p := q.at(first)
		if p.postBegin+patience > c.LastEmpty || p.postEnd == 0 {
			break
		}
	}
	if first == q.len() || q.at(first).postBegin <= a.latestReap {
		return 0, false
	}
	return first, true
}

// bound keeps a queue from growing for ever when its completions are not seen.
func (e *Engine) bound(qp *queuePair, q *workQueue, t uint64) {
	limit := pendingMost
	if !q.proven() && !q.shared && q.at(q.len()-1).is&isWQEValid == 0 {
		limit = unprovenMost
	}
	if qp != nil && qp.maxSendWR > 0 && !q.receive {
		limit = min(limit, 2*int(qp.maxSendWR)+unprovenMost)
	}
	if q.len() <= limit {
		return
	}
	e.met.overgrown++
	if q.proven() {
		e.lose(qp, q, t)
	}
	for range q.len() - limit/2 {
		e.forget(qp, q, q.at(0))
		q.drop(1)
	}
	e.noteLeft(qp, q, t)
}
