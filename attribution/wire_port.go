package attribution

// portTraffic remembers what the traced queue pairs of a port finished lately
// in one direction, in the order of done.
type portTraffic struct {
	ring  []transfer // a power of two long
	count uint64
	many  bool // more than one queue pair was seen
}

type transfer struct {
	done, posted, bytes uint64
	queue               int32
}

const (
	// portTransfers reach back farther than WRs are delayed.
	portTransfers = 2 * delayedWRs
	// sortReach: a transfer this far out of order counts as done a little later.
	sortReach = 64
	// shareReach transfers are looked at; beyond it a share is extrapolated, and
	// of WRs only one in deepSample is learnt from, one in firstSample before
	// the floor is known.
	shareReach  = 256
	deepSample  = 64
	firstSample = 8
)

func (p *portTraffic) at(back uint64) *transfer {
	return &p.ring[(p.count-1-back)&(portTransfers-1)]
}

func (p *portTraffic) enter(t transfer) {
	if p.ring == nil {
		p.ring = make([]transfer, portTransfers)
	}
	if p.count > 0 && p.at(0).queue != t.queue {
		p.many = true
	}
	p.count++
	kept := p.kept()
	back := uint64(0)
	for ; back+1 < kept && back < sortReach && p.at(back+1).done > t.done; back++ {
		*p.at(back) = *p.at(back + 1)
	}
	if back+1 < kept {
		t.done = max(t.done, p.at(back+1).done)
	}
	*p.at(back) = t
}

// newest is how many transfers were done after t.
func (p *portTraffic) newest(t uint64) uint64 {
	// By doubling, then by bisection: what is asked about is recent.
	kept := p.kept()
	low, high := uint64(0), min(1, kept)
	for high < kept && p.at(high).done > t {
		low, high = high+1, min(2*high+1, kept)
	}
	for low < high {
		middle := (low + high) / 2
		if p.at(middle).done > t {
			low = middle + 1
		} else {
			high = middle
		}
	}
	return low
}

func (p *portTraffic) kept() uint64 { return min(p.count, uint64(len(p.ring))) }

// share gives for how long, in ns, the port worked for other queue pairs than
// queue without a pause from begin on, by what was done in (begin, end]; begin and
// end are when that would have been done which was sent then. Who could send and
// did not waits for the port while it works; once it has paused, no more. Of own ns
// the port worked for queue itself; less than slack, or half of what the next
// transfer takes, is no pause.
func (p *portTraffic) share(queue int32, begin, end uint64, rate perByte, own, slack uint64) uint64 {
	if !p.many || begin >= end {
		return 0
	}
	var others, all uint64 // bytes
	first, last := p.newest(end), p.newest(begin)
	for i := last; i > first; i-- {
		t := p.at(i - 1)
		if t.done-begin > own+withSlack(rate.of(all+t.bytes))+rate.of(t.bytes)/2+slack {
			break
		}
		all += t.bytes
		if t.queue != queue {
			others += t.bytes
		}
		if last-i == shareReach {
			return mulDiv(rate.of(others), end-begin, max(t.done-begin, 1))
		}
	}
	return rate.of(others)
}

// ahead gives the bytes of queue pairs other than queue that were posted by
// the time posted, and done in (posted, done]. false: there are more transfers
// in between than most.
func (p *portTraffic) ahead(queue int32, posted, done, most uint64) (bytes uint64, known bool) {
	if !p.many {
		return 0, true
	}
	first, last := p.newest(done), p.newest(posted)
	if last-first > most || last == p.kept() {
		return 0, false
	}
	for i := first; i < last; i++ {
		if t := p.at(i); t.queue != queue && t.posted <= posted {
			bytes += t.bytes
		}
	}
	return bytes, true
}
