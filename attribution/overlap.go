package attribution

import "github.com/rdmatrace/rdmatrace/event"

// When two threads poll one CQ at the same time, the order in which their polls
// return need not be that in which they took completions. Where WQE indices are
// known, or the time is taken under the CQ's lock, that does not matter. Else a
// completion is held until no poll that overlaps it can be under way, and those
// that do overlap are told apart by wr_id or not at all.

const (
	// overlapNS is how long a poll may take, preemption included.
	overlapNS = 10_000_000
	// soleReaper: after so many completions by one thread a CQ is its own.
	soleReaper = 64
)

// heldCompletion waits for polls that overlap it, or for those that wait before it.
type heldCompletion struct {
	c        verbRecord
	cq       *completionQueue
	qp       *queuePair // whose send it is; nil: it is none, or of a queue pair not known
	until    uint64     // so long for polls that overlap it; 0: its own place is certain
	overlaps bool
}

// holds says whether the order of c among other threads' completions may be wrong.
func (e *Engine) holds(c *verbRecord, cq *completionQueue) bool {
	// Of receives the posts' indices are not known.
	if c.flags&event.CompletionWQEValid != 0 && c.Opcode&wcReceive == 0 || c.Begin == 0 || c.Begin >= c.time {
		return false
	}
	if cq.held > 0 {
		return true
	}
	if cq.reaps++; cq.latestTID != c.tid && cq.latestTID != 0 {
		cq.shared = true
	}
	return cq.shared || cq.reaps < soleReaper && e.manyThreads[c.pid] != soleThread(c.tid)
}

// soleThread is the entry of manyThreads for a process of whose threads only
// one was seen to use verbs; severalThreads that for others.
func soleThread(tid uint32) uint64 { return uint64(tid) + 1 }

const severalThreads = 1 << 40

// usesVerbs takes note of the threads of a process that post and poll.
func (e *Engine) usesVerbs(pid, tid uint32) {
	if e.latestUser == tid {
		return
	}
	e.latestUser = tid
	switch known := e.manyThreads[pid]; known {
	case 0:
		e.manyThreads[pid] = soleThread(tid)
	case soleThread(tid):
	default:
		e.manyThreads[pid] = severalThreads
	}
}

// hold keeps c. While it is held, what its queue pair has in flight is not known:
// see workQueue.depth.
func (e *Engine) hold(c *verbRecord, cq *completionQueue, uncertain bool) {
	h := heldCompletion{c: *c, cq: cq}
	if uncertain {
		h.until = c.time + overlapNS
		e.overlap(&h)
	}
	if c.Opcode&wcReceive == 0 {
		if h.qp = e.objects.completed(c.pid, c.QPNum, cq); h.qp != nil {
			h.qp.sendQueue.held++
		}
	}
	if e.held.full() {
		e.held.grow()
	}
	e.held.push(h)
	cq.held++
}

// overlap marks h, and what it overlaps of those whose place is uncertain, too:
// of what came before, what had not returned when h's poll began.
func (e *Engine) overlap(h *heldCompletion) {
	for seq := e.held.next; seq != e.held.first; seq-- {
		other := e.held.at(seq - 1)
		if other.c.time < h.c.Begin || other.c.time+overlapNS < h.c.time {
			break
		}
		if other.until != 0 && other.cq == h.cq && other.c.tid != h.c.tid {
			other.overlaps, h.overlaps = true, true
		}
	}
}

// release pairs the held completions that nothing can overlap any more at t.
func (e *Engine) release(t uint64) {
	for e.held.len() > 0 {
		h := *e.held.at(e.held.first)
		if h.until != 0 && h.until >= t {
			return
		}
		if h.overlaps {
			e.shuffle(&h)
		}
		e.held.pop()
		h.cq.held--
		if h.qp != nil {
			h.qp.sendQueue.held--
		}
		e.reap(&h.c, h.cq)
	}
}

// shuffle marks the WRs that h and the completions it overlaps may belong to.
func (e *Engine) shuffle(h *heldCompletion) {
	qp := e.objects.completed(h.c.pid, h.c.QPNum, h.cq)
	if qp == nil {
		return
	}
	q := &qp.sendQueue
	if h.c.Opcode&wcReceive != 0 {
		q = e.receiveQueue(qp)
	}
	n := 0
	for seq := e.held.first; seq != e.held.next; seq++ {
		other := e.held.at(seq)
		if other.until == 0 || other.cq != h.cq || other.c.QPNum != h.c.QPNum {
			continue
		}
		if !other.overlaps {
			break
		}
		n++
	}
	for i := 0; i < q.len() && n > 0; i++ {
		p := q.at(i)
		p.is |= isShuffled
		if p.is&isSignalled != 0 {
			n--
		}
	}
}
