package attribution

// portTraffic remembers what the traced queue pairs of a port finished lately
// in one direction, in the order of done.
type portTraffic struct {
	ring  []transfer // a power of two long
	count uint64
	many  bool // more than one queue pair was seen
	walks uint64
	turns []turn // by queue pair
}

type transfer struct {
	done, posted, bytes uint64
	floor               *floor // the like of it take as long; nil: not known
	queue               int32
	stuck               bool // for a reason of its own: see overtaken
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

// overtaken says whether t, with which its queue pair could begin at start, took long for
// a reason of its own: what another queue pair posted when half of that time had passed
// was done before it, though it is as long and takes the same way. The port works in turn
// for those that have something to send, so t did not wait for the port then.
func (p *portTraffic) overtaken(t *transfer, start uint64) bool {
	if !p.many || t.floor == nil || start >= t.done {
		return false
	}
	middle := start + (t.done-start)/2
	first := p.newest(t.done)
	for i := first; i < min(p.kept(), first+shareReach); i++ {
		o := p.at(i)
		if o.done <= middle {
			break
		}
		if o.posted > middle && o.queue != t.queue && o.floor == t.floor && o.bytes >= t.bytes {
			return true
		}
	}
	return false
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

// heldUp is when a WR was to be sent, and was held up by what may have been the port.
type heldUp struct {
	queue      int32  // the WR's queue pair
	posted     uint64 // when the WR was
	begin, end uint64
	own        uint64 // ns that the port worked for that queue pair
	bytes      uint64 // which that queue pair had to send
}

// share gives for how long, in ns, the port worked for other queue pairs than
// s.queue without a pause from s.begin on, by what was done a base after that and
// until a base after s.end. Who could send and did not waits for the port while it
// works; once it has paused, no more, and neither once another queue pair has sent
// as many bytes as it has itself, posted later: it works for all in turn. What was
// stuck has left the port nobody knows when. Less than a base, or half of what the next
// transfer takes, is no pause.
func (p *portTraffic) share(s heldUp, rate perByte, base uint64) uint64 {
	if !p.many || s.begin >= s.end {
		return 0
	}
	begin, end := s.begin+base, s.end+base
	p.walks++
	var others, all uint64 // bytes
	first, last := p.newest(end), p.newest(begin)
	for i := last; i > first; i-- {
		t := p.at(i - 1)
		if last-i > shareReach {
			return mulDiv(rate.of(others), end-begin, max(t.done-begin, 1))
		}
		if t.done-begin > s.own+withSlack(rate.of(all+t.bytes))+rate.of(t.bytes)/2+base {
			break
		}
		if t.queue != s.queue {
			if t.stuck {
				continue
			}
			bytes := t.bytes
			if t.posted > s.posted && bytes > 0 {
				if bytes = p.inTurn(t, s.bytes); bytes == 0 {
					break
				}
			}
			others += bytes
		}
		all += t.bytes
	}
	return rate.of(others)
}

// turn is what a queue pair sent in a walk along transfers.
type turn struct{ walk, bytes uint64 }

// inTurn gives as many of t's bytes as, with those that its queue pair sent before in
// this walk, are no more than most.
func (p *portTraffic) inTurn(t *transfer, most uint64) uint64 {
	if n := int(t.queue) + 1; n > len(p.turns) {
		p.turns = append(p.turns, make([]turn, n-len(p.turns))...)
	}
	sent := &p.turns[t.queue]
	if sent.walk != p.walks {
		*sent = turn{walk: p.walks}
	}
	bytes := min(t.bytes, most-sent.bytes)
	sent.bytes += bytes
	return bytes
}

// ahead gives the bytes of queue pairs other than queue that were posted by
// the time posted, and done in (posted, done], without those that were stuck. false:
// there are more transfers in between than most.
func (p *portTraffic) ahead(queue int32, posted, done, most uint64) (bytes uint64, known bool) {
	if !p.many {
		return 0, true
	}
	first, last := p.newest(done), p.newest(posted)
	if last-first > most || last == p.kept() {
		return 0, false
	}
	for i := first; i < last; i++ {
		if t := p.at(i); t.queue != queue && t.posted <= posted && !t.stuck {
			bytes += t.bytes
		}
	}
	return bytes, true
}
