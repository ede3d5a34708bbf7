package attribution

// backlog follows how full a send queue is kept, or those of a port: what
// happens before the post is in no latency, but a job that is slow because
// nobody posts shows here.
type backlog struct {
	gaps
	posted, bytes int64
	depths        int64 // posts at which the depth was known
	depthSum      int64 // at these
	depthMax      int64
	firstPost     uint64
	startedEmpty  bool // nothing was in flight at the first post
	blind         blind
	lastTID       uint32
}

// blind is when posts and polls were not seen.
type blind struct{ first, last uint64 }

func (b *blind) at(t uint64) {
	if b.first == 0 {
		b.first = t
	}
	b.last = max(b.last, t)
}

// before gives how much of [begin, end) lies before what was not seen, as far as
// that is known.
func (b *blind) before(begin, end uint64) uint64 {
	switch {
	case b.first == 0 || b.last < begin:
		return end
	case b.first < begin:
		return begin
	}
	return min(b.first, end)
}

// post takes a post, before which depth WRs were in flight.
func (b *backlog) post(t uint64, tid uint32, bytes uint64, depth int64) {
	if b.posted == 0 {
		b.firstPost, b.startedEmpty = t, depth == 0
	}
	b.posted++
	b.bytes += int64(bytes)
	b.open = false
	b.lastTID = tid
	if depth == depthUnknown {
		return
	}
	b.depths++
	b.depthSum += depth
	b.depthMax = max(b.depthMax, depth)
}

func (b *backlog) retire(t uint64, depth int32) {
	if depth == 0 {
		b.begin(t)
	}
}

// report what b knows. [begin, end) is the part of the window in which the queue
// pair existed, observed how much of a time was, and unseen when anything was not.
func (b *backlog) report(begin, end uint64, unseen *blind, observed func(begin, end uint64) uint64, names *naming) (r Backlog) {
	r.Posted, r.WindowNS = b.posted, int64(observed(begin, end))
	r.DepthMax, r.DepthKnown = b.depthMax, b.depths
	if b.depths > 0 {
		r.DepthMean = float64(b.depthSum) / float64(b.depths)
	}
	b.gaps.report(&r, names)
	if first := b.firstPost; b.posted == 0 || b.startedEmpty {
		if b.posted == 0 {
			first = end
		}
		before := int64(observed(begin, unseen.before(begin, b.blind.before(begin, first))))
		r.IdleNS += before
		r.IdleUnknown += before
	}
	if seconds := float64(r.WindowNS) / 1e9; seconds > 0 {
		r.BytesPerSec = float64(b.bytes) / seconds
		r.WRsPerSec = float64(b.posted) / seconds
	}
	return r
}

// portBacklog is a port's. Nothing is in flight where that holds for each queue
// pair that was posted to.
//
// Where records were lost or probes were out, all that is known of the queue
// pairs is void: something may be in flight on them. Those that were busy then are
// unknown until their place is proven anew; those that were empty, which a job may
// have made once and leave alone, only until such a time comes again.
type portBacklog struct {
	backlog
	epoch    uint32 // counts these times
	inFlight int64  // on the busy ones
	// Queue pairs: known in this epoch, unknown, and empty in the one before.
	empty, busy, unknown, lapsing int32
}

// flow is what a port's backlog knows of a queue pair.
type flow struct {
	epoch uint32 // in which it was seen last
	is    flowState
	depth int32 // of one that is busy
}

type flowState uint8

const (
	flowUnseen flowState = iota
	flowEmpty
	flowBusy
	flowUnknown // how many of its WRs are in flight
)

// at gives what is known of a queue pair.
func (p *portBacklog) at(f *flow) flowState {
	switch {
	case f.epoch == p.epoch:
		return f.is
	case f.is == flowBusy, f.is == flowEmpty && f.epoch+1 == p.epoch:
		return flowUnknown
	case f.is == flowEmpty:
		return flowUnseen
	}
	return f.is
}

// count of the queue pairs that f is one of; nil: of none.
func (p *portBacklog) count(f *flow) *int32 {
	switch is := p.at(f); {
	case is == flowEmpty:
		return &p.empty
	case is == flowBusy:
		return &p.busy
	case is == flowUnknown && f.is == flowEmpty:
		return &p.lapsing
	case is == flowUnknown:
		return &p.unknown
	}
	return nil
}

// set what is known of a queue pair.
func (p *portBacklog) set(f *flow, is flowState, depth int32) {
	if p.at(f) == flowBusy {
		p.inFlight -= int64(f.depth)
	}
	if n := p.count(f); n != nil {
		*n--
	}
	*f = flow{p.epoch, is, depth}
	if n := p.count(f); n != nil {
		*n++
	}
	if is == flowBusy {
		p.inFlight += int64(depth)
	}
}

// forget begins an epoch.
func (p *portBacklog) forget() {
	p.epoch++
	p.unknown, p.lapsing = p.unknown+p.busy, p.empty
	p.empty, p.busy, p.inFlight, p.open = 0, 0, 0, false
}

// doubtful says that something may be in flight that is not known of.
func (p *portBacklog) doubtful() bool { return p.unknown+p.lapsing > 0 }

// holds sets the depth of a queue pair, or depthUnknown.
func (p *portBacklog) holds(f *flow, depth int32) {
	switch {
	case depth > 0 && f.is == flowBusy && f.epoch == p.epoch: // as mostly
		p.inFlight += int64(depth - f.depth)
		f.depth = depth
	case depth == depthUnknown:
		p.set(f, flowUnknown, 0)
	case depth > 0:
		p.set(f, flowBusy, depth)
	default:
		p.set(f, flowEmpty, 0)
	}
}

// post on a queue pair, with depth WRs in flight on it before.
func (p *portBacklog) post(f *flow, t uint64, tid uint32, bytes uint64, depth int32) {
	if depth == depthUnknown {
		p.holds(f, depthUnknown)
		p.backlog.post(t, tid, bytes, depthUnknown)
		return
	}
	p.holds(f, depth+1)
	all := p.inFlight - 1
	if p.doubtful() {
		all = depthUnknown
	}
	p.backlog.post(t, tid, bytes, all)
}

// clear begins a gap at t where nothing is in flight now.
func (p *portBacklog) clear(t uint64) {
	if p.busy == 0 && !p.doubtful() && !p.open {
		p.begin(t)
	}
}

// posted says that one work request was posted: opcode is enum ibv_wr_opcode,
// depth the WRs in flight on the QP before it, or depthUnknown. Receives are not reported.
func (a *aggregates) posted(qp *queuePair, t uint64, tid uint32, opcode uint8, bytes uint64, depth int32) {
	q := a.queue(qp)
	if direction(opcode) == 1 {
		q.port.received += int64(bytes)
	} else {
		q.port.sent += int64(bytes)
	}
	if depth == depthUnknown {
		q.backlog.open = false // what was known of it is no more
	}
	a.gapBefore(&q.backlog.gaps, &q.port.backlog.gaps, t, tid)
	q.backlog.post(t, tid, bytes, int64(depth))
	q.port.backlog.post(&qp.flow, t, tid, bytes, depth)
}

// retired says that n work requests with these bytes left the QP's send queue
// at t, leaving depth in flight, or depthUnknown.
func (a *aggregates) retired(qp *queuePair, t uint64, n int32, bytes uint64, depth int32) {
	q := a.queue(qp)
	q.backlog.retire(t, depth)
	q.port.backlog.holds(&qp.flow, depth)
	q.port.backlog.clear(t)
}

// lost says that from t on it is not known what the QP's send queue holds.
func (a *aggregates) lost(qp *queuePair, t uint64) {
	q := a.queue(qp)
	q.backlog.blind.at(t)
	a.gapBefore(&q.backlog.gaps, &a.none, t, q.backlog.lastTID)
	if port := &q.port.backlog; port.at(&qp.flow) == flowEmpty || port.at(&qp.flow) == flowBusy {
		a.gapBefore(&a.none, &port.gaps, t, port.lastTID)
		port.blind.at(t)
		port.set(&qp.flow, flowUnknown, 0)
	}
}

// gone says that the QP was destroyed at t.
func (a *aggregates) gone(qp *queuePair, t uint64) {
	if qp.aggregate == nil {
		return
	}
	own := &qp.aggregate.backlog
	a.gapBefore(&own.gaps, &a.none, t, own.lastTID)
	if port := &qp.aggregate.port.backlog; port.at(&qp.flow) != flowUnseen {
		port.set(&qp.flow, flowUnseen, 0)
		port.clear(t)
	}
}

// paused says that posts and polls are not observed from t on, or that some
// were lost, of whom is unknown.
func (a *aggregates) paused(t uint64) {
	a.unseen.at(t)
	for _, q := range a.queues {
		a.gapBefore(&q.backlog.gaps, &a.none, t, q.backlog.lastTID)
	}
	for _, p := range a.ports {
		a.gapBefore(&a.none, &p.backlog.gaps, t, p.backlog.lastTID)
		p.backlog.forget()
	}
}
