package attribution

import (
	"cmp"
	"fmt"
	"slices"
)

// While a completion waits, between done and its reap, the thread that is to reap
// it does something else: it runs code, sleeps, or waits for a CPU. What it was at
// is told by call stacks: those that samples saw while it ran, and the one with
// which it left the CPU. That a completion waited is known only as it is reaped, so
// each thread's latest samples and spans are kept until then.

// lateMost stacks are kept apart; the smaller half is folded where they are more. What
// ran is told apart by the instruction: code that is seen often has many stacks.
const lateMost = 8192

// sampleLongest bounds what one sample may stand for, ns: a longer period is damage.
const sampleLongest = 1_000_000_000

// sampled is a sample of a thread.
type sampled struct{ time, stack, period uint64 }

func (s *sampled) takenAt() uint64 { return s.time }

// sampled takes a look at what a thread ran.
func (tl *timelines) sampled(r *sampleRecord) {
	if r.tid == 0 {
		return // the idle task is nobody
	}
	th := tl.thread(r.pid, r.tid)
	makeRoom(&th.samples, func(i uint64) uint64 { return th.samples.at(i).time }, tl.need)
	th.samples.push(sampled{r.time, r.Stack, min(r.Period, sampleLongest)})
}

// keepsWaiting are the causes that are the reaping thread's: in the others it waits for
// the completion itself. What an interrupt takes while it runs belongs to them, for a
// sample is taken in one: that of the clock.
var keepsWaiting = [numCauses]bool{
	Submit: true, LatePoll: true, Reap: true, OwnSleep: true, Handoff: true,
	IRQOnTop: true, Runqueue: true, Preempted: true, Yielded: true, Throttled: true,
	Probe: true, // our own traps are in its posts and polls
}

// delays are those of them that any completion can do without: in the others it is
// posted, or reaped.
var delays = [numCauses]bool{
	LatePoll: true, OwnSleep: true, Handoff: true, Runqueue: true, Preempted: true, Yielded: true, Throttled: true,
}

type lateKey struct {
	stack uint64
	pid   uint32
	doing Doing
}

type lateSum struct {
	ns      uint64
	samples int64
}

func (s *lateSum) merge(other *lateSum) {
	s.ns += other.ns
	s.samples += other.samples
}

// lateness sums what threads did while completions that somebody needed waited for
// them, each nanosecond of a thread once, however many completions there were.
type lateness struct {
	ns      [numDoings]uint64
	unknown uint64 // of times that were forgotten when they were asked about
	missed  uint64 // of times that were over before others that are kept apart, at most

	delay    uint64 // by each completion that was needed
	unneeded uint64 // of times in which completions waited that nobody was seen to need

	sums    map[lateKey]*lateSum
	last    *lateSum
	lastKey lateKey
	folded  [numDoings]lateSum
	folds   int64     // stacks that were too small to keep
	order   []lateKey // scratch
}

func newLateness() lateness { return lateness{sums: make(map[lateKey]*lateSum)} }

// keptWaiting takes the segments of m after done. What threads did is asked for
// completions that were needed; of the others, for how long they waited.
func (e *Engine) keptWaiting(m *measured) {
	if m.status != 0 {
		return
	}
	from := m.waitsFrom
	if m.uncertain {
		from = max(from, m.doneHigh)
	}
	needed := m.demand != Unproven
	l := &e.lateness
	for i := 0; i < len(m.segments); {
		begin, end, tid := m.segments[i].begin, m.segments[i].begin, m.segments[i].tid
		if !keepsWaiting[m.segments[i].cause] {
			i++
			continue
		}
		for ; i < len(m.segments); i++ {
			s := &m.segments[i]
			if !keepsWaiting[s.cause] || s.begin != end || s.tid != tid {
				break
			}
			if end = s.end; needed && delays[s.cause] && end > from {
				l.delay += end - max(s.begin, from)
			}
		}
		begin = max(begin, from)
		switch th := e.threads.known(tid); {
		case begin >= end:
		case th == nil:
			// It ended long before this queue pair was posted to again: nobody needed m.
			l.unneeded += end - begin
		case needed:
			l.missed += th.late.add(begin, end, func(begin, end uint64) { l.charge(th, begin, end) })
		default:
			l.unneeded += th.unneeded.add(begin, end, func(begin, end uint64) { l.unneeded += end - begin })
		}
	}
}

// charge a thread's time to what it did.
func (l *lateness) charge(th *thread, begin, end uint64) {
	if th.state() == stateRunning && th.spans.last().begin <= begin {
		l.ran(th, begin, end)
		return
	}
	seq, ok := search(&th.spans, begin, (*span).beganAt)
	if !ok {
		first := end
		if th.spans.len() > 0 {
			first = min(end, th.spans.at(th.spans.first).begin)
		}
		l.unknown += first - begin
		begin, seq = first, th.spans.first
	}
	for ; begin < end; seq++ {
		until := end
		if seq+1 != th.spans.next {
			until = min(end, th.spans.at(seq+1).begin)
		}
		if until <= begin {
			continue
		}
		switch s := th.spans.at(seq); s.state {
		case stateRunning:
			l.ran(th, begin, until)
		case stateAsleep:
			l.left(th, Slept, s.stack, until-begin)
		case stateRunnable:
			l.left(th, WaitedForCPU, s.stack, until-begin)
		default:
			l.unknown += until - begin
		}
		begin = until
	}
}

// ran from begin to end, with the samples in it.
func (l *lateness) ran(th *thread, begin, end uint64) {
	l.ns[Ran] += end - begin
	if th.samples.len() == 0 || th.samples.last().time < begin {
		return
	}
	seq := th.samples.first
	if before, ok := search(&th.samples, begin-1, (*sampled).takenAt); ok {
		seq = before + 1
	}
	for ; seq != th.samples.next && th.samples.at(seq).time < end; seq++ {
		s := th.samples.at(seq)
		l.sum(lateKey{s.stack, th.pid, Ran}).merge(&lateSum{s.period, 1})
	}
}

// left the CPU with that stack, so long ago.
func (l *lateness) left(th *thread, doing Doing, stack, ns uint64) {
	l.ns[doing] += ns
	l.sum(lateKey{stack, th.pid, doing}).ns += ns
}

func (l *lateness) sum(k lateKey) *lateSum {
	if l.last != nil && l.lastKey == k {
		return l.last
	}
	sum := l.sums[k]
	if sum == nil {
		if len(l.sums) >= lateMost {
			l.fold()
		}
		sum = new(lateSum)
		l.sums[k] = sum
	}
	l.last, l.lastKey = sum, k
	return sum
}

// fold the smaller half into one entry for each thing done.
func (l *lateness) fold() {
	l.last = nil
	l.order = l.order[:0]
	for k := range l.sums {
		l.order = append(l.order, k)
	}
	slices.SortFunc(l.order, func(a, b lateKey) int {
		return cmp.Or(cmp.Compare(l.sums[b].ns, l.sums[a].ns), compareLate(&a, &b))
	})
	for _, k := range l.order[len(l.order)/2:] {
		l.folded[k.doing].merge(l.sums[k])
		l.folds++
		delete(l.sums, k)
	}
}

func compareLate(a, b *lateKey) int {
	return cmp.Or(cmp.Compare(a.doing, b.doing), cmp.Compare(a.pid, b.pid), cmp.Compare(a.stack, b.stack))
}

// report gives all stacks. Each sample stands for its period, and all of them for no
// more than the time in which threads ran.
func (l *lateness) report() Late {
	r := Late{
		RanNS: int64(l.ns[Ran]), SleptNS: int64(l.ns[Slept]), WaitedNS: int64(l.ns[WaitedForCPU]),
		UnknownNS: int64(l.unknown), NotLookedAtNS: int64(l.missed),
		DelayNS: int64(l.delay), UnprovenNS: int64(l.unneeded),
	}
	add := func(s LateStack, sum *lateSum) {
		s.NS, s.Samples = int64(sum.ns), sum.samples
		r.Samples += sum.samples
		r.Stacks = append(r.Stacks, s)
	}
	for k, sum := range l.sums {
		add(LateStack{PID: k.pid, Stack: k.stack, Doing: k.doing}, sum)
	}
	for doing := range l.folded {
		if sum := &l.folded[doing]; sum.ns > 0 {
			add(LateStack{Doing: Doing(doing), Rest: true}, sum)
		}
	}
	r.scale()
	slices.SortFunc(r.Stacks, func(a, b LateStack) int {
		return cmp.Or(trueFirst(b.Rest, a.Rest), cmp.Compare(b.NS, a.NS), cmp.Compare(b.Samples, a.Samples),
			compareLate(&lateKey{a.Stack, a.PID, a.Doing}, &lateKey{b.Stack, b.PID, b.Doing}))
	})
	return r
}

// scale what samples stand for to the time in which threads ran, where it is more.
func (r *Late) scale() {
	var stood int64
	for i := range r.Stacks {
		if s := &r.Stacks[i]; s.Doing == Ran {
			stood += s.NS
		}
	}
	r.UnsampledNS = r.RanNS
	for i := range r.Stacks {
		s := &r.Stacks[i]
		if s.Doing != Ran {
			continue
		}
		if stood > r.RanNS {
			s.NS = int64(mulDiv(uint64(s.NS), uint64(r.RanNS), uint64(stood)))
		}
		r.UnsampledNS -= s.NS
	}
}

func (l *lateness) doubts() []string {
	if l.folds == 0 {
		return nil
	}
	return []string{fmt.Sprintf("more than %d call stacks of threads that completions waited for: the smaller ones are summed as %s", lateMost, other)}
}
