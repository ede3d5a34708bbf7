package export

import (
	"cmp"
	"slices"

	"github.com/rdmatrace/rdmatrace/event"
)

// stretch of a recorded run that can be repeated.
type stretch struct {
	begin, end uint64
	// partial are the events, by their number, of sends of which one is posted before
	// begin or end and completed after it.
	partial map[int]bool
}

// queueName names a work queue.
type queueName struct {
	qp      uint32
	receive bool
}

const wcReceive = 128 // IBV_WC_RECV

func queueOf(e *event.Event) queueName {
	if e.Kind == event.KindCompletion {
		return queueName{e.Verb.QPNum, e.Verb.Opcode&wcReceive != 0}
	}
	return queueName{e.Verb.QPNum, e.Flags&event.WRReceive != 0}
}

// callName names a posting call.
type callName struct{ tid, call uint32 }

func callOf(e *event.Event) callName { return callName{e.TID, e.Verb.Call} }

// survey finds the longest stretch and what is partial in it.
func survey(events []event.Event) *stretch {
	order := make([]int, len(events))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(events[a].Time, events[b].Time) })
	s := new(stretch)
	s.begin, s.end = longest(events, order)
	s.findPartial(events, order)
	return s
}

// longest stretch in which objects neither come nor go, and at both ends of which no
// thread is posting and each queue holds as many receives.
func longest(events []event.Event, order []int) (begin, end uint64) {
	var posting int
	var held uint64 // sum of the receives that queues hold, weighted by queue
	since := map[uint64]uint64{}
	first, last := steady(events, order)
	for n := first; n < last; n++ {
		e := &events[order[n]]
		switch {
		case e.Kind == event.KindPostEnd:
			posting--
		case e.Kind == event.KindWR && e.Verb.Index == 0:
			posting++
		}
		if queue := queueOf(e); queue.receive {
			weight := uint64(queue.qp) * 0x9e3779b97f4a7c15
			if e.Kind == event.KindCompletion {
				weight = -weight
			}
			held += weight
		}
		if posting > 0 || e.Time == events[order[n+1]].Time {
			continue
		}
		if from, ok := since[held]; !ok {
			since[held] = e.Time + 1
		} else if e.Time+1-from > end-begin {
			begin, end = from, e.Time+1
		}
	}
	return begin, end
}

// steady gives the first event after all objects are made, and all WQE indices
// verified if they are, and the last one before any ends.
func steady(events []event.Event, order []int) (first, last int) {
	last = len(order) - 1
	indexed, blank, latestBlank := 0, 0, 0
	for n, i := range order {
		e := &events[i]
		switch ends := e.Object != nil && (e.Object.Event == event.ObjectDestroyed || e.Object.Task != nil && e.Object.Task.Event == event.TaskExited); {
		case ends && blank+indexed > 0:
			last = min(last, n-1)
		case e.Object != nil:
			first = n + 1
		case e.Kind != event.KindCompletion:
		case e.Flags&event.CompletionWQEValid != 0:
			indexed++
		default:
			blank++
			latestBlank = n + 1
		}
	}
	if indexed > blank {
		first = max(first, latestBlank)
	}
	return first, last
}

// uses gives how many calls a thread makes in the stretch, and how many WQEs of a
// basic block each a queue has posted.
func (s *stretch) uses(events []event.Event) (calls map[uint32]uint32, wqes map[queueName]uint16) {
	first := map[uint32]uint32{}
	calls, wqes = map[uint32]uint32{}, map[queueName]uint16{}
	for i := range events {
		e := &events[i]
		if e.Kind != event.KindWR || s.part(e.Time) != within || s.partial[i] {
			continue
		}
		wqes[queueOf(e)]++
		if n, ok := first[e.TID]; !ok || e.Verb.Call < n {
			calls[e.TID] += n - min(n, e.Verb.Call)
			first[e.TID] = e.Verb.Call
		}
		calls[e.TID] = max(calls[e.TID], e.Verb.Call-first[e.TID]+1)
	}
	return calls, wqes
}

// sent is a send, and the numbers of the events that tell of it.
type sent struct {
	call      callName
	completed int // -1: not
	at        uint64
	wqe       uint16
	signalled bool
}

func (s *stretch) findPartial(events []event.Event, order []int) {
	sends := pairSends(events, order)
	calls, completions := map[callName]bool{}, map[int]bool{}
	for changed := true; changed; {
		changed = false
		for i := range sends {
			w := &sends[i]
			out := w.completed < 0 || calls[w.call] || completions[w.completed] ||
				s.part(w.at) != s.part(events[w.completed].Time)
			if out && !(calls[w.call] && (w.completed < 0 || completions[w.completed])) {
				calls[w.call], changed = true, true
				if w.completed >= 0 {
					completions[w.completed] = true
				}
			}
		}
	}
	s.partial = completions
	for i := range events {
		if e := &events[i]; (e.Kind == event.KindWR || e.Kind == event.KindPostEnd) && calls[callOf(e)] {
			s.partial[i] = true
		}
	}
}

const (
	before = iota
	within
	after
)

// part of the run that a time lies in.
func (s *stretch) part(t uint64) int {
	switch {
	case t < s.begin:
		return before
	case t < s.end:
		return within
	}
	return after
}

// pairSends finds the completion of each send: by its WQE index where that is known,
// else that of the oldest signalled one.
func pairSends(events []event.Event, order []int) []sent {
	var all []sent
	pending := map[uint32][]int{} // by queue pair, numbers in all
	for _, i := range order {
		e := &events[i]
		queue := queueOf(e)
		switch {
		case queue.receive:
		case e.Kind == event.KindWR:
			w := sent{callOf(e), -1, e.Time, e.Verb.WQE, e.Verb.SendFlags&2 != 0} // IBV_SEND_SIGNALED
			if e.Flags&event.WRWQEValid == 0 && e.Verb.Index > 0 {
				w.wqe = all[len(all)-1].wqe + 1
			}
			all = append(all, w)
			pending[queue.qp] = append(pending[queue.qp], len(all)-1)
		case e.Kind == event.KindCompletion:
			n := retires(all, pending[queue.qp], e)
			for _, k := range pending[queue.qp][:n] {
				all[k].completed = i
			}
			pending[queue.qp] = pending[queue.qp][n:]
		}
	}
	return all
}

// retires gives how many of the pending sends a completion retires.
func retires(all []sent, pending []int, c *event.Event) int {
	for n, k := range pending {
		if c.Flags&event.CompletionWQEValid != 0 && all[k].wqe == c.Verb.WQE ||
			c.Flags&event.CompletionWQEValid == 0 && all[k].signalled {
			return n + 1
		}
	}
	return 0
}
