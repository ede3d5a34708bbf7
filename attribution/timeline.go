package attribution

import "github.com/rdmatrace/rdmatrace/event"

// reason says why a thread is in the state it is in.
type reason uint8

const (
	noReason  reason = iota
	woken            // runnable: slept and was woken
	preempted        // runnable: taken off the CPU
	yielded          // runnable: by sched_yield
	throttled        // runnable: its cgroup's quota is used up
	exited           // asleep for ever
)

// span is a stretch of a thread's time in one state. It lasts until the next
// one begins.
type span struct {
	begin   uint64
	arg     uint64 // first argument of syscall
	wake    uint64 // of woken: sequence number in wakes, plus one; 0: not seen
	stack   uint64 // off the CPU: where it left it; 0: unknown
	syscall int32  // asleep: the system call it sleeps in, -1: none
	cpu     int32  // running or runnable there; -1: unknown
	state   threadState
	why     reason
}

// wake is who or what woke a thread.
type wake struct {
	time           uint64
	interruptBegin uint64 // entry of the handler it ran in, or of the first of those that alone led to it
	idleSince      uint64 // of the CPU that took the first of them; 0: it was not idle
	cq             uint64 // the completion queue whose event woke; 0: none or not known
	chain          *event.Chain
	tid, pid       uint32 // the waker: who was current
	vec            uint32
	interrupt      event.InterruptKind
	comm           event.Comm
}

// onTop is an interrupt that ran on top of a thread.
type onTop struct {
	begin, end uint64
	vec        uint32
	kind       event.InterruptKind
	name       [16]byte
}

// thread is a thread of a target and its recent past.
type thread struct {
	pid, tid uint32
	spans    ring[span]
	wakes    ring[wake]
	early    wake        // came while it ran, since it came to the CPU last
	tops     ring[onTop] // in the order of their ends
	samples  ring[sampled]
	traps    ring[armTrap]
	late     coverage // when completions waited for it that somebody needed
	unneeded coverage // when others did
	call     openCall
	exiting  bool
}

const (
	// spansFree are kept without asking whether anybody needs them.
	spansFree = 1024
	// spansMost bounds a thread's past: 192 KiB of spans.
	spansMost = 4096
)

// timelines are the pasts of all threads of the targets, and of the CPUs on
// which they waited.
type timelines struct {
	threads   map[uint32]*thread
	processes map[uint32]*process
	latest    *thread
	cpus      []ring[occupant]
	origin    uint64 // time of the first event
	started   bool
	calls     waitCalls
	gaps      ring[gap] // in order, and none touches another
	laterGaps []gap     // scratch of lost
	culprits  culpritSet
	ended     []endedThread // in the order of their ends
	need      func() uint64 // the oldest time that somebody may still ask about

	repaired int64  // threads seen running while their timeline had them elsewhere
	unknown  uint64 // ns asked about that are not known any more
}

// endedThread is forgotten when nobody can ask about it any more.
type endedThread struct {
	th *thread
	at uint64
}

// forgetAfter is how long after it ended a thread is kept at least, ns.
const forgetAfter = 1_000_000_000

// ends takes that a thread ended at t, and forgets those that did long ago:
// their number is no bound to the number of threads a process makes.
func (tl *timelines) ends(th *thread, t uint64) {
	tl.ended = append(tl.ended, endedThread{th, t})
	need := tl.need()
	for len(tl.ended) > 0 && tl.ended[0].at+forgetAfter < min(need, t) {
		old := tl.ended[0].th
		if tl.threads[old.tid] == old && old.state() == stateAsleep && old.spans.last().why == exited && !old.call.open {
			delete(tl.threads, old.tid)
		}
		tl.ended[0].th = nil
		tl.ended = tl.ended[1:]
	}
	tl.latest = nil
}

// gap is a time in which records of the scheduler were dropped.
type gap struct{ begin, end uint64 }

func newTimelines(arch string) *timelines {
	return &timelines{
		threads:   make(map[uint32]*thread),
		processes: make(map[uint32]*process),
		calls:     newWaitCalls(arch),
		need:      func() uint64 { return 0 },
	}
}

// thread gives a thread of a target, new if it was not known.
func (tl *timelines) thread(pid, tid uint32) *thread {
	if th := tl.latest; th != nil && th.tid == tid {
		return th
	}
	th := tl.threads[tid]
	if th == nil {
		th = new(thread)
		tl.begins(th, pid, tid)
		tl.threads[tid] = th
	}
	tl.latest = th
	return th
}

// known gives a thread if it was seen before.
func (tl *timelines) known(tid uint32) *thread {
	if th := tl.latest; th != nil && th.tid == tid {
		return th
	}
	return tl.threads[tid]
}

// state is the thread's present state.
func (th *thread) state() threadState {
	if th.spans.len() == 0 {
		return stateUnknown
	}
	return th.spans.last().state
}

// enter a state. What came before and cannot be overwritten any more is kept
// as long as somebody may ask about it.
func (tl *timelines) enter(th *thread, s span) {
	if th.spans.len() > 0 && s.begin < th.spans.last().begin {
		s.begin = th.spans.last().begin
	}
	makeRoom(&th.spans, func(i uint64) uint64 { return th.spans.at(i + 1).begin }, tl.need)
	th.spans.push(s)
}

// makeRoom grows a full ring while its oldest item is still needed: ended(i)
// is when item i was over.
func makeRoom[T any](r *ring[T], ended func(uint64) uint64, need func() uint64) {
	if !r.full() {
		return
	}
	if len(r.buf) < spansFree || len(r.buf) < spansMost && ended(r.first) > need() {
		r.grow()
	}
}

// runs takes note that a thread was seen executing on a CPU at t.
func (tl *timelines) runs(th *thread, t uint64, cpu uint16) {
	switch {
	case th.state() == stateRunning:
	case th.spans.len() == 0:
		// No switch was seen since the beginning: it was there all along.
		tl.enter(th, span{begin: tl.origin, state: stateRunning, syscall: -1, cpu: int32(cpu)})
	default:
		if th.spans.last().why != exited { // it is told of early in do_exit, which goes on
			tl.repaired++
		}
		tl.enter(th, span{begin: t, state: stateRunning, syscall: -1, cpu: int32(cpu)})
	}
}

// switched takes a sched_switch record.
func (tl *timelines) switched(r *schedRecord) {
	tl.occupy(r)
	if r.PrevTID != 0 {
		if th := tl.member(r.PrevPID, r.PrevTID, r.flags&event.SwitchPrevTarget != 0); th != nil {
			tl.leaves(th, r)
		}
	}
	if r.NextTID != 0 {
		if th := tl.member(r.NextPID, r.NextTID, r.flags&event.SwitchNextTarget != 0); th != nil {
			tl.arrives(th, r)
		}
	}
}

// arrives on the CPU. A sleep that nothing was seen to end, but before which there
// was a waking while the thread still ran, was none: the waker came between the
// thread's setting its state and its leaving the CPU. That may take long where an
// interrupt, or the host of a virtual machine, holds it up there: 3.4 ms were seen.
func (tl *timelines) arrives(th *thread, r *schedRecord) {
	if th.state() == stateAsleep {
		if s := th.spans.last(); th.early.time != 0 {
			*s = span{begin: s.begin, state: stateRunnable, why: woken, syscall: -1, cpu: -1, stack: s.stack, wake: tl.keep(th, th.early)}
		}
	}
	th.early.time = 0
	tl.enter(th, span{begin: r.time, state: stateRunning, syscall: -1, cpu: int32(r.cpu)})
}

// migrated takes that a thread which waits for a CPU waits for another one from now
// on, for the reason that it waited before. Of a thread that was woken that is also
// where it was queued until then.
func (tl *timelines) migrated(r *schedRecord) {
	th := tl.known(r.tid)
	if th == nil || th.state() != stateRunnable {
		return
	}
	tl.unwatch(r)
	last := th.spans.last()
	if last.why == throttled {
		return // wherever: it waits for its quota
	}
	if last.cpu < 0 {
		last.cpu = int32(r.FromCPU)
	}
	next := *last
	next.begin, next.cpu = r.time, int32(r.cpu)
	tl.enter(th, next)
}

// quota takes that a thread which waits for a CPU is held up by its cgroup's quota from
// now on, or not any more: then it is queued as if it had been woken.
func (tl *timelines) quota(r *schedRecord) {
	th := tl.known(r.tid)
	if th == nil || th.state() != stateRunnable {
		return
	}
	last := th.spans.last()
	if begins := r.flags&event.QuotaBegin != 0; begins == (last.why == throttled) {
		return
	}
	next := *last
	next.begin, next.cpu, next.why = r.time, int32(r.cpu), throttled
	if last.why == throttled {
		next.why = woken
	}
	if last.cpu < 0 {
		last.cpu = next.cpu
	}
	tl.enter(th, next)
}

func (tl *timelines) member(pid, tid uint32, target bool) *thread {
	if target {
		return tl.thread(pid, tid)
	}
	return tl.known(tid)
}

// leaves the CPU. A task that the tracepoint calls preempted is still runnable
// whatever its state says (kernel/sched/core.c, __schedule).
func (tl *timelines) leaves(th *thread, r *schedRecord) {
	tl.runs(th, r.time, r.cpu)
	s := span{begin: r.time, syscall: -1, cpu: int32(r.cpu), stack: r.PrevStack}
	switch {
	case r.flags&event.SwitchPrevExited != 0:
		s.state, s.why = stateAsleep, exited
	case r.PrevState != 0 && r.flags&event.SwitchPreempt == 0:
		s.state, s.syscall, s.arg = stateAsleep, r.Syscall, r.SyscallArg
	case r.flags&event.SwitchThrottled != 0:
		s.state, s.why = stateRunnable, throttled
	case r.Syscall == tl.calls.yield && r.flags&event.SwitchPreempt == 0:
		s.state, s.why = stateRunnable, yielded
	default:
		s.state, s.why = stateRunnable, preempted
	}
	tl.enter(th, s)
	if s.why == exited {
		tl.exits(th)
		tl.ends(th, r.time)
	}
}

// woke takes a sched_waking record.
func (tl *timelines) woke(r *schedRecord) {
	th := tl.thread(r.NextPID, r.NextTID)
	w := wake{
		time: r.time, tid: r.tid, pid: r.pid, comm: r.PrevComm,
		interrupt: r.Interrupt, vec: r.Vec, interruptBegin: r.InterruptBegin, chain: r.Chain, idleSince: r.IdleSince, cq: r.CQ,
	}
	if r.Chain != nil && r.ChainBegin != 0 {
		w.interruptBegin = min(w.interruptBegin, r.ChainBegin)
	}
	if w.interrupt != event.InterruptNone && (w.interruptBegin == 0 || w.interruptBegin > r.time) {
		w.interruptBegin = r.time
	}
	switch th.state() {
	case stateRunning:
		th.early = w
	case stateRunnable:
	default:
		s := span{begin: r.time, state: stateRunnable, why: woken, syscall: -1, cpu: -1, wake: tl.keep(th, w)}
		if th.spans.len() > 0 {
			s.stack = th.spans.last().stack
		}
		tl.enter(th, s)
	}
}

// keep a wake, and give what a span refers to it by.
func (tl *timelines) keep(th *thread, w wake) uint64 {
	makeRoom(&th.wakes, func(i uint64) uint64 { return th.wakes.at(i).time }, tl.need)
	th.wakes.push(w)
	return th.wakes.next
}

// interrupted takes an interrupt that ran on top of a thread.
func (tl *timelines) interrupted(r *interruptRecord) {
	th := tl.thread(r.pid, r.tid)
	makeRoom(&th.tops, func(i uint64) uint64 { return th.tops.at(i).end }, tl.need)
	top := onTop{begin: r.Begin, end: r.time, kind: r.Kind, vec: r.Vec}
	copy(top.name[:], r.Name[:])
	th.tops.push(top)
}

// task takes the beginning or end of a thread.
func (tl *timelines) task(r *rareRecord) {
	task := r.object.Task
	switch task.Event {
	case event.TaskStarted:
		// wake_up_new_task makes it runnable; sched_waking is not hit.
		th := tl.thread(r.pid, r.tid)
		tl.begins(th, r.pid, r.tid)
		tl.enter(th, span{begin: r.time, state: stateRunnable, why: woken, syscall: -1, cpu: -1})
	case event.TaskFound:
		th := tl.thread(r.pid, r.tid)
		if task.State != 0 && th.spans.len() == 0 {
			s := span{begin: r.time, state: stateAsleep, syscall: -1, cpu: -1}
			if task.Sleep != nil {
				s.syscall, s.arg = task.Sleep.Number, task.Sleep.Arg
			}
			tl.enter(th, s)
		}
	case event.TaskExited:
		th := tl.thread(r.pid, r.tid)
		tl.exits(th)
		if th.state() != stateAsleep {
			tl.enter(th, span{begin: r.time, state: stateAsleep, why: exited, syscall: -1, cpu: -1})
			tl.ends(th, r.time)
		}
	}
}

// lost takes note that records of the scheduler between begin and end are missing. The
// gaps stay apart and in order, though what comes late tells of one before the latest.
func (tl *timelines) lost(begin, end uint64) {
	gaps, g := &tl.gaps, gap{begin, max(begin, end)}
	from := gaps.next
	for from != gaps.first && gaps.at(from-1).end >= g.begin {
		from--
	}
	to := from // gaps [from, to) touch g, and become one with it
	for ; to != gaps.next && gaps.at(to).begin <= g.end; to++ {
		g.begin, g.end = min(g.begin, gaps.at(to).begin), max(g.end, gaps.at(to).end)
	}
	later := tl.laterGaps[:0]
	for seq := to; seq != gaps.next; seq++ {
		later = append(later, *gaps.at(seq))
	}
	gaps.next = from
	tl.pushGap(g)
	for _, g := range later {
		tl.pushGap(g)
	}
	tl.laterGaps = later
}

func (tl *timelines) pushGap(g gap) {
	if tl.gaps.full() && len(tl.gaps.buf) < spansFree {
		tl.gaps.grow()
	}
	tl.gaps.push(g)
}

// walk calls visit for each stretch of [begin, end] of a thread's time, in
// order and without gaps. It is the aggregates' view.
func (tl *timelines) walk(tid uint32, begin, end uint64, visit func(state threadState, begin, end uint64, syscall int32)) {
	th := tl.known(tid)
	if th == nil || th.spans.len() == 0 {
		visit(stateUnknown, begin, end, -1)
		return
	}
	seq, ok := search(&th.spans, begin, (*span).beganAt)
	if !ok {
		first := min(end, th.spans.at(th.spans.first).begin)
		visit(stateUnknown, begin, first, -1)
		begin, seq = first, th.spans.first
	}
	for ; begin < end; seq++ {
		until := end
		if seq+1 != th.spans.next {
			until = min(end, th.spans.at(seq+1).begin)
		}
		if s := th.spans.at(seq); until > begin {
			visit(s.state, begin, until, s.syscall)
			begin = until
		}
	}
}
