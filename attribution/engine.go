package attribution

import (
	"math"

	"github.com/rdmatrace/rdmatrace/event"
)

// Engine turns events into work requests, cuts the latency of each into
// segments and hands them to the aggregates. It is not safe for concurrent use.
type Engine struct {
	out sink
	agg *aggregates // out, unless a test listens

	order    *orderer
	objects  objects
	threads  *timelines
	ledger   ledger
	submits  submits
	pauses   pauses
	flights  flights
	deferred []deferredWR
	held     ring[heldCompletion]
	clocks   map[string]*deviceClock
	met      met
	lateness lateness

	costInPost, costTrap, costStepped uint64 // ns

	manyThreads map[uint32]uint64 // by process; see usesVerbs
	armedQueues map[vectorKey]*armedQueues
	latestUser  uint32

	lossEnd uint64 // records that matching needs were being lost until then
	// droppedPosts are posts in the books only because the drop counters told of them
	droppedPosts int64
	// unwritten: until then, entries that the kernel wrote, or their completions, may be missing
	unwritten uint64
	now       uint64
	need      uint64 // the oldest time that a pending WR may ask about
	neededAt  uint64 // when need was found

	m      measured // the one in work
	walker walker
	lanes  []lane
	others []*thread
}

// sink is where the engine's findings go: the aggregates, or a test.
type sink interface {
	add(m *measured)
	posted(qp *queuePair, t uint64, tid uint32, opcode uint8, bytes uint64, depth int32)
	retired(qp *queuePair, t uint64, n int32, bytes uint64, depth int32)
	lost(qp *queuePair, t uint64)
	gone(qp *queuePair, t uint64)
	paused(t uint64)
}

// New makes an Engine.
func New(cfg Config) *Engine {
	e := newEngine(cfg, nil)
	e.agg = newAggregates(cfg, e.threads)
	e.out = e.agg
	return e
}

func newEngine(cfg Config, out sink) *Engine {
	watermark := cfg.Watermark
	if watermark == 0 {
		watermark = DefaultWatermark
	}
	e := &Engine{
		out:      out,
		objects:  newObjects(),
		lateness: newLateness(),
		threads:  newTimelines(cfg.Arch),
		flights:  make(flights),
		clocks:   make(map[string]*deviceClock),

		manyThreads: make(map[uint32]uint64),
		armedQueues: make(map[vectorKey]*armedQueues),
		costInPost:  nanoseconds(cfg.Cost.InPost),
		costTrap:    nanoseconds(cfg.Cost.TrapNS),
		costStepped: nanoseconds(cfg.Cost.SteppedTrapNS),
	}
	e.order = newOrderer(watermark, e)
	e.walker.tl = e.threads
	e.threads.need = e.oldestNeed
	return e
}

func nanoseconds(cost float64) uint64 {
	if cost >= 0 && cost < 1e9 {
		return uint64(math.Round(cost))
	}
	return 0
}

// Add takes one event. Events may come in any order inside the watermark; ev
// is not kept.
func (e *Engine) Add(ev *event.Event) {
	switch e.order.add(ev) {
	case arrivedLate:
		e.late(ev)
	case arrivedBroken:
		e.met.broken++
	}
}

// Finish takes what is still held back, closes the books and makes the Report.
// The Engine cannot be used afterwards.
func (e *Engine) Finish(ctx *event.Context) *Report {
	e.close()
	e.agg.pauses = &e.pauses
	r := e.agg.finish(ctx, e.objects.all)
	r.Sampled = e.pauses.report(ctx.Window.Begin, ctx.Window.End)
	r.EventQueues = e.eventQueues(ctx)
	r.Late = e.lateness.report()
	r.WRs = e.ledger.total()
	r.Kinds = map[string]Books{"send": e.ledger.books[side(false)], "receive": e.ledger.books[side(true)]}
	r.Doubts = append(append(e.doubts(), r.Doubts...), e.lateness.doubts()...)
	return r
}

// close ends the window: what is pending now is outstanding, or was never proven.
func (e *Engine) close() {
	e.order.flush()
	e.release(never)
	e.order.free() // the Report takes as much
	e.now = never  // what is outstanding leaves no queue empty before the window ends
	for _, qp := range e.objects.live {
		e.closeQueue(qp, &qp.sendQueue, settledOutstanding)
		e.closeQueue(qp, &qp.recvQueue, settledOutstanding)
		e.letGo(qp, 0, 0)
	}
	for _, s := range e.objects.allSRQs {
		e.closeQueue(nil, &s.queue, settledOutstanding)
	}
	for i := range e.deferred {
		e.undo(&e.deferred[i]).Outstanding++ // its post call is still under way
	}
	e.deferred = nil
}

// closeQueue settles all that is pending in a queue whose place is proven, and
// gives up on one whose is not.
func (e *Engine) closeQueue(qp *queuePair, q *workQueue, how settlement) {
	for ; q.len() > 0; q.drop(1) {
		switch p := q.at(0); {
		case p.is&isTaken != 0:
		case p.is&isBeforeLoss != 0, !q.proven() && !q.shared:
			e.forget(qp, q, p)
		default:
			e.leave(qp, q, p, how)
		}
	}
	e.noteLeft(qp, q, e.now)
}

func (e *Engine) doubts() []string {
	for _, c := range e.clocks {
		e.met.clockSteps += c.steps
		e.met.clockOutliers += c.outliers + int64(c.outside)
	}
	e.met.narrowed = e.order.narrowed
	e.met.repaired = e.threads.repaired
	e.met.unknown = int64(e.threads.unknown)
	return e.met.doubts()
}

// verb, sched, interrupt, sample and rare take records in the order of time.

func (e *Engine) verb(r *verbRecord) {
	e.tick(r.time, beginOf(r))
	if e.held.len() > 0 {
		e.release(r.time)
	}
	if e.pauses.on || r.kind <= event.KindPostEnd && beginOf(r) < e.pauses.ended {
		return // of a call that was under way as probes went or came
	}
	switch r.kind {
	case event.KindWR:
		e.posted(r)
	case event.KindPostEnd:
		e.postEnd(r)
	case event.KindCompletion:
		e.completed(r)
	case event.KindCQE:
		e.entryWritten(r)
	case event.KindCQEvent:
		e.objects.cq(r.pid, r.CQ).notices.take(r.time)
	case event.KindArm:
		th := e.threads.thread(r.pid, r.tid)
		e.threads.runs(th, r.time, r.cpu)
		e.trapped(th, r)
		e.armed(e.objects.cq(r.pid, r.CQ), r)
	}
}

func (e *Engine) sched(r *schedRecord) {
	e.tick(r.time, r.time)
	switch r.kind {
	case event.KindSwitch:
		e.threads.switched(r)
		if r.flags&event.SwitchPrevExited != 0 {
			e.processMayEnd(r.PrevPID, r.time)
		}
	case event.KindMigration:
		e.threads.migrated(r)
	case event.KindQuota:
		e.threads.quota(r)
	default:
		e.threads.woke(r)
	}
}

func (e *Engine) interrupt(r *interruptRecord) {
	e.tick(r.time, r.Begin)
	e.threads.interrupted(r)
}

func (e *Engine) sample(r *sampleRecord) {
	e.tick(r.time, r.time)
	e.threads.sampled(r)
}

func (e *Engine) rare(r *rareRecord) {
	e.tick(r.time, r.time)
	if r.kind != event.KindTask { // threads come and go all the time
		e.release(never)
	}
	switch r.kind {
	case event.KindQP:
		e.queuePairEvent(r)
	case event.KindCQ:
		e.completionQueueEvent(r)
	case event.KindDeviceContext:
		e.contextEvent(r)
	case event.KindTask:
		e.taskEvent(r)
	case event.KindLoss:
		e.lossEvent(r)
	case event.KindPause:
		e.pauseEvent(r)
	}
}

// tick moves the time. The first record also says since when we look: begin is
// when what it reports began.
func (e *Engine) tick(t, begin uint64) {
	if !e.threads.started {
		e.threads.started, e.threads.origin = true, min(t, begin)
		e.pauses.start(e.threads.origin)
	}
	e.now = t
}

// oldestNeed is the post of the oldest pending send: timelines are asked about
// nothing older, but for what fits into them anyway.
func (e *Engine) oldestNeed() uint64 {
	const stale = 1 << 20 // ns
	if e.neededAt != 0 && e.now < e.neededAt+stale {
		return e.need
	}
	e.need, e.neededAt = e.now, e.now
	for _, qp := range e.objects.live {
		if q := &qp.sendQueue; q.len() > 0 {
			e.need = min(e.need, q.at(0).postBegin)
		}
	}
	return e.need
}
