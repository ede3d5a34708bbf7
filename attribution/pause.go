package attribution

import "math"

// The probes of posts and polls may be out for a while, to bound what observing
// costs. What is pending then has its completion unseen: it is excluded. What
// comes after is as at the beginning of a trace: queues have to be proven anew.
// The scheduler and the life of objects are observed all the time.

// pauses are the stretches of a window in which posts and polls were observed,
// and the times between them.
type pauses struct {
	on     bool // they are not observed
	since  uint64
	ended  uint64 // the latest one; 0: there was none
	closed []interval
	counts []stretch // of the stretches so far, the current one is last
}

// stretch is what was posted to send queues between two pauses.
type stretch struct {
	begin, end uint64
	wrs, bytes float64
}

// pausesMost bounds the memory of a long run: stretches beyond are merged in
// pairs, which leaves the estimate of their mean and widens that of its error little.
const pausesMost = 4096

// count takes a post to a send queue.
func (p *pauses) count(bytes uint32) {
	if n := len(p.counts); n > 0 {
		p.counts[n-1].wrs++
		p.counts[n-1].bytes += float64(bytes)
	}
}

// begin a pause, from t.
func (p *pauses) begin(t uint64) {
	p.on, p.since = true, t
	if n := len(p.counts); n > 0 {
		p.counts[n-1].end = t
	}
}

// end it, at t.
func (p *pauses) end(t uint64) {
	p.on, p.ended = false, t
	p.closed = append(p.closed, interval{p.since, t})
	p.start(t)
}

// start a stretch at t.
func (p *pauses) start(t uint64) {
	if len(p.counts) == pausesMost {
		p.halve()
	}
	p.counts = append(p.counts, stretch{begin: t})
}

func (p *pauses) halve() {
	for i := range pausesMost / 2 {
		a, b := p.counts[2*i], p.counts[2*i+1]
		// Its length is that of the two, not what lies between them.
		p.counts[i] = stretch{begin: a.begin, end: a.end + (b.end - b.begin), wrs: a.wrs + b.wrs, bytes: a.bytes + b.bytes}
		p.closed[i] = interval{p.closed[2*i].begin, p.closed[2*i].end + (p.closed[2*i+1].end - p.closed[2*i+1].begin)}
	}
	p.counts = p.counts[:pausesMost/2]
	p.closed = p.closed[:min(len(p.closed), pausesMost/2)]
}

// within is how much of [begin, end) was paused, ns.
func (p *pauses) within(begin, end uint64) (ns uint64) {
	for _, c := range p.closed {
		if b, e := max(c.begin, begin), min(c.end, end); b < e {
			ns += e - b
		}
	}
	if p.on && max(p.since, begin) < end {
		ns += end - max(p.since, begin)
	}
	return ns
}

// StretchesToTell: from fewer the error of a rate is not known.
const StretchesToTell = 3

// Sampled says what part of the window was observed, and what the whole of it
// held, as far as its part tells: rates of sends with their error, which is half
// the width of the interval that holds the mean in 95 of 100 cases, 0 where
// there are too few stretches to tell.
type Sampled struct {
	Stretches           int64
	ObservedNS          int64 // in all of them
	WRsPerSec           float64
	WRsPerSecError      float64
	BytesPerSec         float64
	BytesPerSecError    float64
	LongestUnobservedNS int64
}

// report gives nil where all of the window was observed.
func (p *pauses) report(begin, end uint64) *Sampled {
	paused := p.within(begin, end)
	if paused == 0 || end <= begin {
		return nil
	}
	s := &Sampled{ObservedNS: int64(end - begin - paused), Stretches: int64(len(p.counts))}
	for _, c := range p.closed {
		s.LongestUnobservedNS = max(s.LongestUnobservedNS, int64(c.end-c.begin))
	}
	if p.on && p.since < end {
		s.LongestUnobservedNS = max(s.LongestUnobservedNS, int64(end-max(p.since, begin)))
	}
	last := len(p.counts) - 1
	if last >= 0 && p.counts[last].end == 0 {
		p.counts[last].end = max(end, p.counts[last].begin)
	}
	observed := 1 - float64(paused)/float64(end-begin)
	s.WRsPerSec, s.WRsPerSecError = rateOf(p.counts, observed, func(c stretch) float64 { return c.wrs })
	s.BytesPerSec, s.BytesPerSecError = rateOf(p.counts, observed, func(c stretch) float64 { return c.bytes })
	return s
}

// rateOf is the ratio estimator of a rate over stretches of unequal length, with
// the error of a sample that takes a share of the whole (Cochran, Sampling
// Techniques, 6.3): 1.96 * sqrt((1 - share) / k * sum((y - R*d)^2) / (k - 1)) / mean(d).
func rateOf(all []stretch, share float64, of func(stretch) float64) (perSecond, bound float64) {
	var y, d float64
	for _, c := range all {
		y += of(c)
		d += float64(c.end-c.begin) / 1e9
	}
	if d <= 0 {
		return 0, 0
	}
	r, k := y/d, float64(len(all))
	if k < StretchesToTell {
		return r, 0
	}
	var squares float64
	for _, c := range all {
		off := of(c) - r*float64(c.end-c.begin)/1e9
		squares += off * off
	}
	return r, 1.96 * math.Sqrt(max(0, 1-share)/k*squares/(k-1)) / (d / k)
}

// pauseEvent takes the begin or the end of a pause.
func (e *Engine) pauseEvent(r *rareRecord) {
	switch begins := r.begins(); {
	case begins && !e.pauses.on:
		e.setAside(r.time)
		e.pauses.begin(r.time)
		e.out.paused(r.time)
	case !begins && e.pauses.on:
		e.pauses.end(r.time)
		e.loseWritings(r.time)
		e.loseNotices()
		for _, qp := range e.objects.live {
			e.unprove(qp, r.time)
		}
		for _, s := range e.objects.allSRQs {
			s.queue.unprove(r.time, e.lossEnd, 0)
		}
	}
}

// setAside excludes all that is pending at t, and forgets who is inside a call.
func (e *Engine) setAside(t uint64) {
	for i := range e.deferred {
		e.undo(&e.deferred[i]).Excluded++ // its call's return will not be seen
	}
	e.deferred = e.deferred[:0]
	for _, qp := range e.objects.live {
		e.letGo(qp, 0, 0)
		e.setQueueAside(qp, &qp.sendQueue, t)
		e.setQueueAside(qp, &qp.recvQueue, t)
	}
	for _, s := range e.objects.allSRQs {
		e.setQueueAside(nil, &s.queue, t)
	}
	for _, th := range e.threads.threads {
		th.call = openCall{}
	}
}

func (e *Engine) setQueueAside(qp *queuePair, q *workQueue, t uint64) {
	room := uint32(0)
	if qp != nil && !q.receive {
		room = qp.room()
	}
	for ; q.len() > 0; q.drop(1) {
		if p := q.at(0); p.is&isTaken == 0 {
			e.leave(qp, q, p, settledExcluded)
		}
	}
	q.unprove(t, e.lossEnd, room) // its depth is unknown from here on
	q.blocked = false
	e.noteLeft(qp, q, t)
}
