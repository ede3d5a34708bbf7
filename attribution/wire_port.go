package attribution

// portTraffic remembers what the traced queue pairs of a port finished lately
// in one direction, in the order of done.
type portTraffic struct {
	ring  []transfer // a power of two long
	count uint64
	many  bool // more than one queue pair was seen
}

type transfer struct {
	done, bytes uint64
	queue       int32
}

const (
	// portTransfers reach back farther than WRs are delayed.
	portTransfers = 2 * delayedWRs
	// sortReach: a transfer this far out of order counts as done a little later.
	sortReach = 64
	// shareReach bounds the look back; beyond it the share is extrapolated.
	shareReach = 256
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
	kept := min(p.count, uint64(len(p.ring)))
	back := uint64(0)
	for ; back+1 < kept && back < sortReach && p.at(back+1).done > t.done; back++ {
		*p.at(back) = *p.at(back + 1)
	}
	if back+1 < kept {
		t.done = max(t.done, p.at(back+1).done)
	}
	*p.at(back) = t
}

// others gives the bytes that queue pairs other than queue finished in (begin, end].
func (p *portTraffic) others(queue int32, begin, end uint64) uint64 {
	if !p.many {
		return 0
	}
	kept := min(p.count, uint64(len(p.ring)))
	low, high := uint64(0), kept
	for low < high {
		middle := (low + high) / 2
		if p.at(middle).done > end {
			low = middle + 1
		} else {
			high = middle
		}
	}
	var bytes uint64
	for i := low; i < kept; i++ {
		t := p.at(i)
		if t.done <= begin {
			break
		}
		if i-low == shareReach {
			return bytes * (end - begin) / max(end-t.done, 1)
		}
		if t.queue != queue {
			bytes += t.bytes
		}
	}
	return bytes
}
