package attribution

// sleepCalls system calls are told apart in gaps.
const sleepCalls = 8

// gaps are the times in which nothing was in flight, and what the thread did
// meanwhile that posted next.
type gaps struct {
	open           bool // nothing is in flight since
	since          uint64
	counted        uint64 // gaps are counted up to here
	told           uint64 // of the one that ends now: what the thread's timeline knows of it
	idle, unknown  uint64
	running, ready uint64 // runnable: wants a CPU
	asleep         uint64
	sleeps         [sleepCalls]sleepSum
	otherSleeps    sleepSum
}

type sleepSum struct {
	syscall int32
	used    bool
	ns      uint64
	count   int64
}

// begin a gap at t. Records of two threads may overlap: no time counts twice.
func (g *gaps) begin(t uint64) { g.open, g.since, g.told = true, max(t, g.counted), 0 }

// lasted is since when there is a gap that t ends, or never.
func (g *gaps) lasted(t uint64) uint64 {
	if !g.open || g.since >= t {
		return never
	}
	return g.since
}

// end the gap, if there is one, at t.
func (g *gaps) end(t uint64) {
	if g.lasted(t) != never {
		ns := t - g.since
		g.idle += ns
		g.unknown += ns - min(g.told, ns)
		g.counted = t
	}
	g.open = false
}

// spend adds what the thread did from begin to end, as far as that is in the gap.
func (g *gaps) spend(state threadState, begin, end uint64, syscall int32) {
	begin = max(begin, g.since)
	if !g.open || begin >= end {
		return
	}
	ns := end - begin
	g.told += ns
	switch state {
	case stateRunning:
		g.running += ns
	case stateRunnable:
		g.ready += ns
	case stateAsleep:
		g.asleep += ns
		g.sleep(syscall, ns)
	default:
		g.unknown += ns
	}
}

func (g *gaps) sleep(syscall int32, ns uint64) {
	for i := range g.sleeps {
		s := &g.sleeps[i]
		if !s.used {
			*s = sleepSum{syscall: syscall, used: true}
		}
		if s.syscall == syscall {
			s.ns += ns
			s.count++
			return
		}
	}
	g.otherSleeps.ns += ns
	g.otherSleeps.count++
}

func (g *gaps) report(r *Backlog, names *naming) {
	r.IdleNS = int64(g.idle)
	r.IdleRunning, r.IdleRunnable = int64(g.running), int64(g.ready)
	r.IdleAsleep, r.IdleUnknown = int64(g.asleep), int64(g.unknown)
	var list []Culprit
	for _, s := range g.sleeps {
		if s.used {
			name := "unknown call"
			if s.syscall >= 0 {
				name = names.syscall(s.syscall)
			}
			list = append(list, Culprit{Name: name, TotalNS: int64(s.ns), Count: s.count})
		}
	}
	r.IdleSyscalls = topCulprits(list, Culprit{TotalNS: int64(g.otherSleeps.ns), Count: g.otherSleeps.count})
}

// gapBefore ends, at t, what there is of a time with nothing in flight on a
// queue pair and on its port: the thread that posts now is asked what it did
// meanwhile. A port's gap is a part of those of all its queue pairs, so it is
// asked once.
func (a *aggregates) gapBefore(own, port *gaps, t uint64, tid uint32) {
	from := min(own.lasted(t), port.lasted(t))
	if from < t && a.threads != nil {
		a.walked = [2]*gaps{own, port}
		a.threads.walk(tid, from, t, a.span)
	}
	own.end(t)
	port.end(t)
}

// spanOf is what a.span is made of: one closure for all walks.
func (a *aggregates) spanOf(state threadState, begin, end uint64, syscall int32) {
	for _, g := range a.walked {
		g.spend(state, begin, end, syscall)
	}
}
