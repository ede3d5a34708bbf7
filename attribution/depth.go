package attribution

// idleSyscalls are told apart per queue pair.
const idleSyscalls = 8

// backlog follows how full a send queue is kept: what happens before the post
// is in no latency, but a job that is slow because nobody posts shows here.
type backlog struct {
	posted, bytes  int64
	depths         int64 // posts at which the depth was known
	depthSum       int64 // at these
	depthMax       int32
	firstPost      uint64
	startedEmpty   bool // nothing was in flight at the first post
	empty          bool // nothing is in flight since
	since          uint64
	counted        uint64 // gaps are counted up to here
	lastTID        uint32
	idle, unknown  uint64
	running, ready uint64 // runnable: wants a CPU
	asleep         uint64
	sleeps         [idleSyscalls]sleepSum
	otherSleeps    sleepSum
}

type sleepSum struct {
	syscall int32
	used    bool
	ns      uint64
	count   int64
}

// post takes a post.
func (b *backlog) post(t uint64, tid uint32, bytes uint64, depth int32) {
	if b.posted == 0 {
		b.firstPost, b.startedEmpty = t, depth == 0
	}
	b.posted++
	b.bytes += int64(bytes)
	b.empty = false
	b.lastTID = tid
	if depth == depthUnknown {
		return
	}
	b.depths++
	b.depthSum += int64(depth)
	b.depthMax = max(b.depthMax, depth)
}

func (b *backlog) retire(t uint64, depth int32) {
	if depth == 0 {
		b.empty, b.since = true, max(t, b.counted)
	}
}

// gap adds [begin, end), in which nothing was in flight.
func (b *backlog) gap(begin, end uint64, told uint64) {
	b.idle += end - begin
	b.counted = end
	b.unknown += end - begin - min(told, end-begin)
}

// spend adds what the posting thread did in a gap.
func (b *backlog) spend(state threadState, ns uint64, syscall int32) {
	switch state {
	case stateRunning:
		b.running += ns
	case stateRunnable:
		b.ready += ns
	case stateAsleep:
		b.asleep += ns
		b.sleep(syscall, ns)
	default:
		b.unknown += ns
	}
}

func (b *backlog) sleep(syscall int32, ns uint64) {
	for i := range b.sleeps {
		s := &b.sleeps[i]
		if !s.used {
			*s = sleepSum{syscall: syscall, used: true}
		}
		if s.syscall == syscall {
			s.ns += ns
			s.count++
			return
		}
	}
	b.otherSleeps.ns += ns
	b.otherSleeps.count++
}

// gapBefore ends, at t, a time with nothing in flight: the thread that posts
// now is asked what it did meanwhile.
func (a *aggregates) gapBefore(q *queueState, t uint64, tid uint32) {
	b := &q.backlog
	if !b.empty || t <= b.since {
		return
	}
	a.walked, a.walkedNS = b, 0
	if a.threads != nil {
		a.threads.walk(tid, b.since, t, a.span)
	}
	b.gap(b.since, t, a.walkedNS)
}

// spanOf is what a.span is made of: one closure for all walks.
func (a *aggregates) spanOf(state threadState, begin, end uint64, syscall int32) {
	a.walkedNS += end - begin
	a.walked.spend(state, end-begin, syscall)
}

// report fills the part of a Queue that b knows. [begin, end) is the part of
// the window in which the queue pair existed, observed how much of a time was.
func (b *backlog) report(q *Queue, begin, end uint64, observed func(begin, end uint64) uint64, names *naming) {
	q.Posted = b.posted
	q.DepthMax, q.DepthKnown = int64(b.depthMax), b.depths
	idle, unknown := b.idle, b.unknown
	switch {
	case b.posted == 0:
		idle, unknown = idle+observed(begin, end), unknown+observed(begin, end)
	case b.startedEmpty:
		idle, unknown = idle+observed(begin, b.firstPost), unknown+observed(begin, b.firstPost)
	}
	if b.depths > 0 {
		q.DepthMean = float64(b.depthSum) / float64(b.depths)
	}
	q.IdleNS = int64(idle)
	q.IdleRunning, q.IdleRunnable = int64(b.running), int64(b.ready)
	q.IdleAsleep, q.IdleUnknown = int64(b.asleep), int64(unknown)
	var list []Culprit
	for _, s := range b.sleeps {
		if s.used {
			name := "asleep"
			if s.syscall >= 0 {
				name = names.syscall(s.syscall)
			}
			list = append(list, Culprit{Name: name, TotalNS: int64(s.ns), Count: s.count})
		}
	}
	q.IdleSyscalls = topCulprits(list, Culprit{TotalNS: int64(b.otherSleeps.ns), Count: b.otherSleeps.count})
	if seconds := float64(observed(begin, end)) / 1e9; seconds > 0 {
		q.BytesPerSec = float64(b.bytes) / seconds
		q.WRsPerSec = float64(b.posted) / seconds
	}
}
