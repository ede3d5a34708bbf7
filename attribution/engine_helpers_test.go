package attribution

import (
	"fmt"
	"slices"
	"strings"

	"github.com/rdmatrace/rdmatrace/event"
)

// What the tapes below happen to.
const (
	tapePID = 100
	tapeQP  = 0x1000 // address
	tapeNum = 0x105
	tapeCQ  = 0x2000
	tapeFD  = 7 // of its completion channel
	tapeSRQ = 0x3000
)

// Threads of the target, and others.
const (
	worker     = 100
	helper     = 101
	third      = 102
	hog        = 900
	nicDaemon  = 901
	otherHog   = 902
	irqThread  = 903
	amd64Read  = 0
	amd64Futex = 202
	amd64Epoll = 232
	amd64Yield = 24
	amd64Sleep = 230
)

// tape is a history of events under construction.
type tape struct {
	events []event.Event
	calls  map[uint32]uint32
}

func newTape() *tape { return &tape{calls: make(map[uint32]uint32)} }

func (t *tape) add(ev event.Event) *event.Event {
	if ev.PID == 0 {
		ev.PID = tapePID
	}
	t.events = append(t.events, ev)
	return &t.events[len(t.events)-1]
}

// qp adds a queue pair event.
func (t *tape) qp(at uint64, what event.ObjectEvent, change func(*event.QP)) {
	q := &event.QP{
		Addr: tapeQP, Num: tapeNum, Type: 2, State: 3, SendCQ: tapeCQ, RecvCQ: tapeCQ, MaxSendWR: 128,
	}
	if change != nil {
		change(q)
	}
	t.add(event.Event{Time: at, Kind: event.KindQP, Object: &event.Object{Event: what, QP: q}})
}

func (t *tape) made() { t.qp(1, event.ObjectCreated, nil) }

// found makes a queue pair that was alive, with that much room.
func (t *tape) found(room uint32) {
	t.qp(1, event.ObjectFound, func(q *event.QP) { q.MaxSendWR, q.SigAll = room, 0 })
}

func (t *tape) cq(at uint64, fd int32) {
	t.add(event.Event{Time: at, Kind: event.KindCQ, Object: &event.Object{
		Event: event.ObjectCreated, CQ: &event.CQ{Addr: tapeCQ, ChannelFD: fd},
	}})
}

// wr describes a work request for post: signalled unless told otherwise.
type wr struct {
	id          uint64
	bytes       uint32
	opcode      uint8
	unsignalled bool
	wqe         int // -1 and 0: none; else its index
	flags       uint32
}

// post adds a posting call that returns at end, 0: not at all.
func (t *tape) post(tid uint32, begin, end uint64, wrs ...wr) *event.Event {
	t.calls[tid]++
	for i, w := range wrs {
		v := event.Verb{
			QP: tapeQP, QPNum: tapeNum, WRID: w.id, Bytes: w.bytes, Opcode: w.opcode,
			Begin: begin, Call: t.calls[tid], Index: uint16(i),
		}
		if !w.unsignalled {
			v.SendFlags = sendSignaled
		}
		flags := w.flags
		if w.wqe > 0 {
			v.WQE = uint16(w.wqe)
			flags |= event.WRWQEValid
		}
		if flags&event.WRSRQ != 0 {
			v.QP, v.QPNum = tapeSRQ, 0
		}
		t.add(event.Event{Time: begin, TID: tid, Kind: event.KindWR, Flags: flags, Verb: v})
	}
	if end == 0 {
		return nil
	}
	return t.add(event.Event{Time: end, TID: tid, Kind: event.KindPostEnd, Verb: event.Verb{
		QP: tapeQP, Begin: begin, Call: t.calls[tid], Count: uint16(len(wrs)), BadIndex: -1,
	}})
}

// reap adds a completion that a poll from begin on returned at at.
func (t *tape) reap(tid uint32, begin, at uint64, v event.Verb, flags uint32) {
	v.CQ, v.Begin, v.Count = tapeCQ, begin, max(v.Count, 1)
	if v.QPNum == 0 {
		v.QPNum = tapeNum
	}
	t.add(event.Event{Time: at, TID: tid, Kind: event.KindCompletion, Flags: flags, Verb: v})
}

func (t *tape) arm(tid uint32, at uint64) {
	t.add(event.Event{Time: at, TID: tid, Kind: event.KindArm, Verb: event.Verb{CQ: tapeCQ}})
}

// armTrap adds one that was seen by a probe, at us.
func (t *tape) armTrap(tid uint32, at uint64, flags uint32) {
	t.add(event.Event{Time: at, TID: tid, CPU: uint16(tid - worker), Kind: event.KindArm, Flags: flags, Verb: event.Verb{CQ: tapeCQ, Traps: 1}})
}

// sw adds a switch from prev to next. Threads below hog are the target's.
func (t *tape) sw(at uint64, cpu uint16, prev, next uint32, s event.Sched, flags uint32) {
	s.PrevTID, s.PrevPID, s.PrevComm = prev, groupOf(prev), commOf(prev)
	s.NextTID, s.NextPID, s.NextComm = next, groupOf(next), commOf(next)
	if groupOf(prev) == tapePID {
		flags |= event.SwitchPrevTarget
	}
	if groupOf(next) == tapePID {
		flags |= event.SwitchNextTarget
	}
	t.add(event.Event{Time: at, PID: groupOf(prev), TID: prev, CPU: cpu, Kind: event.KindSwitch, Flags: flags, Sched: s})
}

func groupOf(tid uint32) uint32 {
	if tid > 0 && tid < hog {
		return tapePID
	}
	return tid
}

func commOf(tid uint32) (c event.Comm) {
	name := map[uint32]string{
		0: "swapper", worker: "worker", helper: "helper", third: "third",
		hog: "hog", otherHog: "hog2", nicDaemon: "softmlx5d", irqThread: "irq/34-virtio4-",
	}[tid]
	copy(c[:], name)
	return c
}

// sleeps and the like put a thread into a state.
func (t *tape) sleeps(at uint64, cpu uint16, tid uint32, syscall int32, arg uint64) {
	t.sw(at, cpu, tid, 0, event.Sched{PrevState: 1, Syscall: syscall, SyscallArg: arg}, 0)
}

func (t *tape) preempted(at uint64, cpu uint16, tid, by uint32) {
	t.sw(at, cpu, tid, by, event.Sched{Syscall: -1}, event.SwitchPreempt)
}

func (t *tape) yields(at uint64, cpu uint16, tid, to uint32) {
	t.sw(at, cpu, tid, to, event.Sched{Syscall: amd64Yield}, 0)
}

func (t *tape) throttled(at uint64, cpu uint16, tid, by uint32) {
	t.sw(at, cpu, tid, by, event.Sched{Syscall: -1}, event.SwitchThrottled)
}

func (t *tape) runs(at uint64, cpu uint16, tid, instead uint32) {
	t.sw(at, cpu, instead, tid, event.Sched{Syscall: -1}, 0)
}

// quota adds that a thread which waits is held up by its quota, or is not any more.
func (t *tape) quota(at uint64, cpu uint16, tid, flags uint32) {
	t.add(event.Event{Time: at, PID: groupOf(tid), TID: tid, CPU: cpu, Kind: event.KindQuota, Flags: flags})
}

// moved adds that a thread waits for another CPU from now on.
func (t *tape) moved(at uint64, tid uint32, from, to uint16) {
	t.add(event.Event{Time: at, PID: groupOf(tid), TID: tid, CPU: to, Kind: event.KindMigration, Sched: event.Sched{FromCPU: from}})
}

// wakes adds a waking by waker, in an interrupt if kind is not none.
func (t *tape) wakes(at uint64, waker, wakee uint32, kind event.InterruptKind, vec uint32, begin uint64) {
	ev := t.add(event.Event{Time: at, TID: waker, Kind: event.KindWaking, Sched: event.Sched{
		NextTID: wakee, NextPID: groupOf(wakee), PrevComm: commOf(waker),
		Interrupt: kind, Vec: vec, InterruptBegin: begin,
	}})
	ev.PID = groupOf(waker)
}

// led adds to the latest waking what led to its waker; the interrupts that alone
// did began at begin.
func (t *tape) led(begin uint64, links ...event.Link) {
	s := &t.events[len(t.events)-1].Sched
	s.Chain, s.ChainBegin = chainOf(links...), begin
}

// idledSince adds to the latest waking that its interrupt came to an idle CPU.
func (t *tape) idledSince(since uint64) { t.events[len(t.events)-1].Sched.IdleSince = since }

func lineLink(line uint32) event.Link { return event.Link{Kind: event.InterruptDevice, Vec: line} }

func softirqLink(vec uint32) event.Link { return event.Link{Kind: event.InterruptSoftirq, Vec: vec} }

func (t *tape) interrupt(begin, end uint64, tid uint32, kind event.InterruptKind, vec uint32) {
	t.add(event.Event{Time: end, TID: tid, Kind: event.KindInterrupt, IRQ: event.Interrupt{Begin: begin, Kind: kind, Vec: vec}})
}

func (t *tape) loss(begin, end uint64, of event.Kind, n uint64) {
	t.add(event.Event{Time: end, Kind: event.KindLoss, Loss: event.Loss{Begin: begin, Of: of, Count: n}})
}

// recorder is a sink that keeps all it is told.
type recorder struct {
	wrs     []measured
	posts   int64
	retires int64
	bytes   int64
	deepest int32 // most that was in flight at a post
	t       reporter
}

// reporter is what testing.T and rapid.T have in common.
type reporter interface {
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

func (r *recorder) add(m *measured) {
	kept := *m
	kept.segments = slices.Clone(m.segments)
	r.wrs = append(r.wrs, kept)
}

func (r *recorder) posted(qp *queuePair, t uint64, tid uint32, opcode uint8, bytes uint64, depth int32) {
	if depth < 0 && depth != depthUnknown {
		r.t.Errorf("posted with depth %d", depth)
	}
	r.deepest = max(r.deepest, depth)
	r.posts++
	r.bytes += int64(bytes)
}

func (r *recorder) lost(*queuePair, uint64) {}

func (r *recorder) gone(*queuePair, uint64) {}

func (r *recorder) paused(uint64) {}

func (r *recorder) retired(qp *queuePair, t uint64, n int32, bytes uint64, depth int32) {
	if depth < 0 && depth != depthUnknown || n <= 0 {
		r.t.Errorf("retired %d leaving %d", n, depth)
	}
	r.retires += int64(n)
	r.bytes -= int64(bytes)
}

// play runs a tape.
func (t *tape) play(tb reporter, cfg Config) (*Engine, *recorder) {
	return playEvents(tb, t.events, cfg)
}

func playEvents(tb reporter, events []event.Event, cfg Config) (*Engine, *recorder) {
	rec := &recorder{t: tb}
	e := newEngine(cfg, rec)
	for i := range events {
		e.Add(&events[i])
	}
	e.close()
	return e, rec
}

// describe a cut: "submit 0-3, preempted 3-9 hog (pid 900), ...". Times are
// relative to base and divided by unit.
func describe(segments []segment, base, unit uint64) string {
	names := &naming{}
	var parts []string
	for i := range segments {
		s := &segments[i]
		part := fmt.Sprintf("%s %d-%d", s.cause, (s.begin-base)/unit, (s.end-base)/unit)
		if who := names.culprit(s.who); who != "" {
			part += " " + who
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, ", ")
}

// checkCut fails if the segments of a WR do not cut its latency.
func checkCut(tb reporter, m *measured) {
	at, end := m.postBegin, m.reap
	if m.receive {
		at = m.done
	}
	for _, s := range m.segments {
		if s.begin != at || s.end <= s.begin {
			tb.Fatalf("segment %d-%d %s does not follow %d in %s", s.begin, s.end, s.cause, at, describe(m.segments, 0, 1))
		}
		at = s.end
	}
	if at != end {
		tb.Fatalf("segments end at %d, not at %d: %s", at, end, describe(m.segments, 0, 1))
	}
	if m.done < m.doneLow || m.done > m.doneHigh || m.doneHigh > m.reap || m.doneLow < m.postBegin && !m.unmatched {
		tb.Fatalf("done %d not in [%d, %d], post %d, reap %d", m.done, m.doneLow, m.doneHigh, m.postBegin, m.reap)
	}
	if m.receive && m.peerWait != m.done-m.postBegin {
		tb.Fatalf("peer-wait %d, not %d", m.peerWait, m.done-m.postBegin)
	}
}

// checkBooks fails if the books do not balance.
func checkBooks(tb reporter, e *Engine) {
	for i, b := range e.ledger.books {
		if b.Posted != b.Completed+b.Outstanding+b.Flushed+b.Lost+b.Excluded {
			tb.Fatalf("books of side %d do not balance: %+v", i, b)
		}
		for _, n := range []int64{b.Posted, b.Completed, b.Outstanding, b.Flushed, b.Lost, b.Excluded, b.Unsignalled, b.Bytes} {
			if n < 0 {
				tb.Fatalf("books of side %d are negative: %+v", i, b)
			}
		}
	}
	for _, qp := range e.objects.all {
		if qp.sendQueue.inFlight != 0 {
			tb.Fatalf("%d in flight at the end", qp.sendQueue.inFlight)
		}
	}
}
