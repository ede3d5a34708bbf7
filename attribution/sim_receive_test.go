package attribution

import (
	"slices"

	"github.com/rdmatrace/rdmatrace/event"
)

// What the simulated program does beside sending: it receives, from queues of
// its own or one that all share, on the same CQ; and it destroys queue pairs and
// makes others, whose addresses and numbers may be those of former ones.

const (
	simRecv  = 128 // IBV_WC_RECV
	receives = 4   // kept posted
)

// nextWRID is the wr_id of the n-th request of a queue.
func (s *sim) nextWRID(n int) uint64 {
	switch s.wrID {
	case "counter":
		return uint64(n)
	case "slot":
		return uint64(n % 8)
	}
	return 7
}

// receiving is how many receives of a queue are not reaped: a program that tells
// them apart by the number of a buffer uses none before it has it back.
func (s *sim) receiving(q *trueQP) int {
	if s.shared {
		return s.sharedPosted - s.sharedTaken
	}
	return q.received - q.taken
}

// postReceive posts one receive, and lets a message come some time later.
func (s *sim) postReceive(tid uint32, q *trueQP, then func()) {
	s.calls[tid]++
	call, begin, epoch := s.calls[tid], s.now, q.epoch
	s.nextID++
	w := &trueWR{id: s.nextID, qp: q, begin: begin, signalled: true, receive: true, seen: s.now >= s.gate}
	v := event.Verb{QP: q.addr, QPNum: q.num, Stack: w.id, Begin: begin, Call: call, Bytes: uint32(w.id)}
	flags := uint32(event.WRReceive)
	if s.shared {
		v.QP, v.QPNum = tapeSRQ, 0
		flags |= event.WRSRQ
		w.wrID = s.nextWRID(s.sharedPosted)
		s.sharedPosted++
	} else {
		w.wrID = s.nextWRID(q.received)
		q.received++
	}
	v.WRID = w.wrID
	s.truth[w.id] = w
	q.calls++
	s.in(s.upTo(5), func() {
		if w.begin >= s.gate {
			s.tape.add(event.Event{Time: w.begin, TID: tid, Kind: event.KindWR, Flags: flags, Verb: v})
		}
		if s.shared {
			s.srq = append(s.srq, w)
		} else if q.epoch == epoch {
			q.rq = append(q.rq, w)
		}
		s.in(s.upTo(s.latency), func() { s.arrive(s.qps[s.rng.IntN(len(s.qps))], q, epoch) })
		s.in(s.upTo(5), func() {
			q.calls--
			v.Count, v.BadIndex = 1, -1
			s.emit(event.Event{TID: tid, Kind: event.KindPostEnd, Verb: v})
			then()
		})
	})
}

// arrive takes a receive for a message: of the queue that all share on any queue
// pair, else on the one it was posted to.
func (s *sim) arrive(anyone, q *trueQP, epoch int) {
	from := &q.rq
	if s.shared {
		q, epoch, from = anyone, anyone.epoch, &s.srq
	}
	if q.epoch != epoch || len(*from) == 0 {
		return
	}
	w := (*from)[0]
	*from = (*from)[1:]
	w.qp, w.num, w.done = q, q.num, s.now
	if q.failed {
		w.status = statusFlush
	}
	s.cq = append(s.cq, w)
}

// destroy a queue pair and make another, with its address, its number, both or
// neither. What is on it has no completion any more.
func (s *sim) destroy(q *trueQP) {
	s.forgetAll(q)
	s.describe(q, event.ObjectDestroyed, 3)
	if s.rng.IntN(2) == 0 {
		q.addr += 0x10000
	}
	if s.rng.IntN(2) == 0 {
		q.num += 0x100
	}
	s.describe(q, event.ObjectCreated, 0)
	s.describe(q, event.ObjectModified, 3)
}

// forgetAll that is on a queue pair.
func (s *sim) forgetAll(q *trueQP) {
	q.failed, q.sq, q.rq, q.wqe, q.posted, q.received, q.taken = false, nil, nil, 0, 0, 0, 0
	for _, w := range s.cq {
		if w.qp == q && w.receive {
			s.sharedTaken++
		}
	}
	q.epoch++
	s.cq = slices.DeleteFunc(s.cq, func(w *trueWR) bool { return w.qp == q })
}
