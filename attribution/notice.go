package attribution

// Where a program waits for events, the kernel tells the channel of a completion queue
// that something completed. That bounds done from above: not the reap, which may
// come late, but the notice.

// notices are the events of a completion queue. Each arming leads to one at most, by
// the first completion that was not consumed when it was made; the first one
// reaped after the arming is that or an earlier one, and was there at the notice.
type notices struct {
	unanswered int    // armings that an event may still come for
	armed      uint64 // the latest one
	first      bool   // nothing was reaped since then
	at         uint64 // its event; 0: none came, or it may be an earlier one's
	reaper     uint32 // who reaped so far
	reaps      int    // by it, up to soleReaper; -1: several threads reap
}

// onTheWay is how long after it was armed anew a queue may still have an event that
// the arming before led to, ns: it is held back for 65.5 ms at most (the 16 bits of
// cq_period of mlx5's cq_moderation, us), and then its handler may be.
const onTheWay = 100_000_000

func (n *notices) arm(t uint64) {
	if t > n.armed+onTheWay {
		n.unanswered = 0
	}
	n.unanswered++
	n.armed, n.first, n.at = t, true, 0
}

// take the event that was raised at t. With several armings unanswered it may be that
// of an earlier one, whose completion was reaped before the latest.
func (n *notices) take(t uint64) {
	if n.unanswered == 1 && n.first {
		n.at = t
	}
	n.unanswered = max(n.unanswered-1, 0)
}

// of gives the time at which a completion was there by its queue's notice, 0: not
// known. Where other threads reap as well, one of them may have the first still.
func (n *notices) of(c *verbRecord) (at uint64) {
	switch {
	case n.reaper == 0:
		n.reaper = c.tid
	case n.reaper != c.tid:
		n.reaps = -1
	}
	if n.reaps >= 0 && n.reaps < soleReaper {
		n.reaps++
	}
	if c.time < n.armed { // it was held until its order was known
		return 0
	}
	if n.first && n.at != 0 && n.at < c.time && n.reaps == soleReaper {
		at = n.at
	}
	n.first = false
	return at
}

// lose forgets what is under way: records are missing.
func (n *notices) lose() { n.unanswered, n.first, n.at = 0, false, 0 }

func (e *Engine) loseNotices() {
	for _, cq := range e.objects.cqs {
		cq.notices.lose()
	}
}

// isOthers says that an event of another queue than cq woke.
func (u *wake) isOthers(cq *completionQueue) bool { return u.cq != 0 && u.cq != cq.addr }
