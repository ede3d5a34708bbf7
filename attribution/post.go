package attribution

import "github.com/rdmatrace/rdmatrace/event"

// openCall is the posting call that a thread is in.
type openCall struct {
	open   bool
	number uint32
	begin  uint64
	qp     *queuePair // nil for an SRQ
	queue  *workQueue
	seen   int32 // WRs recorded
	left   int32 // of these, still pending
}

const (
	sendSignaled = 2 // IBV_SEND_SIGNALED
	sendInline   = 8 // IBV_SEND_INLINE
	enomem       = 12
)

// posted takes a KindWR.
func (e *Engine) posted(r *verbRecord) {
	th := e.threads.thread(r.pid, r.tid)
	e.threads.runs(th, r.time, r.cpu)
	e.usesVerbs(r.pid, r.tid)
	qp, q := e.queueOf(r)
	call := &th.call
	if !call.open || call.number != r.Call || call.queue != q {
		e.abandon(th)
		*call = openCall{open: true, number: r.Call, begin: beginOf(r), qp: qp, queue: q}
	}
	if qp != nil {
		e.letGo(qp, r.tid, beginOf(r))
	}
	e.dropOverrun(qp, q, r)
	p := q.push(e.newPending(r, q))
	q.indexed = q.indexed || p.is&isWQEValid != 0
	q.fillWQEs()
	q.next++
	if q.shared {
		q.ids[p.wrID]++
	}
	call.seen++
	call.left++
	e.ledger.post(q)
	if !q.receive {
		e.pauses.count(r.Bytes)
	}
	if !q.proven() {
		q.notePost(p, r.time)
	}
	e.bound(qp, q, r.time)
}

// beginOf is post_begin, which cannot be later than the record.
func beginOf(r *verbRecord) uint64 {
	if r.Begin == 0 || r.Begin > r.time {
		return r.time
	}
	return r.Begin
}

func (e *Engine) newPending(r *verbRecord, q *workQueue) pending {
	p := pending{
		wrID: r.WRID, postBegin: beginOf(r), stack: r.Stack, index: q.next,
		tid: r.tid, call: r.Call, bytes: r.Bytes, depth: max(int32(q.len())-q.held, 0),
		wqe: r.WQE, cpu: r.cpu, place: r.Index, opcode: r.Opcode,
		chainBytes: uint64(r.Bytes), chained: 1, shape: shapeOf(r),
	}
	if r.SendFlags&sendSignaled != 0 {
		p.is |= isFlagged
	}
	if q.receive || q.sigAll == 1 || p.is&isFlagged != 0 {
		p.is |= isSignalled
	}
	if r.flags&event.WRWQEValid != 0 {
		p.is |= isWQEValid
	}
	if r.flags&event.WRBuilder != 0 {
		p.is |= isBuilder
	}
	if r.flags&(event.WRTruncated|event.WRUnreadable) != 0 {
		p.is |= isBlind
	}
	if n := q.len(); n > 0 && !q.receive {
		if before := q.at(n - 1); before.tid == p.tid && before.call == p.call && before.is&isSignalled == 0 {
			p.chainBytes += before.chainBytes
			p.chained += before.chained
		}
	}
	return p
}

// shapeOf is all that the size of a WQE depends on.
func shapeOf(r *verbRecord) uint64 {
	shape := uint64(r.Opcode)<<40 | uint64(r.NumSGE)<<24
	if r.SendFlags&sendInline != 0 {
		shape |= 1<<56 | uint64(r.Bytes)
	}
	return shape
}

// fillWQEs finds the indices of a list's WRs, of which only the first one's is
// known, when the first of the next call is pushed: between the two lie as many
// WQEs as the list has WRs. If they take a basic block each, or all are made
// alike and so take equally many, their places are known.
func (q *workQueue) fillWQEs() {
	last := q.len() - 1
	next := q.at(last)
	if last < 2 || next.place != 0 || next.is&isWQEValid == 0 || q.receive {
		return
	}
	first := last - 1
	alike := true
	for ; first >= 0 && q.at(first).is&isWQEValid == 0; first-- {
		p := q.at(first)
		if p.place == 0 || p.is&(isRacing|isTaken|isBlind) != 0 {
			return
		}
		alike = alike && p.shape == q.at(last-1).shape
	}
	n := last - first
	if first < 0 || n < 2 || q.at(first).place != 0 || q.at(first).call != q.at(last-1).call {
		return
	}
	alike = alike && q.at(first).shape == q.at(last-1).shape
	blocks := int(next.wqe - q.at(first).wqe)
	if blocks%n != 0 || blocks != n && !alike {
		return
	}
	for i := 1; i < n; i++ {
		p := q.at(first + i)
		p.wqe = q.at(first).wqe + uint16(i*blocks/n)
		p.is |= isWQEValid
	}
}

// queueOf finds the queue a post goes to, and makes what was not known.
func (e *Engine) queueOf(r *verbRecord) (*queuePair, *workQueue) {
	if r.flags&event.WRSRQ != 0 {
		s := e.objects.srq(r.pid, r.QP)
		return nil, &s.queue
	}
	qp := e.objects.queuePair(r.pid, r.QP)
	if qp != nil && r.QPNum != 0 && qp.num != r.QPNum {
		e.retire(qp, r.time)
		qp = nil
	}
	if qp == nil {
		qp = e.objects.add(r.pid, r.QP, r.QPNum)
		e.unprove(qp, r.time)
	}
	if r.flags&event.WRReceive != 0 {
		return qp, &qp.recvQueue
	}
	return qp, &qp.sendQueue
}

// postEnd takes a KindPostEnd. A return without a seen entry is ignored.
func (e *Engine) postEnd(r *verbRecord) {
	th := e.threads.thread(r.pid, r.tid)
	e.threads.runs(th, r.time, r.cpu)
	call := &th.call
	if !call.open || call.number != r.Call {
		e.met.strayReturns++
		return
	}
	qp, q := call.qp, call.queue
	if r.Result != 0 {
		e.refuse(r, call)
	}
	if missing := int32(r.Count) - call.seen; missing > 0 {
		// Records of this call did not arrive: they were posted all the same.
		e.ledger.lose(q.receive, int64(missing))
		if call.begin <= e.lossEnd {
			// The drop counters told of them already, but not of which side they are.
			counted := max(0, min(int64(missing), e.droppedPosts))
			e.droppedPosts -= counted
			e.ledger.lose(false, -counted)
		}
		e.lose(qp, q, r.time)
	}
	number, uses := e.submits.cut(&e.walker, th, call.begin, r.time), int32(0)
	blind := false
	for i, left := q.len()-1, call.left; i >= 0 && left > 0; i-- {
		p := q.at(i)
		if p.tid != r.tid || p.call != r.Call || p.postEnd != 0 || p.is&isTaken != 0 {
			continue
		}
		left--
		p.postEnd, p.traps, p.submit = max(r.time, p.postBegin), r.Traps, number
		uses++
		blind = blind || p.is&isBlind != 0
		e.announce(qp, q, p)
	}
	e.reorder(q, r.tid, r.Call, call.begin)
	e.purge(qp, q, r.tid, r.Call, r.time)
	e.resume(r, number)
	e.submits.use(number, uses)
	th.call = openCall{}
	if blind {
		e.lose(qp, q, r.time)
	}
	if qp != nil && !q.receive {
		e.tighten(qp, q, r.tid, r.time)
	}
}

// refuse removes the WRs that a failed call did not post: those from *bad_wr
// on, or all that a builder made. Without either it is known only of a call
// with a single WR which one failed.
func (e *Engine) refuse(r *verbRecord, call *openCall) {
	q := call.queue
	if r.Result == enomem || r.Result == -enomem {
		q.blocked = true
	}
	unknown := false
	for i, left := q.len()-1, call.left; i >= 0 && left > 0; i-- {
		p := q.at(i)
		if p.tid != r.tid || p.call != r.Call || p.postEnd != 0 || p.is&isTaken != 0 {
			continue
		}
		left--
		known := p.is&isBuilder != 0 || r.BadIndex >= 0 || call.seen == 1
		if !known {
			unknown = true
			continue
		}
		if p.is&isBuilder == 0 && r.BadIndex > int32(p.place) {
			continue
		}
		if i == q.len()-1 {
			q.next--
		}
		if !q.proven() && p.is&(isSignalled|isBeforeLoss) == isSignalled {
			q.anchor.posts--
		}
		e.leave(call.qp, q, p, settledRefused)
		q.cut(i)
	}
	if unknown {
		e.lose(call.qp, q, r.time)
	}
}

// abandon gives up on a call whose return was not seen although its thread
// went on: the latencies of its WRs cannot be cut.
func (e *Engine) abandon(th *thread) {
	call := &th.call
	if !call.open {
		return
	}
	e.met.missedReturns++
	q := call.queue
	for i, left := q.len()-1, call.left; i >= 0 && left > 0; i-- {
		p := q.at(i)
		if p.tid == th.tid && p.call == call.number && p.postEnd == 0 && p.is&isTaken == 0 {
			p.is |= isEndMissing
			e.announce(call.qp, q, p)
			left--
		}
	}
	e.dropDeferred(th)
	th.call = openCall{}
}

// announce tells the sink of a post that is certain.
func (e *Engine) announce(qp *queuePair, q *workQueue, p *pending) {
	if p.is&isAnnounced != 0 || qp == nil || q.receive {
		return
	}
	p.is |= isAnnounced
	q.noteFlag(p.is&isFlagged != 0)
	e.out.posted(qp, p.postBegin, p.tid, p.opcode, uint64(p.bytes), q.depth())
	q.inFlight++
}

// reorder puts the WRs of a call that returned in front of those of calls of
// other threads that have not: the verbs lock was theirs first. Where WQE
// indices are known they decide. Only calls that overlap this one, which began
// at begin, can have been passed.
func (e *Engine) reorder(q *workQueue, tid, call uint32, begin uint64) {
	n := q.len()
	first := n
	for first > 0 {
		p := q.at(first - 1)
		own := p.tid == tid && p.call == call
		open := p.postEnd == 0 && p.is&isEndMissing == 0
		if !own && !open && p.postEnd <= begin {
			break
		}
		first--
	}
	racing := false
	for i := first; i < n; i++ {
		racing = racing || q.at(i).tid != tid
	}
	if !racing {
		return
	}
	for i := first; i < n; i++ {
		p := q.at(i)
		p.is |= isRacing
		for j := first; j < i; j++ {
			// An index read before the lock was taken may be another's.
			if other := q.at(j); other.is&p.is&isWQEValid != 0 && other.wqe == p.wqe {
				other.is &^= isWQEValid
				p.is &^= isWQEValid
			}
		}
	}
	for i := first + 1; i < n; i++ {
		for j := i; j > first && queuedBefore(q.at(j), q.at(j-1)); j-- {
			*q.at(j), *q.at(j - 1) = *q.at(j - 1), *q.at(j)
		}
	}
}

// queuedBefore compares neighbours among racing WRs.
func queuedBefore(a, b *pending) bool {
	if a.tid == b.tid {
		return false
	}
	if a.is&b.is&isWQEValid != 0 {
		return int16(a.wqe-b.wqe) < 0
	}
	return a.postEnd != 0 && (b.postEnd == 0 || a.postEnd < b.postEnd)
}
