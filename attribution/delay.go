package attribution

const (
	// delayedWRs wait at most between the moment one teaches its floor and the
	// moment its wire is split. Each takes about half a KiB.
	delayedWRs = 4096
	// settledWRs have taught a floor all that matters: its WRs wait no more. A run
	// in which every floor has fewer is split by what all of it has taught.
	settledWRs = 2048
	// hopelessWRs have taught it nothing: theirs wait no more either.
	hopelessWRs = 4 * delayedWRs
	// shareWRs pass, where several queue pairs share a port, before it is known
	// what they finished in the meantime of a WR: they are reaped later.
	shareWRs = 128
)

// delayed is a work request that waits for its split.
type delayed struct {
	m     measured
	queue *queueState
	floor *floor // nil: not a WR with a wire to split
}

// delayLine keeps work requests in the order in which they came. Their places
// are reused, the last one left first: it is still in the cache.
type delayLine struct {
	ring [delayedWRs]*delayed
	head int // the oldest
	used int
	free []*delayed
}

// due says that the oldest must leave before the next comes.
func (l *delayLine) due() bool { return l.used == delayedWRs }

// ready says that the oldest has nothing to wait for.
func (l *delayLine) ready() bool {
	if l.used == 0 {
		return false
	}
	d := l.ring[l.head]
	if d.floor == nil {
		return true
	}
	if !d.floor.settled() {
		return false
	}
	return l.used > shareWRs || !d.queue.port.shared()
}

// next takes m into the line, with its segments: m has an empty slice for others
// afterwards.
func (l *delayLine) next(m *measured) *delayed {
	var d *delayed
	if n := len(l.free); n > 0 {
		d, l.free = l.free[n-1], l.free[:n-1]
	} else {
		d = new(delayed)
	}
	l.ring[(l.head+l.used)%delayedWRs] = d
	l.used++
	used := d.m.segments[:0]
	d.m = *m
	m.segments = used
	d.floor = nil
	return d
}

// take the oldest. It stays valid until it is given back.
func (l *delayLine) take() *delayed {
	d := l.ring[l.head]
	l.head = (l.head + 1) % delayedWRs
	l.used--
	return d
}

func (l *delayLine) giveBack(d *delayed) { l.free = append(l.free, d) }
