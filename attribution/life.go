package attribution

import (
	"fmt"

	"github.com/rdmatrace/rdmatrace/event"
)

// States of enum ibv_qp_state.
const (
	qpReset = iota
	qpInit
	qpRTR
)

// queuePairEvent follows the life of a queue pair.
func (e *Engine) queuePairEvent(r *rareRecord) {
	what, a := r.object.Event, r.object.QP
	qp := e.objects.queuePair(r.pid, a.Addr)
	if qp != nil && what == event.ObjectFound {
		e.foundKnown(qp, a, r.pid)
		return
	}
	if qp != nil && (qp.num != a.Num && a.Num != 0 || what == event.ObjectCreated) {
		e.retire(qp, r.time)
		qp = nil
	}
	if what == event.ObjectDestroyed {
		if qp != nil {
			e.retire(qp, r.time)
		}
		return
	}
	if qp == nil {
		qp = e.objects.add(r.pid, a.Addr, a.Num)
		if what == event.ObjectCreated {
			qp.created = r.time
		}
		qp.learn(what, a)
		e.unprove(qp, r.time)
	} else {
		qp.learn(what, a)
	}
	e.nameDevice(qp, r.pid)
	e.objects.couple(qp)
	e.proveByState(qp, what, a, r.time)
}

// foundKnown adds what a look at the process says of a queue pair that was met
// already. The look took its time: what was seen of it since is newer, be it its
// state or that it is another one now.
func (e *Engine) foundKnown(qp *queuePair, a *event.QP, pid uint32) {
	if qp.num != a.Num {
		return
	}
	state := qp.state
	qp.learn(event.ObjectFound, a)
	if state != qpReset {
		qp.state = state
	}
	e.nameDevice(qp, pid)
	e.objects.couple(qp)
}

func (e *Engine) nameDevice(qp *queuePair, pid uint32) {
	if name, ok := e.objects.contexts[objectKey{pid, qp.context}]; ok {
		qp.device = name
	}
}

// proveByState anchors queues in states in which they are empty. A queue pair
// found in RESET may be one whose state could not be read: the modify that
// brings it up will tell.
func (e *Engine) proveByState(qp *queuePair, what event.ObjectEvent, a *event.QP, t uint64) {
	switch {
	case what == event.ObjectCreated, what == event.ObjectModified && a.AttrMask&attrState != 0 && a.State == qpReset:
		e.empty(qp, &qp.sendQueue, t)
		e.empty(qp, &qp.recvQueue, t)
		qp.failed, qp.emptyAt = false, t
	case what == event.ObjectModified && a.AttrMask&attrState == 0:
	case a.State == qpInit:
		if what == event.ObjectModified && qp.recvQueue.next == 0 {
			e.empty(qp, &qp.recvQueue, t)
		}
		fallthrough
	case a.State == qpRTR:
		e.empty(qp, &qp.sendQueue, t)
	}
}

// empty says that a queue holds nothing: what was pending has no completion any
// more (mlx5 removes its CQEs).
func (e *Engine) empty(qp *queuePair, q *workQueue, t uint64) {
	e.closeQueue(qp, q, e.atItsEnd(qp))
	if q.proven() || q.anchor.isLossy(t) {
		return
	}
	q.prove(provenEmpty)
}

// atItsEnd is how what is pending is booked when its queue pair ends.
func (e *Engine) atItsEnd(qp *queuePair) settlement {
	if qp.failed {
		return settledFlushed
	}
	return settledOutstanding
}

// retire ends a queue pair.
func (e *Engine) retire(qp *queuePair, t uint64) {
	qp.ended = t
	e.closeQueue(qp, &qp.sendQueue, e.atItsEnd(qp))
	e.closeQueue(qp, &qp.recvQueue, e.atItsEnd(qp))
	e.out.gone(qp, t)
	e.letGo(qp, 0, 0)
	e.objects.remove(qp)
	e.flights.forget(qp)
	qp.undemanded = nil
	qp.sendQueue.buf, qp.recvQueue.buf = nil, nil
	qp.sendQueue.head, qp.sendQueue.tail = 0, 0
	qp.recvQueue.head, qp.recvQueue.tail = 0, 0
}

func (e *Engine) completionQueueEvent(r *rareRecord) {
	a := r.object.CQ
	k := objectKey{r.pid, a.Addr}
	if r.object.Event == event.ObjectDestroyed || r.object.Event == event.ObjectCreated {
		e.objects.offChannel(e.objects.cqs[k])
		e.disarmed(e.objects.cqs[k])
		delete(e.objects.cqs, k)
		e.objects.latestCQ = nil
	}
	if r.object.Event == event.ObjectDestroyed {
		return
	}
	c := e.objects.cq(r.pid, a.Addr)
	if r.object.Event == event.ObjectCreated {
		c.writings.synced, c.vector = true, a.CompVector
	}
	set(&c.context, a.Context)
	e.objects.onChannel(c, a.ChannelFD)
}

func (e *Engine) contextEvent(r *rareRecord) {
	a := r.object.Context
	k := objectKey{r.pid, a.Addr}
	if r.object.Event == event.ObjectDestroyed {
		delete(e.objects.contexts, k)
		return
	}
	e.objects.contexts[k] = a.Device
	for _, qp := range e.objects.live {
		if qp.pid == r.pid && qp.context == a.Addr {
			qp.device = a.Device
		}
	}
}

// maxDropped records at once is more than any ring holds or any CPU makes in a trace: a
// larger count is damage, and the sum of many of such would not be a number of records.
const maxDropped = 1 << 40

// lossEvent takes that records are missing from r.time to r.lossEnd.
func (e *Engine) lossEvent(r *rareRecord) {
	of := r.lossOf
	if int(of) >= len(e.met.dropped) {
		of = 0
	}
	count := min(r.lossCount, maxDropped)
	e.met.dropped[of] += count
	switch of {
	case 0, event.KindCompletion, event.KindCQE:
		e.loseWritings(r.lossEnd)
	}
	switch of {
	case 0, event.KindCompletion, event.KindArm, event.KindCQEvent:
		e.loseNotices()
	}
	switch of {
	case event.KindWR, event.KindPostEnd, event.KindCompletion, event.KindQP:
		e.loseAll(r.time, r.lossEnd)
	case event.KindSwitch, event.KindWaking, event.KindQuota, event.KindMigration, event.KindTask:
		e.threads.lost(r.time, r.lossEnd)
	case 0:
		e.loseAll(r.time, r.lossEnd)
		e.threads.lost(r.time, r.lossEnd)
	}
	if of == event.KindWR {
		e.ledger.lose(false, int64(count))
		e.droppedPosts += int64(count)
	}
}

// late takes an event that comes after the watermark: what it says is lost,
// but for facts that do not depend on when they were learnt.
func (e *Engine) late(ev *event.Event) {
	e.met.late[roomOf[ev.Kind]]++
	r := rareRecord{
		stamp:  stamp{max(ev.Time, e.now), ev.PID, ev.TID, ev.Flags, ev.CPU, ev.Kind},
		object: ev.Object,
	}
	switch ev.Kind {
	case event.KindCQE:
		e.loseWritings(e.now)
	case event.KindArm, event.KindCQEvent:
		e.loseNotices()
	case event.KindWR, event.KindPostEnd, event.KindCompletion:
		e.loseOf(ev)
	case event.KindSwitch, event.KindWaking, event.KindQuota, event.KindMigration:
		e.threads.lost(ev.Time, e.order.handedOut())
	case event.KindQP:
		e.release(never)
		if ev.Object.Event == event.ObjectFound && e.objects.queuePair(ev.PID, ev.Object.QP.Addr) == nil ||
			ev.Object.Event == event.ObjectModified {
			e.queuePairEvent(&r)
		}
	case event.KindCQ:
		if ev.Object.Event == event.ObjectFound {
			e.completionQueueEvent(&r)
		}
	case event.KindDeviceContext:
		e.contextEvent(&r)
	case event.KindPause:
		e.pauseEvent(&r)
	case event.KindLoss:
		r.lossEnd, r.lossCount, r.lossOf = ev.Time, ev.Loss.Count, ev.Loss.Of
		r.time = min(ev.Loss.Begin, ev.Time)
		e.lossEvent(&r)
	}
}

// loseOf un-anchors the queues that a late post or completion belongs to.
func (e *Engine) loseOf(ev *event.Event) {
	v := &ev.Verb
	if ev.Kind == event.KindCompletion {
		cq := e.objects.cq(ev.PID, v.CQ)
		e.loseWritings(e.now)
		e.loseNotices()
		if qp := e.objects.completed(ev.PID, v.QPNum, cq); qp != nil {
			e.lose(qp, &qp.sendQueue, e.now)
			e.lose(qp, &qp.recvQueue, e.now)
		}
		return
	}
	r := verbRecord{stamp: stamp{ev.Time, ev.PID, ev.TID, ev.Flags, ev.CPU, ev.Kind}, Verb: *v}
	if ev.Kind == event.KindPostEnd {
		if th := e.threads.known(ev.TID); th != nil && th.call.open && th.call.number == v.Call {
			e.abandon(th)
		}
		return
	}
	if r.flags&event.WRSRQ == 0 && e.objects.queuePair(r.pid, r.QP) == nil {
		return
	}
	qp, q := e.queueOf(&r)
	if qp != nil && !q.receive {
		e.out.lost(qp, min(beginOf(&r), e.now))
	}
	e.ledger.lose(q.receive, 1)
	if th := e.threads.known(r.tid); th != nil && th.call.open && th.call.number == r.Call && th.call.queue == q {
		th.call.seen++ // so that its return does not miss it once more
	}
	e.lose(qp, q, e.now)
}

// clockOf gives the clock of a queue pair's device.
func (e *Engine) clockOf(qp *queuePair) *deviceClock {
	if qp.clock == nil {
		name := qp.device
		if name == "" {
			name = fmt.Sprintf("context 0x%x of %d", qp.context, qp.pid)
		}
		if e.clocks[name] == nil {
			e.clocks[name] = new(deviceClock)
		}
		qp.clock = e.clocks[name]
	}
	return qp.clock
}
