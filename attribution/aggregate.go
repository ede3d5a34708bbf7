package attribution

// aggregates is what remains of the work requests: sums, sketches and the worst
// incidents. Its memory does not grow with their number; docs/aggregation.md
// gives the bounds.
//
// The engine calls it in the order of reaping (add) and of posting (posted,
// retired); results depend on that order only where a bound is hit.
type aggregates struct {
	cfg     Config
	threads threadView

	queues []*queueState
	ports  []*tracedPort
	floors map[floorKey]*floor
	lines  []*floor // of floors, in the order of their making
	line   delayLine
	wires  wireSplitter
	fits   fitting
	split  batch

	sends, receives kind
	ops             map[opKey]*opCell
	lastOp          *opCell
	lastOpKey       opKey
	byQueue         map[queueCellKey]*cell
	sites           sites
	incidents       incidents
	exposure        exposure
	series          series
	stolen          stolenCPUs

	pauses *pauses // of the engine; nil: there were none

	measured int64 // WRs that left the delay line; numbers them
	errors   map[uint32]int64
	unsplit  struct{ wrs, ns int64 }
	noFloor  int64 // WRs beyond floorsMost

	// What walk tells about a gap: see gaps.go.
	span   func(state threadState, begin, end uint64, syscall int32)
	walked [2]*gaps
	none   gaps // stands for no gap
	unseen blind
}

// kind: sends and receives are not mixed, for a receive's latency holds no wire.
type kind struct {
	uncertain int64
	doubt     durations
	probe     durations
	chained   int64 // WRs of the measured chains
	who       culprits
	demands   [numDemands]int64
	sources   [numDoneSources]int64
}

const numDemands = int(Dependent) + 1

// threadView answers from the timeline what a thread did between begin and
// end: it calls span for each stretch, in order, without gaps. syscall is the
// system call it slept in, -1: none or not asleep.
type threadView interface {
	walk(tid uint32, begin, end uint64, span func(state threadState, begin, end uint64, syscall int32))
}

// threadState of a stretch of a thread's time.
type threadState uint8

const (
	stateUnknown threadState = iota
	stateRunning             // interrupts on top included
	stateRunnable
	stateAsleep
)

// newAggregates; threads may be nil: then idle time is not told apart.
func newAggregates(cfg Config, threads threadView) *aggregates {
	a := &aggregates{
		cfg:       cfg,
		threads:   threads,
		floors:    make(map[floorKey]*floor),
		ops:       make(map[opKey]*opCell),
		byQueue:   make(map[queueCellKey]*cell),
		sites:     newSites(),
		incidents: newIncidents(),
		exposure:  newExposure(),
		errors:    make(map[uint32]int64),
	}
	a.sends.who, a.receives.who = newCulprits(), newCulprits()
	a.span = a.spanOf
	return a
}

// add takes one measured work request. Of m nothing is kept but its segments, which
// are gone from it then.
func (a *aggregates) add(m *measured) {
	q := a.queue(m.qp)
	if m.status != 0 {
		a.errors[m.status]++
		return
	}
	a.stolen.add(m.segments)
	if a.line.due() {
		a.settle(a.line.take())
	}
	d := a.line.next(m)
	d.queue = q
	if m.receive {
		q.port.received += int64(m.bytes)
	} else if !q.shared {
		a.learn(d)
	}
	for a.line.ready() {
		a.settle(a.line.take())
	}
}

// observed is how much of [begin, end) was, ns.
func (a *aggregates) observed(begin, end uint64) uint64 {
	if end <= begin {
		return 0
	}
	if a.pauses == nil {
		return end - begin
	}
	return end - begin - a.pauses.within(begin, end)
}

// learn finds what was in front of d, and teaches its floor.
func (a *aggregates) learn(d *delayed) {
	m, q, port := &d.m, d.queue, d.queue.port
	w := q.history.enter(m, m.postEnd)
	f := a.floor(q, m.opcode)
	d.floor = f
	t := transfer{done: m.done, posted: m.postEnd, bytes: m.bytes, floor: f, queue: q.index}
	traffic := &port.traffic[direction(m.opcode)]
	if t.stuck = traffic.overtaken(&t, max(m.postEnd, w.prevDone)); t.stuck {
		q.stuckUntil = m.done
	}
	t.stuck = t.stuck || m.postEnd < q.stuckUntil
	traffic.enter(t)
	if f == nil {
		return
	}
	f.seen++
	if !f.certain(m) || !w.known || t.stuck || !f.wants() {
		return
	}
	// Behind a full set of READs in flight the wire time is not the path's.
	if limit := uint64(m.qp.maxRDAtomic); isRead(m.opcode) && limit > 0 && w.readAhead >= limit {
		return
	}
	most := uint64(shareReach)
	if f.seen%deepSample == 0 || !f.fit.known && f.seen%firstSample == 0 {
		most = portTransfers
	}
	others, known := traffic.ahead(d.queue.index, m.postEnd, m.done, most)
	if !known {
		return
	}
	f.learn(w.ahead, others, m.bytes, max(m.done, m.postEnd)-m.postEnd)
	if f.due() {
		f.fitLine(&a.fits, port.link)
	}
}

// settle splits the wire of a WR, which is then final, and has it added to all sums.
func (a *aggregates) settle(d *delayed) {
	if d.floor != nil {
		port := d.queue.port
		a.wires.split(d, &port.traffic[direction(d.m.opcode)], &d.queue.served, &d.queue.stall)
		if own := a.wires.own; 2*(own.end-own.begin) > d.floor.fit.base {
			port.stalls.add(&own)
		}
	}
	if a.cfg.Observe != nil {
		a.observe(&d.m, d.m.segments)
	}
	if a.split.take(d) {
		a.sum()
	}
}

func (k *kind) add(m *measured, p *parts, wr int64) {
	if m.uncertain {
		k.uncertain++
		k.doubt.add(m.doneHigh - m.doneLow)
	}
	if ns := p.causes[Probe]; ns > 0 {
		k.probe.add(ns)
	}
	k.chained += int64(max(m.chained, 1))
	k.demands[m.demand]++
	k.sources[m.doneSource]++
	if !p.blames {
		return
	}
	for i := range m.segments {
		k.who.add(&m.segments[i], wr)
	}
}
