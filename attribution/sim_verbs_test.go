package attribution

import "github.com/rdmatrace/rdmatrace/event"

// post makes a list and posts it: the probe fires at entry, the library takes
// its lock some time later, and the return probe fires later still.
func (s *sim) post(tid uint32, q *trueQP, then func()) {
	n := 1 + s.rng.IntN(s.list)
	s.calls[tid]++
	call, begin := s.calls[tid], s.now
	hidden := s.unseen > 0 && s.rng.IntN(s.unseen) == 0
	list := make([]*trueWR, n)
	for i := range list {
		s.nextID++
		w := &trueWR{id: s.nextID, qp: q, num: q.num, wrID: s.nextWRID(q.posted + i), begin: begin, seen: !hidden && s.now >= s.gate}
		w.signalled = s.sigAll || (q.posted+i)%s.signal == s.signal-1
		s.truth[w.id] = w
		list[i] = w
	}
	epoch := q.epoch
	q.posted += n
	q.calls++
	at := max(s.now+s.upTo(5), q.locked+1)
	q.locked = at
	s.in(at-s.now, func() {
		taken := 0
		if !q.failed && q.epoch == epoch {
			taken = min(n, s.depth-len(q.sq))
			if s.builder && taken < n {
				taken = 0
			}
		}
		s.ring(q, list[:taken])
		if !hidden {
			s.record(tid, call, q, list, taken)
		}
		for _, w := range list[taken:] {
			delete(s.truth, w.id)
		}
		q.posted -= n - taken
		result, bad := int32(0), int32(-1)
		if taken < n {
			result = enomem
			if !s.builder {
				bad = int32(taken)
			}
		}
		s.in(s.upTo(5), func() {
			q.calls--
			if !hidden {
				s.emit(event.Event{TID: tid, Kind: event.KindPostEnd, Verb: event.Verb{
					QP: q.addr, Begin: begin, Call: call, Count: uint16(n), Result: result, BadIndex: bad,
				}})
			}
			then()
		})
	})
}

// record tells of the posts. They count from the entry of the call, though the
// WQE indices are read later.
func (s *sim) record(tid, call uint32, q *trueQP, list []*trueWR, taken int) {
	for i, w := range list {
		flags := uint32(0)
		if s.builder {
			flags |= event.WRBuilder
		}
		if s.wqe && i < taken {
			flags |= event.WRWQEValid
		}
		v := event.Verb{
			QP: q.addr, QPNum: q.num, WRID: w.wrID, Stack: w.id, Begin: w.begin, Call: call, Index: uint16(i),
			Bytes: uint32(w.id), WQE: w.wqe,
		}
		if w.signalled && !s.sigAll {
			v.SendFlags = sendSignaled
		}
		if w.begin >= s.gate {
			s.tape.add(event.Event{Time: w.begin, TID: tid, Kind: event.KindWR, Flags: flags, Verb: v})
		}
	}
}

// ring gives work requests to the device.
func (s *sim) ring(q *trueQP, list []*trueWR) {
	for _, w := range list {
		w.wqe = q.wqe
		q.wqe++
		w.done = max(s.now+s.upTo(s.latency), q.last+1)
		q.last = w.done
		q.sq = append(q.sq, w)
		if s.fails > 0 && s.rng.IntN(s.fails) == 0 {
			w.status = 12
		}
		epoch := q.epoch
		s.in(w.done-s.now, func() {
			if q.epoch != epoch {
				return
			}
			if q.failed {
				w.status = statusFlush
			}
			if w.status != 0 {
				q.failed = true
			}
			if w.signalled || w.status != 0 {
				s.cq = append(s.cq, w)
			}
		})
	}
}

// poll looks at the CQ some time after its entry and returns some time later.
func (s *sim) poll(tid uint32, then func()) {
	begin := s.now
	s.in(s.upTo(3), func() {
		n := min(len(s.cq), 1+s.rng.IntN(4))
		taken := append([]*trueWR(nil), s.cq[:n]...)
		s.cq = s.cq[n:]
		for _, w := range taken {
			s.retire(w)
			switch {
			case w.receive && s.shared:
				s.sharedTaken++
			case w.receive:
				w.qp.taken++
			}
		}
		s.in(s.upTo(3), func() {
			// The probes keep the latest empty poll at the returns of polls.
			last, lastTID := s.empty, s.emptyT
			if n == 0 {
				s.empty, s.emptyT = begin, tid
			}
			for i, w := range taken {
				s.complete(tid, begin, last, lastTID, w, i, n)
			}
			pause := s.upTo(s.lazy)
			if s.poller && tid == third {
				s.in(pause, func() { s.poll(tid, then) })
				return
			}
			s.in(pause, then)
		})
	})
}

// retire takes a work request and all before it out of the send queue.
func (s *sim) retire(w *trueWR) {
	for i, other := range w.qp.sq {
		if other == w {
			w.qp.sq = w.qp.sq[i+1:]
			return
		}
	}
}

func (s *sim) complete(tid uint32, begin, lastEmpty uint64, lastTID uint32, w *trueWR, i, n int) {
	flags, opcode := uint32(0), uint8(0)
	if s.wqe {
		flags |= event.CompletionWQEValid
	}
	if w.receive {
		opcode = simRecv
	}
	if s.noEmpty {
		flags |= event.CompletionNoEmpty
		lastEmpty, lastTID = 0, 0
	}
	s.emit(event.Event{
		TID: tid, Kind: event.KindCompletion, Flags: flags, CPU: uint16(w.id),
		Verb: event.Verb{
			CQ: tapeCQ, QPNum: w.num, Opcode: opcode, WRID: w.wrID, Begin: begin, LastEmpty: lastEmpty, LastEmptyTID: lastTID,
			Index: uint16(i), Count: uint16(n), WQE: w.wqe, Status: w.status,
		},
	})
}
