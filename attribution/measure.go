package attribution

// deferredWR is one whose completion was reaped before its post call returned:
// by another thread, necessarily. It is measured at the return.
type deferredWR struct {
	qp   *queuePair
	cq   *completionQueue
	p    pending
	c    verbRecord
	with retired
}

// finish books the WR p, which got completion c, and measures it.
func (e *Engine) finish(qp *queuePair, q *workQueue, p *pending, c *verbRecord, cq *completionQueue, with retired) {
	e.announce(qp, q, p)
	how := e.verdict(p, c)
	switch {
	case how != settledMeasured:
		if q.receive {
			e.measureReceive(qp, c, cq)
		}
	case p.postEnd == 0:
		e.deferred = append(e.deferred, deferredWR{qp, cq, *p, *c, with})
	default:
		e.measure(qp, q, p, c, cq, with)
	}
	e.leave(qp, q, p, how)
}

// leave books a WR that is taken out of its queue.
func (e *Engine) leave(qp *queuePair, q *workQueue, p *pending, how settlement) {
	if how != settledRefused {
		e.announce(qp, q, p)
	}
	if p.postEnd == 0 && p.is&isEndMissing == 0 {
		if th := e.threads.known(p.tid); th != nil && th.call.open && th.call.number == p.call && th.call.queue == q {
			th.call.left--
		}
	}
	if q.ids != nil {
		if q.ids[p.wrID]--; q.ids[p.wrID] <= 0 {
			delete(q.ids, p.wrID)
		}
	}
	e.ledger.settle(q, p, how)
	e.submits.release(p.submit)
}

// noteLeft tells the sink what has left a send queue.
func (e *Engine) noteLeft(qp *queuePair, q *workQueue, t uint64) {
	if e.ledger.left > 0 {
		e.out.retired(qp, t, e.ledger.left, e.ledger.leftSize, q.depth())
		e.ledger.left, e.ledger.leftSize = 0, 0
	}
}

// resume measures what was deferred to the return r of a call.
func (e *Engine) resume(r *verbRecord, submit int32) {
	e.eachDeferred(r.tid, r.Call, func(d *deferredWR) {
		d.p.postEnd, d.p.traps, d.p.submit = max(r.time, d.p.postBegin), r.Traps, submit
		e.measure(d.qp, nil, &d.p, &d.c, d.cq, d.with)
	})
}

// dropDeferred gives up on what waits for the return of a call that was not seen.
func (e *Engine) dropDeferred(th *thread) {
	e.eachDeferred(th.tid, th.call.number, func(d *deferredWR) { e.undo(d).Lost++ })
}

// undo takes back that a WR was booked as completed.
func (e *Engine) undo(d *deferredWR) *Books {
	b := &e.ledger.books[side(d.c.Opcode&wcReceive != 0)]
	b.Completed--
	b.Bytes -= int64(d.p.bytes)
	return b
}

// eachDeferred takes those of a call out of the list.
func (e *Engine) eachDeferred(tid, call uint32, do func(d *deferredWR)) {
	if len(e.deferred) == 0 {
		return
	}
	kept := e.deferred[:0]
	for i := range e.deferred {
		if d := &e.deferred[i]; d.p.tid == tid && d.p.call == call {
			do(d)
		} else {
			kept = append(kept, *d)
		}
	}
	e.deferred = kept
}

// measure cuts the latency of a WR and hands it on.
func (e *Engine) measure(qp *queuePair, q *workQueue, p *pending, c *verbRecord, cq *completionQueue, with retired) {
	m := &e.m
	*m = measured{
		qp: qp, index: p.index, unmatched: p.index < 0, receive: c.Opcode&wcReceive != 0,
		opcode: p.opcode, bytes: p.chainBytes, chained: p.chained,
		retired: with.wrs, retBytes: with.bytes,
		wrID: c.WRID, status: c.Status,
		postTID: p.tid, reapTID: c.tid, postCPU: p.cpu, reapCPU: c.cpu,
		postBegin: p.postBegin, postEnd: p.postEnd, reap: max(c.time, p.postBegin),
		depth: p.depth, stack: p.stack, segments: m.segments[:0],
	}
	if m.receive {
		m.opcode, m.bytes = c.Opcode, uint64(c.Bytes)
	}
	e.locate(m, c, cq)
	cq.fire(m.doneHigh)
	if m.unmatched && m.doneLow <= p.postBegin {
		return // it was there before we looked, for nobody knows how long
	}
	e.cut(m, p, c, cq)
	e.chargeProbes(m, p, c)
	if m.unmatched {
		m.postBegin, m.postEnd = m.done, m.done
	}
	if m.receive {
		m.peerWait = m.done - m.postBegin
	}
	m.demand = e.demandOf(m, q, c)
	e.hand(m, q)
}

// measureReceive measures a receive whose post is not known. What happened since
// it was done does not depend on that; how long it waited for the peer does.
func (e *Engine) measureReceive(qp *queuePair, c *verbRecord, cq *completionQueue) {
	begin := min(e.threads.origin, c.time)
	p := pending{index: -1, postBegin: begin, postEnd: begin, chained: 1}
	e.measure(qp, nil, &p, c, cq, retired{})
}

// submits keep what was not plain submit in posting calls, from their return
// until their WRs are completed: the timeline is forgotten earlier.
type submits struct {
	cuts []submitCut
	free []int32
}

type submitCut struct {
	segments []segment
	uses     int32
}

// cut gives the number of a new cut of [begin, end], which th spent in a
// posting call; 0 if nothing disturbed it.
func (s *submits) cut(w *walker, th *thread, begin, end uint64) int32 {
	if w.tl.undisturbed(th, begin) {
		return 0
	}
	if len(s.free) == 0 {
		s.cuts = append(s.cuts, submitCut{})
		s.free = append(s.free, int32(len(s.cuts)))
	}
	number := s.free[len(s.free)-1]
	s.free = s.free[:len(s.free)-1]
	w.cq, w.submitEnd, w.reapBegin, w.running = nil, never, never, Submit
	c := &s.cuts[number-1]
	w.segments = c.segments[:0]
	w.thread(th, begin, end)
	c.segments, w.segments = w.segments, nil
	return number
}

// use says how many WRs refer to a cut.
func (s *submits) use(number, uses int32) {
	if number == 0 {
		return
	}
	s.cuts[number-1].uses = uses + 1
	s.release(number)
}

func (s *submits) release(number int32) {
	if number == 0 {
		return
	}
	c := &s.cuts[number-1]
	if c.uses--; c.uses == 0 {
		s.free = append(s.free, number)
	}
}

func (s *submits) segments(number int32) []segment { return s.cuts[number-1].segments }

// ran says that a thread is known to have run from begin to end, with nothing on
// top.
func (tl *timelines) ran(tid uint32, begin, end uint64) bool {
	th := tl.known(tid)
	if th == nil {
		return false
	}
	seq, ok := search(&th.spans, begin, (*span).beganAt)
	if !ok || th.spans.at(seq).state != stateRunning || seq+1 != th.spans.next && th.spans.at(seq+1).begin < end {
		return false
	}
	for i := th.tops.next; i != th.tops.first && th.tops.at(i-1).end > begin; i-- {
		if th.tops.at(i-1).begin < end {
			return false
		}
	}
	for i := tl.gaps.next; i != tl.gaps.first && tl.gaps.at(i-1).end > begin; i-- {
		if tl.gaps.at(i-1).begin < end {
			return false
		}
	}
	return true
}

// undisturbed says that th has been running since t with nothing on top.
func (tl *timelines) undisturbed(th *thread, t uint64) bool {
	return th.state() == stateRunning && th.spans.last().begin <= t &&
		(th.tops.len() == 0 || th.tops.last().end <= t) &&
		(tl.gaps.len() == 0 || tl.gaps.last().end <= t)
}
