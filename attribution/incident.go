package attribution

import (
	"cmp"
	"slices"
)

const (
	// incidentLeast: shorter delays are not looked at, ns.
	incidentLeast = 1000
	// incidentsKept are the worst ones of the run; incidentsOpen keys can be
	// open, with incidentsPerKey intervals each.
	incidentsKept   = 32
	incidentsOpen   = 1024
	incidentsPerKey = 16
	// segmentsMost of one WR are looked at, the longest: in a long wait the same
	// culprit comes back a thousand times.
	segmentsMost = 24
	// timelineMost segments of a worst WR are kept, the longest.
	timelineMost = 64
)

// incidentKey: what makes two delays one incident, beside their time.
type incidentKey struct {
	cause Cause
	who   culprit
	tid   uint32 // host causes: the thread that was delayed
	queue int32  // wire causes: the queue pair; else -1
}

// stall is an incident that may still grow.
type stall struct {
	key        incidentKey
	begin, end uint64
	wrs        int64
	delay      uint64 // summed over the WRs
	lastWR     int64  // counted last
	lastDelay  uint64 // of it
	worstDelay uint64 // of a single WR: the rank of the incident
	worst      storedWR
	stored     bool
	cgroup     uint64 // of the culprit, when it was seen last; 0: unknown
}

// storedWR is the copy of a WR and its segments.
type storedWR struct {
	m       measured
	omitted int // segments
}

// incidents merges the delays of WRs that have the same culprit and the same
// time, and keeps the worst. Of a key the latest intervals stay open, and of
// the earlier ones the worst: WRs may come out of order by as much.
//
// Rank is the longest delay of a single WR, not the sum: behind a deep queue
// the sum counts the same stall for every WR in it.
type incidents struct {
	sets    map[incidentKey]*stallSet
	recent  [64]*stallSet // of sets, at a place that follows from the key
	order   []*stallSet   // of sets: maps have no order
	spare   []*stall
	spareOf []*stallSet
	worst   []*stall // at most incidentsKept, worst first
	least   uint64   // worstDelay needed to enter worst
	evicted int64    // keys closed early for want of room
}

type stallSet struct {
	key  incidentKey
	open [incidentsPerKey]*stall // by end, as it was when opened
	used int
}

func newIncidents() incidents { return incidents{sets: make(map[incidentKey]*stallSet)} }

// incidentCauses: what can be an incident; the others are the price of the
// work itself, or the job's own doing. After done, delays count only where
// somebody was seen to need the completion: those marked.
var incidentCauses = [numCauses]struct{ counts, needed, wire bool }{
	Submit:     {counts: true},
	LatePoll:   {counts: true, needed: true},
	OwnSleep:   {counts: true, needed: true},
	Handoff:    {counts: true, needed: true},
	Delivery:   {counts: true, needed: true},
	Handler:    {counts: true, needed: true},
	IRQOnTop:   {counts: true, needed: true},
	Runqueue:   {counts: true, needed: true},
	Preempted:  {counts: true, needed: true},
	Yielded:    {counts: true, needed: true},
	Throttled:  {counts: true, needed: true},
	Excess:     {counts: true, wire: true},
	RNR:        {counts: true, wire: true},
	Retransmit: {counts: true, wire: true},
}

// add the segments of the WR numbered wr.
func (c *incidents) add(m *measured, queue int32, wr int64) {
	segments := m.segments
	least := uint64(incidentLeast)
	if len(segments) > segmentsMost {
		least = max(least, nthLongest(segments, segmentsMost))
	}
	for i := range segments {
		s := &segments[i]
		rule := &incidentCauses[s.cause]
		if !rule.counts || s.end-s.begin < least {
			continue
		}
		if rule.needed && m.demand == Unproven && s.begin >= m.postEnd {
			continue
		}
		key := incidentKey{cause: s.cause, tid: s.tid, queue: -1}
		if s.who != nil {
			key.who = *s.who
			key.who.cgroup = 0
			if key.who.kind == culpritTask {
				key.who.id = key.who.pid // its threads take turns on a CPU
			}
		}
		if rule.wire {
			key.tid, key.queue = 0, queue
		}
		c.delay(key, m, s, wr)
	}
}

func (c *incidents) delay(key incidentKey, m *measured, s *segment, wr int64) {
	set := c.set(key)
	stall := set.find(s, wr)
	if stall == nil {
		stall = c.open(set, s)
	}
	stall.begin, stall.end = min(stall.begin, s.begin), max(stall.end, s.end)
	stall.delay += s.end - s.begin
	if stall.lastWR != wr {
		stall.lastWR, stall.lastDelay = wr, 0
		stall.wrs++
	}
	stall.lastDelay += s.end - s.begin
	stall.worstDelay = max(stall.worstDelay, stall.lastDelay)
	if home := s.who.home(); home != 0 {
		stall.cgroup = home
	}
	// What cannot be among the worst needs no copy of its WR.
	if stall.worstDelay >= c.least && (!stall.stored || m.latency() > stall.worst.m.latency()) {
		stall.worst.keep(m)
		stall.stored = true
	}
}

// find the interval that s belongs to. A culprit's intervals are its own:
// whatever overlaps is the same. Where there is none, stalls of neighbouring
// WRs could form an endless chain: they must cover most of the shorter one. What
// delayed one WR before and after a much shorter time is one interval: a timer's
// interrupt, or a kernel's thread, cuts a pause in pieces.
func (s *stallSet) find(seg *segment, wr int64) *stall {
	for i := s.used - 1; i >= 0; i-- {
		o := s.open[i]
		if o.lastWR == wr && o.goesOn(seg) {
			return o
		}
		if seg.begin > o.end || seg.end < o.begin {
			continue
		}
		if s.key.who.kind != nobody {
			return o
		}
		overlap := min(seg.end, o.end) - max(seg.begin, o.begin)
		if overlap*4 >= min(seg.end-seg.begin, o.end-o.begin)*3 {
			return o
		}
	}
	return nil
}

// goesOn says that seg is the same interval but for a time that is much shorter than both.
func (o *stall) goesOn(seg *segment) bool {
	const much = 8
	gap := max(seg.begin, o.begin) - min(seg.end, o.end, max(seg.begin, o.begin))
	return gap > 0 && gap*much <= min(seg.end-seg.begin, o.end-o.begin)
}

// open a new interval. Where they are too many the least of the earlier half
// is closed.
func (c *incidents) open(set *stallSet, s *segment) *stall {
	if set.used == incidentsPerKey {
		least := 0
		for i, o := range set.open[:incidentsPerKey/2] {
			if o.worstDelay < set.open[least].worstDelay {
				least = i
			}
		}
		c.close(set.open[least])
		copy(set.open[least:], set.open[least+1:])
		set.used--
	}
	var o *stall
	if n := len(c.spare); n > 0 {
		o, c.spare = c.spare[n-1], c.spare[:n-1]
		segments := o.worst.m.segments
		*o = stall{}
		o.worst.m.segments = segments
	} else {
		o = new(stall)
	}
	o.key, o.begin, o.end, o.lastWR = set.key, s.begin, s.end, -1
	at := set.used
	for at > 0 && set.open[at-1].end > o.end {
		set.open[at] = set.open[at-1]
		at--
	}
	set.open[at] = o
	set.used++
	return o
}

// set of a key. One key comes again and again, and is dear to hash.
func (c *incidents) set(key incidentKey) *stallSet {
	recent := &c.recent[(uint32(key.queue)+key.tid+key.who.id)%uint32(len(c.recent))]
	if *recent == nil || (*recent).key != key {
		set := c.sets[key]
		if set == nil {
			set = c.newSet(key)
		}
		*recent = set
	}
	return *recent
}

func (c *incidents) newSet(key incidentKey) *stallSet {
	if len(c.sets) >= incidentsOpen {
		c.evict()
	}
	var set *stallSet
	if n := len(c.spareOf); n > 0 {
		set, c.spareOf = c.spareOf[n-1], c.spareOf[:n-1]
		*set = stallSet{}
	} else {
		set = new(stallSet)
	}
	set.key = key
	c.sets[key] = set
	c.order = append(c.order, set)
	return set
}

// evict the half of the keys that were seen longest ago.
func (c *incidents) evict() {
	slices.SortStableFunc(c.order, func(a, b *stallSet) int {
		return cmp.Compare(b.open[b.used-1].end, a.open[a.used-1].end)
	})
	half := len(c.order) / 2
	clear(c.recent[:])
	for _, set := range c.order[half:] {
		c.closeAll(set)
		delete(c.sets, set.key)
		c.spareOf = append(c.spareOf, set)
		c.evicted++
	}
	c.order = c.order[:half]
}

func (c *incidents) closeAll(set *stallSet) {
	for _, o := range set.open[:set.used] {
		c.close(o)
	}
}

// close an interval: it stays if it is among the worst.
func (c *incidents) close(o *stall) {
	if !o.stored || o.worstDelay < c.least {
		c.spare = append(c.spare, o)
		return
	}
	at, _ := slices.BinarySearchFunc(c.worst, o, compareStalls)
	c.worst = slices.Insert(c.worst, at, o)
	if len(c.worst) <= incidentsKept {
		return
	}
	c.spare = append(c.spare, c.worst[incidentsKept])
	c.worst = c.worst[:incidentsKept]
	c.least = c.worst[incidentsKept-1].worstDelay
}

// compareStalls: worst first.
func compareStalls(a, b *stall) int {
	if n := cmp.Compare(b.worstDelay, a.worstDelay); n != 0 {
		return n
	}
	return cmp.Or(
		cmp.Compare(b.delay, a.delay),
		cmp.Compare(a.begin, b.begin),
		compareWho(&whoKey{a.key.cause, a.key.who}, &whoKey{b.key.cause, b.key.who}),
		cmp.Compare(a.key.tid, b.key.tid),
		cmp.Compare(a.key.queue, b.key.queue),
	)
}

// finish closes everything and gives the worst, worst first.
func (c *incidents) finish() []*stall {
	for _, set := range c.order {
		c.closeAll(set)
	}
	return c.worst
}

// keep a copy of a WR. Where it has too many segments the shortest are left out.
func (w *storedWR) keep(m *measured) {
	segments := m.segments
	kept := w.m.segments[:0]
	w.omitted = 0
	least := uint64(0)
	if len(segments) > timelineMost {
		least = nthLongest(segments, timelineMost)
	}
	for i := range segments {
		s := &segments[i]
		if s.end-s.begin < least || len(kept) == timelineMost {
			w.omitted++
			continue
		}
		kept = append(kept, *s)
	}
	w.m = *m
	w.m.segments = kept
}

// nthLongest duration of segments.
func nthLongest(segments []segment, n int) uint64 {
	var longest [timelineMost]uint64 // ascending; the first n are used
	for i := range segments {
		ns := segments[i].end - segments[i].begin
		if ns <= longest[0] {
			continue
		}
		at := 0
		for at+1 < n && longest[at+1] < ns {
			longest[at] = longest[at+1]
			at++
		}
		longest[at] = ns
	}
	return longest[0]
}
