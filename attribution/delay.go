package attribution

// delayedWRs is how many work requests pass between the moment one teaches its
// floor and the moment its wire is split. A run shorter than this is split by
// what all of it has taught; a longer one by what was known up to then. It
// takes about 1 KiB for each.
const delayedWRs = 8192

// delayed is a work request that waits for its split.
type delayed struct {
	m     measured
	queue *queueState
	floor *floor // nil: not a WR with a wire to split
}

// delayLine keeps work requests in the order in which they came. Its places
// are reused, with the segments they have grown to.
type delayLine struct {
	ring []delayed
	head int // the oldest
	used int
}

// next is the place for a WR; full says that take has to be called first.
func (l *delayLine) full() bool { return l.used == delayedWRs }

func (l *delayLine) next() *delayed {
	i := (l.head + l.used) % delayedWRs
	if i == len(l.ring) {
		l.ring = append(l.ring, delayed{})
	}
	l.used++
	return &l.ring[i]
}

// take the oldest. It stays valid until the next call of next.
func (l *delayLine) take() *delayed {
	d := &l.ring[l.head]
	l.head = (l.head + 1) % delayedWRs
	l.used--
	return d
}

// keep a copy of m with its segments.
func (d *delayed) keep(m *measured) {
	segments := append(d.m.segments[:0], m.segments...)
	d.m = *m
	d.m.segments = segments
}
