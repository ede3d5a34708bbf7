package attribution

import (
	"slices"

	"github.com/rdmatrace/rdmatrace/event"
)

// sleeps classifies a part [begin, end] of the sleep that is span seq of th.
func (w *walker) sleeps(th *thread, seq, begin, end uint64, wakers int) {
	s := th.spans.at(seq)
	up, until := th.wakeOf(seq, end)
	switch {
	case w.onCQ(s, until):
		w.delivered(th, s.cpu, up, begin, end)
	case w.handedOff(up, begin, until, wakers):
		w.spans(w.tl.known(up.tid), begin, end, wakers+1)
	default:
		var who *culprit
		if s.syscall >= 0 {
			who = w.tl.culprits.keep(culprit{kind: culpritSyscall, id: uint32(s.syscall)})
		}
		w.emit(begin, end, OwnSleep, who, th.tid, s.cpu)
	}
}

// wakeOf gives what ended the sleep that is span seq, nil if that was not seen
// or has not come, and when it ended, end if it has not.
func (th *thread) wakeOf(seq, end uint64) (up *wake, until uint64) {
	if seq+1 == th.spans.next {
		return nil, end
	}
	next := th.spans.at(seq + 1)
	if next.wake > th.wakes.first {
		up = th.wakes.at(next.wake - 1)
	}
	return up, next.begin
}

// onCQ says whether a sleep until end waited for the completion queue: in a
// read of its channel, or in a system call that may watch the channel while
// the queue was armed.
func (w *walker) onCQ(s *span, end uint64) bool {
	if w.cq == nil || s.syscall < 0 {
		return false
	}
	if slices.Contains(w.tl.calls.reads, s.syscall) {
		if w.cq.fd >= 0 {
			return s.arg == uint64(w.cq.fd)
		}
		return w.cq.isArmed(s.begin, end)
	}
	return slices.Contains(w.tl.calls.polls, s.syscall) && w.cq.isArmed(s.begin, end)
}

// delivered classifies a sleep on the completion queue: delivery until the
// handler that led to the wakeup, then that handler: where a line raised the
// softirq that woke the thread, from the line's. Of delivery, the part is told apart
// in which the CPU that took the interrupt was idle, and had to wake up for it. A waker in task context (a pipe,
// an eventfd, a workqueue) is named, with what led to it. Either may have told the
// queue's event.
func (w *walker) delivered(th *thread, cpu int32, up *wake, begin, end uint64) {
	switch {
	case up == nil:
		w.emit(begin, end, Delivery, nil, th.tid, cpu)
	case up.interrupt != event.InterruptNone:
		handler := min(max(begin, up.interruptBegin), end)
		idle := handler
		if up.idleSince != 0 {
			idle = min(max(begin, up.idleSince), handler)
		}
		w.emit(begin, idle, Delivery, nil, th.tid, cpu)
		w.emit(idle, handler, Delivery, w.tl.culprits.keep(culprit{kind: culpritIdle}), th.tid, cpu)
		who := interruptCulprit(up.interrupt, up.vec, [16]byte{})
		who.chain, who.told = up.chain, up.cq != 0 && up.cq == w.cq.addr
		w.emit(handler, end, Handler, w.tl.culprits.keep(who), th.tid, cpu)
	default:
		who := up.culprit()
		who.told = up.cq != 0 && up.cq == w.cq.addr
		w.emit(begin, end, Delivery, w.tl.culprits.keep(who), th.tid, cpu)
	}
}

func (u *wake) culprit() culprit {
	if u.tid == 0 {
		return culprit{} // the idle task is never one
	}
	return culprit{kind: culpritTask, id: u.tid, pid: u.pid, name: [16]byte(u.comm), chain: u.chain}
}

// handedOff says whether a sleep from begin to end ended because a dispatcher
// that was woken for this completion queue, or found its event waiting, woke the
// sleeper. When it was woken does not matter: done, from where the sleep is looked
// at, may be known badly, and after an event that was there already it did not sleep.
func (w *walker) handedOff(up *wake, begin, end uint64, wakers int) bool {
	waker := w.wakerOf(up, wakers)
	if waker == nil {
		return false
	}
	if _, found := w.lastWake(waker, begin, end, wakers+1); found {
		return true
	}
	return w.dispatches(waker, begin, end, wakers+1)
}

// dispatches says whether th, or who woke it in [begin, end], has lately waited
// for the completion queue, or armed it.
func (w *walker) dispatches(th *thread, begin, end uint64, wakers int) bool {
	if w.cq.armedBy(th.tid) {
		return true
	}
	seq, ok := search(&th.spans, end, (*span).beganAt)
	for ; ok && seq > th.spans.first && th.spans.at(seq).begin+lately >= begin; seq-- {
		s := th.spans.at(seq - 1)
		if s.state != stateAsleep {
			continue
		}
		up, until := th.wakeOf(seq-1, end)
		if w.onCQ(s, until) {
			return true
		}
		if until < begin {
			continue
		}
		if waker := w.wakerOf(up, wakers); waker != nil && w.dispatches(waker, max(begin, s.begin), until, wakers+1) {
			return true
		}
	}
	return false
}

// wakerOf is the thread that woke, nil if it is none of the targets' or there are
// too many wakers behind one another.
func (w *walker) wakerOf(up *wake, wakers int) *thread {
	if w.cq == nil || up == nil || up.interrupt != event.InterruptNone || wakers >= maxWakers {
		return nil
	}
	return w.tl.known(up.tid)
}

// wakeFromCQ follows wakers back to the latest sleep on the completion queue
// that ended in [begin, end], and gives the wake that ended it.
func (w *walker) wakeFromCQ(up *wake, begin, end uint64, wakers int) (*wake, bool) {
	waker := w.wakerOf(up, wakers)
	if waker == nil {
		return nil, false
	}
	return w.lastWake(waker, begin, end, wakers+1)
}

// lastWake looks for the latest sleep of th that ended in [begin, end] and was
// a sleep on the completion queue, or led back to one.
func (w *walker) lastWake(th *thread, begin, end uint64, wakers int) (*wake, bool) {
	seq, ok := search(&th.spans, end, (*span).beganAt)
	for ; ok && seq > th.spans.first && th.spans.at(seq).begin >= begin; seq-- {
		s := th.spans.at(seq - 1)
		if s.state != stateAsleep {
			continue
		}
		up, until := th.wakeOf(seq-1, end)
		if w.onCQ(s, until) {
			return up, true
		}
		if found, ok := w.wakeFromCQ(up, max(begin, s.begin), until, wakers); ok {
			return found, true
		}
	}
	return nil, false
}
