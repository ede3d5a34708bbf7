package attribution

// coveredMost disjoint intervals are kept apart by a coverage.
const coveredMost = 512

// coverage is a union of intervals that tells what each adds to it. Unlike an
// intervalSet it knows many: a completion that waited for long covers all the short
// waits that came meanwhile. What begins before the oldest one kept counts as
// covered up to there.
type coverage struct {
	intervals ring[interval] // disjoint, in the order of time
	frontier  uint64         // before it everything counts as covered
}

func (i *interval) endsAt() uint64 { return i.end }

// add [begin, end), and call visit for each part of it that was not covered.
func (c *coverage) add(begin, end uint64, visit func(begin, end uint64)) {
	begin = max(begin, c.frontier)
	if begin >= end {
		return
	}
	all := &c.intervals
	if all.len() == 0 || all.last().end < begin {
		visit(begin, end)
		c.insert(all.next, interval{begin, end})
		return
	}
	// Those that overlap or touch [begin, end) are from low up to high.
	low := all.first
	if seq, ok := search(all, begin-1, (*interval).endsAt); ok {
		low = seq + 1
	}
	high, at, whole := low, begin, interval{begin, end}
	for ; high != all.next && all.at(high).begin <= end; high++ {
		known := *all.at(high)
		if at < known.begin {
			visit(at, known.begin)
		}
		at = max(at, known.end)
		whole.begin, whole.end = min(whole.begin, known.begin), max(whole.end, known.end)
	}
	if at < end {
		visit(at, end)
	}
	if low == high {
		c.insert(low, whole)
		return
	}
	*all.at(low) = whole
	for low++; high != all.next; low, high = low+1, high+1 {
		*all.at(low) = *all.at(high)
	}
	all.next = low
}

// insert an interval before the one numbered seq.
func (c *coverage) insert(seq uint64, i interval) {
	all := &c.intervals
	if all.full() {
		switch {
		case len(all.buf) < coveredMost:
			all.grow()
		case seq == all.first:
			c.frontier = i.end // older than all that are kept
			return
		default:
			c.frontier = all.at(all.first).end
		}
	}
	all.push(i)
	for at := all.next - 1; at > seq; at-- {
		*all.at(at), *all.at(at - 1) = *all.at(at - 1), *all.at(at)
	}
}
