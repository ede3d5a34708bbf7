package attribution

import "github.com/rdmatrace/rdmatrace/event"

// find gives the place of the WR that a completion belongs to, -1 if it cannot
// be told, and the proof that it gave of the queue's place.
func (e *Engine) find(qp *queuePair, q *workQueue, c *verbRecord) (int, proof) {
	if i, known := q.byWQE(c); known {
		if i >= 0 {
			q.signalledAt(i)
			return q.aheadOfOpen(i), provenWQE
		}
		if q.proven() {
			e.met.strayCompletions++ // its post was not seen
		}
		return -1, unproven
	}
	if q.shared {
		return e.findShared(q, c), unproven
	}
	if !q.proven() {
		if q.receive {
			return -1, unproven
		}
		if i := q.byWRID(0, c); i >= 0 && q.anchor.uniqueWRID(q.at(i), qp.room()) && !q.anchor.isLossy(c.time) {
			return i, provenWRID
		}
		if !e.counted(qp, q, c) {
			return -1, unproven
		}
	}
	return e.findInOrder(qp, q, c), unproven
}

// findInOrder takes the oldest signalled WR, and doubts it if anything speaks
// against it.
func (e *Engine) findInOrder(qp *queuePair, q *workQueue, c *verbRecord) int {
	i := q.firstSignalled()
	if i < 0 && q.sigAll == sigAllUnknown && q.len() > 0 {
		q.allSignalled()
		i = 0
	}
	if i >= 0 && q.at(i).postBegin > c.time {
		i = -1
	}
	switch {
	case i < 0:
		e.met.strayCompletions++
		if !isUnseen(0, c) {
			e.lose(qp, q, c.time) // a post was not seen: who knows which
		}
		return -1
	case isUnseen(q.at(i).opcode, c) && !q.receive:
		e.met.strayCompletions++
		return -1
	case c.flags&event.CompletionWQEValid != 0 && q.at(i).is&isWQEValid != 0:
		e.met.strayCompletions++ // it is another's, of which there is no index
		e.lose(qp, q, c.time)
		return -1
	case q.at(i).is&(isRacing|isShuffled) != 0:
		if j := q.resolveRace(i, c); j >= 0 {
			return j
		}
	case q.at(i).wrID == c.WRID:
		return i
	}
	// Receives may complete out of order (MLX5DV_QP_CREATE_OOO_DP); of sends,
	// a completion was not seen, or a post.
	j := q.byWRID(i+1, c)
	switch {
	case j < 0:
		e.met.strayCompletions++
	case !q.receive && q.byWRID(j+1, c) >= 0:
		e.lose(qp, q, c.time)
		return -1
	case !q.receive:
		e.met.missedCompletions++
	}
	return j
}

// isUnseen says that a completion belongs to a post that no probe sees:
// ibv_bind_mw and the memory operations of a provider post by themselves. Else
// the opcode proves nothing: providers are known to report wrong ones.
func isUnseen(posted uint8, c *verbRecord) bool {
	switch c.Opcode {
	case wcBindMW:
		return posted != opBindMW
	case wcLocalInv:
		return posted != opLocalInv
	case wcDriver1:
		return posted != opDriver1
	}
	return false
}

// firstSignalled gives the oldest WR that a completion can belong to, or -1.
func (q *workQueue) firstSignalled() int {
	for i := range q.len() {
		if q.at(i).is&(isSignalled|isTaken) == isSignalled {
			return i
		}
	}
	return -1
}

// byWRID gives the first signalled WR from place i on with the wr_id of a
// completion, -1 if none was posted before it was reaped.
func (q *workQueue) byWRID(i int, c *verbRecord) int {
	for ; i < q.len() && q.at(i).postBegin <= c.time; i++ {
		if p := q.at(i); p.wrID == c.WRID && p.is&(isSignalled|isTaken|isBlind) == isSignalled {
			return i
		}
	}
	return -1
}

// byWQE looks for the WR whose WQE index the completion carries. known says
// that the indices decide: then -1 means that no post of this completion was
// seen. Of a list only the first WR may have its index: if one other is
// signalled, a completion between that and what follows is its own.
func (q *workQueue) byWQE(c *verbRecord) (i int, known bool) {
	if c.flags&event.CompletionWQEValid == 0 || !q.indexed {
		return -1, false
	}
	ordered := !q.receive   // receive indices are those of a free list
	blanks, inList := 0, -1 // signalled ones without index that may be it
	var before *pending     // the last one with an index below
	for i := 0; i < q.len(); i++ {
		p := q.at(i)
		if p.is&isTaken != 0 {
			continue
		}
		if p.is&isWQEValid == 0 {
			if p.is&isSignalled != 0 {
				blanks++
				if before != nil && before.tid == p.tid && before.call == p.call {
					inList = i
				}
			}
			continue
		}
		known = true
		distance := int16(c.WQE - p.wqe)
		if distance == 0 {
			return i, true
		}
		switch {
		case !ordered:
		case distance > 0:
			before, blanks, inList = p, 0, -1
		case p.postEnd != 0 && p.is&isRacing == 0:
			// It and all that follow were queued later.
			i = q.len()
		}
	}
	switch {
	case blanks == 0:
		return -1, known
	case blanks == 1 && inList >= 0:
		return inList, true
	}
	return -1, false
}

// signalledAt takes note that the i-th WR has a completion of its own.
func (q *workQueue) signalledAt(i int) {
	if q.at(i).is&isSignalled == 0 {
		if q.sigAll == sigAllUnknown {
			q.allSignalled()
		}
		q.at(i).is |= isSignalled
	}
}

// aheadOfOpen moves the WRs of other calls that have not returned behind the
// i-th, which is completed: they were queued later or not at all. It gives the
// place of the i-th.
func (q *workQueue) aheadOfOpen(i int) int {
	for j := i - 1; j >= 0; j-- {
		p, open := q.at(i), q.at(j)
		if open.postEnd != 0 || open.is&(isTaken|isEndMissing) != 0 || open.tid == p.tid && open.call == p.call {
			continue
		}
		for k := j; k < i; k++ {
			*q.at(k), *q.at(k + 1) = *q.at(k + 1), *q.at(k)
		}
		i--
	}
	return i
}

// resolveRace picks among WRs whose order is not certain, or that of their
// completions, the one with the completion's wr_id, and puts it and what its
// thread posted before it in front. If wr_ids do not tell, the completion counts
// for the oldest, but none of these pairs is believed. -1: none has that wr_id.
func (q *workQueue) resolveRace(i int, c *verbRecord) int {
	found, rivals := -1, false
	end := i
	for ; end < q.len() && q.at(end).is&(isRacing|isShuffled) != 0 && q.at(end).postBegin <= c.time; end++ {
		p := q.at(end)
		if p.wrID != c.WRID || p.is&isSignalled == 0 {
			continue
		}
		if found < 0 {
			found = end
		} else if p.tid != q.at(found).tid || p.is&isShuffled != 0 {
			rivals = true
		}
	}
	if found < 0 {
		return -1
	}
	for j := i; rivals && j < end; j++ {
		if q.at(j).wrID == c.WRID {
			q.at(j).is |= isAmbiguous
		}
	}
	return q.bringForward(found)
}

// bringForward moves the WR at a place to the front, with what its thread
// posted since the signalled one before it, and gives its new place.
func (q *workQueue) bringForward(found int) int {
	tid, first := q.at(found).tid, found
	for j := found - 1; j >= 0; j-- {
		if p := q.at(j); p.tid == tid {
			if p.is&isSignalled != 0 {
				break
			}
			first = j
		}
	}
	front := 0
	for j := first; j <= found; j++ {
		if q.at(j).tid != tid {
			continue
		}
		for k := j; k > front; k-- {
			*q.at(k), *q.at(k - 1) = *q.at(k - 1), *q.at(k)
		}
		front++
	}
	return front - 1
}

// trim drops the places of WRs that were taken out of order.
func (q *workQueue) trim() {
	for q.len() > 0 && q.at(0).is&isTaken != 0 {
		q.drop(1)
	}
}

// findShared looks for a receive in an SRQ by its wr_id. Where the program uses
// one wr_id for several, which of them it was cannot be told; nor before two with
// different ones were pending, as others of that wr_id may have been posted before
// we looked.
func (e *Engine) findShared(q *workQueue, c *verbRecord) int {
	n := q.ids[c.WRID]
	if n == 0 {
		return -1 // posted before we looked
	}
	i := q.byWRID(0, c)
	q.differ = q.differ || len(q.ids) > 1
	if n > 1 {
		q.repeats = true
	}
	if i >= 0 && (q.repeats || !q.differ) {
		q.at(i).is |= isAmbiguous
	}
	return i
}
