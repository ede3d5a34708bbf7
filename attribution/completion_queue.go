package attribution

// completionQueue is a completion queue and what its pollers do.
type completionQueue struct {
	pid  uint32
	addr uint64
	fd   int32 // of its completion channel, -1: none or unknown

	context uint64       // of its device
	vector  uint32       // comp_vector, or vectorUnknown
	among   *armedQueues // nil: it was not armed

	channel *channel // nil: none or unknown

	arms    [4]arming // the latest ones
	armed   int       // ever
	pollers [8]poller

	reaps  int  // completions so far, up to soleReaper
	shared bool // several threads reap
	held   int  // completions held back, see hold

	recent     [16]*queuePair // whose completions came lately, at a place that follows from the number
	latestTID  uint32         // who reaped the latest completion
	latestReap uint64
	order      reapOrder
	writings   writings
	notices    notices
}

// arming is one ibv_req_notify_cq: it leads to one event, by the first
// completion after it.
type arming struct {
	tid   uint32
	at    uint64
	fired uint64 // latest time at which it may have fired; 0: not yet
}

// poller is a thread that polls.
type poller struct {
	tid    uint32
	latest uint64
}

// arm takes an ibv_req_notify_cq by a thread at t.
func (c *completionQueue) arm(tid uint32, t uint64) {
	c.arms[c.armed%len(c.arms)] = arming{tid: tid, at: t}
	c.armed++
	c.notices.arm(t)
}

// armedBy says that a thread was among the latest to arm.
func (c *completionQueue) armedBy(tid uint32) bool {
	for i := range min(c.armed, len(c.arms)) {
		if c.arms[i].tid == tid {
			return true
		}
	}
	return false
}

// fire says that a completion became visible at t or earlier.
func (c *completionQueue) fire(t uint64) {
	for i := range min(c.armed, len(c.arms)) {
		if a := &c.arms[i]; a.fired == 0 && a.at <= t {
			a.fired = t
		}
	}
}

// isArmed says that an event was due at some time of a sleep.
func (c *completionQueue) isArmed(begin, end uint64) bool {
	for i := range min(c.armed, len(c.arms)) {
		if a := &c.arms[i]; a.at <= end && (a.fired == 0 || a.fired >= begin) {
			return true
		}
	}
	return false
}

// polled takes note that a thread polled at t.
func (c *completionQueue) polled(tid uint32, t uint64) {
	oldest := &c.pollers[0]
	for i := range c.pollers {
		p := &c.pollers[i]
		if p.tid == tid {
			p.latest = max(p.latest, t)
			return
		}
		if p.latest < oldest.latest {
			oldest = p
		}
	}
	if t > oldest.latest {
		*oldest = poller{tid, t}
	}
}

// lately is how long ago, before done, a thread must have polled last in order
// to be counted among those that could have reaped a completion, ns.
const lately = 10_000_000

// polledLately says whether a poller counts for a completion that was done at t.
func (p *poller) polledLately(t uint64) bool { return p.tid != 0 && p.latest+lately >= t }
