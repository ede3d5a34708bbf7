package attribution

import (
	"cmp"
	"math"
	"slices"

	"github.com/rdmatrace/rdmatrace/event"
)

// walker cuts a stretch of a thread's time into segments, by what the thread
// was doing at each instant.
type walker struct {
	tl *timelines
	cq *completionQueue // the one that is waited for; nil inside a posting call
	// What running is: submit before submitEnd, reap from reapBegin on, and
	// else the cause running.
	submitEnd, reapBegin uint64
	running              Cause

	segments []segment
	base     []segment // scratch, as are those below
	plain    []segment
	before   []segment
	tops     []onTop
	flat     []onTop
	open     []onTop
}

// maxSegments of one walk: what comes after them is not told apart, and nobody's.
const maxSegments = 8192

// maxWakers is how many wakers a chain is followed back.
const maxWakers = 4

// never is later than any time.
const never = 1<<64 - 1

// thread walks [begin, end] of th and appends its segments to w.segments.
func (w *walker) thread(th *thread, begin, end uint64) {
	if th.traps.len() == 0 || th.traps.last().begin+armTrapStale < begin {
		w.doings(th, begin, end)
		return
	}
	out := w.segments
	w.segments = w.plain[:0]
	w.doings(th, begin, end)
	w.plain, w.segments = w.segments, out
	w.charge(th, begin, end)
}

// doings are what the thread did, our probe of ibv_req_notify_cq included.
func (w *walker) doings(th *thread, begin, end uint64) {
	if begin < end && w.tl.undisturbed(th, begin) {
		w.runs(begin, end, th.tid, th.spans.last().cpu, 0)
		return
	}
	out := w.segments
	w.segments = w.base[:0]
	w.span(th, begin, end)
	w.base, w.segments = w.segments, out
	w.overlay(th, begin, end)
}

// span cuts without regard to interrupts, and to what was not recorded.
func (w *walker) span(th *thread, begin, end uint64) {
	gaps := &w.tl.gaps
	for seq := gaps.first; seq != gaps.next; seq++ {
		g := gaps.at(seq)
		if g.end <= begin || g.begin >= end {
			continue
		}
		w.spans(th, begin, max(begin, g.begin), 0)
		until := min(end, g.end)
		w.emit(max(begin, g.begin), until, CauseUndecided, nil, th.tid, -1)
		begin = until
	}
	w.spans(th, begin, end, 0)
}

// spans classifies [begin, end] of th; wakers is how many were followed to it.
func (w *walker) spans(th *thread, begin, end uint64, wakers int) {
	if begin >= end {
		return
	}
	spans := &th.spans
	seq, ok := search(spans, begin, (*span).beganAt)
	if !ok {
		first := end
		if spans.len() > 0 {
			first = min(end, spans.at(spans.first).begin)
		}
		w.tl.unknown += first - begin
		w.emit(begin, first, CauseUndecided, nil, th.tid, -1)
		begin, seq = first, spans.first
	}
	for ; begin < end && seq != spans.next; seq++ {
		until := end
		if seq+1 != spans.next {
			until = min(end, spans.at(seq+1).begin)
		}
		if until <= begin {
			continue
		}
		switch s := spans.at(seq); s.state {
		case stateRunning:
			w.runs(begin, until, th.tid, s.cpu, wakers)
		case stateRunnable:
			w.waits(th, seq, begin, until)
		case stateAsleep:
			w.sleeps(th, seq, begin, until, wakers)
		default:
			w.emit(begin, until, CauseUndecided, nil, th.tid, -1)
		}
		begin = until
	}
}

// runs classifies time on the CPU.
func (w *walker) runs(begin, end uint64, tid uint32, cpu int32, wakers int) {
	if wakers > 0 {
		w.emit(begin, end, Handoff, nil, tid, cpu)
		return
	}
	submit := min(max(begin, w.submitEnd), end)
	reap := min(max(submit, w.reapBegin), end)
	w.emit(begin, submit, Submit, nil, tid, cpu)
	w.emit(submit, reap, w.running, nil, tid, cpu)
	w.emit(reap, end, Reap, nil, tid, cpu)
}

// waits classifies time off the CPU while runnable.
func (w *walker) waits(th *thread, seq, begin, end uint64) {
	s := th.spans.at(seq)
	cause, cpu := Preempted, s.cpu
	switch s.why {
	case woken:
		cause = Runqueue
		// Where it was queued is known when it is moved or runs: select_task_rq
		// comes after sched_waking.
		if cpu < 0 && seq+1 != th.spans.next && th.spans.at(seq+1).state == stateRunning {
			cpu = th.spans.at(seq + 1).cpu
		}
	case yielded:
		cause = Yielded
	case throttled:
		w.emit(begin, end, Throttled, nil, th.tid, cpu)
		return
	}
	w.tl.instead(th, cpu, begin, end, func(begin, end uint64, who *culprit) {
		c := cause
		switch {
		case c == Yielded && who == nil:
			c = Runqueue
		case c == Preempted && who != nil && who.handlesInterrupt():
			c = IRQOnTop
		}
		w.emit(begin, end, c, who, th.tid, cpu)
	})
}

// emit appends a segment, or prolongs the last one if it is of the same kind.
func (w *walker) emit(begin, end uint64, cause Cause, who *culprit, tid uint32, cpu int32) {
	if begin < end { // often not: not worth a call
		w.extend(begin, end, cause, who, tid, cpu)
	}
}

func (w *walker) extend(begin, end uint64, cause Cause, who *culprit, tid uint32, cpu int32) {
	w.segments = appendSegment(w.segments, segment{begin, end, who, tid, int16(min(cpu, math.MaxInt16)), cause})
}

func appendSegment(segments []segment, s segment) []segment {
	if s.end <= s.begin {
		return segments
	}
	if n := len(segments); n > 0 && segments[n-1].end == s.begin {
		last := &segments[n-1]
		if n >= maxSegments {
			*last = segment{begin: last.begin, end: s.end, cause: CauseUndecided, tid: last.tid, cpu: -1}
			return segments
		}
		if last.cause == s.cause && last.tid == s.tid && last.cpu == s.cpu && isSame(last.who, s.who) {
			last.end = s.end
			return segments
		}
	}
	return append(segments, s)
}

// overlay appends the segments of w.base, which cover [begin, end], with the
// interrupts on top of th over them: they are charged where th was running.
func (w *walker) overlay(th *thread, begin, end uint64) {
	w.tops = w.tops[:0]
	first, _ := search(&th.tops, begin, (*onTop).endedAt)
	for seq := max(first+1, th.tops.first); seq != th.tops.next; seq++ {
		if top := th.tops.at(seq); top.begin < end && top.end > top.begin {
			w.tops = append(w.tops, *top)
		}
	}
	w.flatten()
	next := 0
	for _, s := range w.base {
		for ; next < len(w.tops) && w.tops[next].end <= s.begin; next++ {
		}
		at := s
		for i := next; s.tid == th.tid && isRunning(s.cause) && i < len(w.tops) && w.tops[i].begin < s.end; i++ {
			top := &w.tops[i]
			before, during := at, at
			before.end = max(at.begin, top.begin)
			during.begin, during.end = before.end, min(s.end, top.end)
			during.cause, during.who = IRQOnTop, w.tl.culprits.keep(top.culprit())
			w.segments = appendSegment(w.segments, before)
			w.segments = appendSegment(w.segments, during)
			at.begin = during.end
		}
		w.segments = appendSegment(w.segments, at)
	}
}

func isRunning(c Cause) bool {
	return c == Submit || c == LatePoll || c == Reap || c == Handoff
}

// flatten turns nested interrupts in w.tops into disjoint ones in the order of
// time: at each instant the innermost counts, which is the one begun last.
func (w *walker) flatten() {
	if len(w.tops) == 0 {
		return
	}
	slices.SortFunc(w.tops, func(a, b onTop) int {
		return cmp.Or(cmp.Compare(a.begin, b.begin), cmp.Compare(b.end, a.end))
	})
	tops := w.tops
	nested := false
	for i := 1; i < len(tops); i++ {
		nested = nested || tops[i].begin < tops[i-1].end
	}
	if !nested {
		return
	}
	flat := w.flat[:0]
	w.open = w.open[:0]
	var at uint64
	part := func(top onTop, end uint64) {
		if end > at {
			top.begin, top.end = at, end
			flat = append(flat, top)
			at = end
		}
	}
	for _, top := range tops {
		for n := len(w.open); n > 0 && w.open[n-1].end <= top.begin; n = len(w.open) {
			part(w.open[n-1], w.open[n-1].end)
			w.open = w.open[:n-1]
		}
		if n := len(w.open); n > 0 {
			part(w.open[n-1], top.begin)
		}
		at = max(at, top.begin)
		w.open = append(w.open, top)
	}
	for n := len(w.open); n > 0; n = len(w.open) {
		part(w.open[n-1], w.open[n-1].end)
		w.open = w.open[:n-1]
	}
	w.tops, w.flat = flat, w.tops
}

// culprit names the handler.
func (t *onTop) culprit() culprit {
	return interruptCulprit(t.kind, t.vec, t.name)
}

func interruptCulprit(kind event.InterruptKind, vec uint32, name [16]byte) culprit {
	c := culprit{id: vec}
	switch kind {
	case event.InterruptDevice, event.InterruptThread:
		c.kind, c.name = culpritIRQ, name
	case event.InterruptSoftirq:
		c.kind = culpritSoftirq
	case event.InterruptTimer:
		c.kind, c.id = culpritTimer, 0
	case event.InterruptIPI:
		c.kind = culpritIPI
	default:
		return culprit{}
	}
	return c
}
