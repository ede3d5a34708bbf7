package attribution

// coveredMost disjoint intervals are kept apart by a coverage: 8 KiB.
const coveredMost = 512

// coverage is a union of intervals that tells what each adds to it. Unlike an
// intervalSet it knows many: a completion that waited for long covers all the short
// waits that came meanwhile. Beyond the bound the oldest two become one, with the gap
// between them in it.
type coverage struct {
	intervals ring[interval] // disjoint, in the order of time
	gaps      uint64         // of the oldest one, ns that were in none: where is forgotten
}

func (i *interval) endsAt() uint64 { return i.end }

// add [begin, end), and call visit for each part of it that was not covered. Of what is
// no longer kept apart it visits nothing: missed is how many ns were not covered there,
// at most. The sum over all calls is no less than all that was not visited, and no more than
// the gaps that were forgotten: it counts none of them twice.
func (c *coverage) add(begin, end uint64, visit func(begin, end uint64)) (missed uint64) {
	if begin >= end {
		return 0
	}
	all := &c.intervals
	if all.len() == 0 || all.last().end < begin {
		visit(begin, end)
		c.insert(all.next, interval{begin, end})
		return 0
	}
	// Those that overlap or touch [begin, end) are from low up to high.
	low := all.first
	if seq, ok := search(all, begin-1, (*interval).endsAt); ok {
		low = seq + 1
	}
	if low == all.first && c.gaps > 0 {
		if missed = c.forgotten(begin, end); all.at(low).end == begin {
			low++ // what is known does not become a part of what is not
		}
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
		return missed
	}
	*all.at(low) = whole
	for low++; high != all.next; low, high = low+1, high+1 {
		*all.at(low) = *all.at(high)
	}
	all.next = low
	return missed
}

// forgotten gives how many ns of [begin, end) are in gaps of the oldest interval, at
// most. They are taken out of it: if all from begin on is covered now, that is cut off.
func (c *coverage) forgotten(begin, end uint64) uint64 {
	oldest := c.intervals.at(c.intervals.first)
	from, to := max(begin, oldest.begin), min(end, oldest.end)
	if from >= to {
		return 0
	}
	missed := min(to-from, c.gaps)
	c.gaps -= missed
	if from > oldest.begin && to == oldest.end {
		oldest.end = from
	}
	return missed
}

// insert an interval before the one numbered seq.
func (c *coverage) insert(seq uint64, i interval) {
	all := &c.intervals
	if all.full() {
		switch {
		case len(all.buf) < coveredMost:
			all.grow()
		case seq <= all.first+1:
			c.join(all.at(all.first), i)
			return
		default:
			c.join(all.at(all.first+1), *all.at(all.first))
			all.pop()
		}
	}
	all.push(i)
	for at := all.next - 1; at > seq; at-- {
		*all.at(at), *all.at(at - 1) = *all.at(at - 1), *all.at(at)
	}
}

// join to i one that is disjoint, as the oldest.
func (c *coverage) join(i *interval, other interval) {
	c.gaps += max(i.begin, other.begin) - min(i.end, other.end)
	i.begin, i.end = min(i.begin, other.begin), max(i.end, other.end)
}
