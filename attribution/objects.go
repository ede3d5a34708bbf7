package attribution

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/rdmatrace/rdmatrace/event"
)

// objectKey names a verbs object: addresses are those of a process.
type objectKey struct {
	pid  uint32
	addr uint64
}

// numberKey names queue pairs as completions do. Numbers are unique on a
// device only; see queuePair.sameNumber.
type numberKey struct{ pid, num uint32 }

// objects are the verbs objects of all targets.
type objects struct {
	byAddr   map[objectKey]*queuePair
	byNumber map[numberKey]*queuePair
	cqs      map[objectKey]*completionQueue
	srqs     map[objectKey]*sharedQueue
	allSRQs  []*sharedQueue       // in the order of appearance
	contexts map[objectKey]string // device names
	channels map[channelKey]*channel
	used     map[numberKey]uint32     // how often a number was given out
	pairs    map[pairKey][]*queuePair // the live ones that know their peer
	all      []*queuePair             // in the order of appearance
	live     []*queuePair             // of these, those not gone

	recent   [recentQueues]*queuePair // looked up lately, at a place that follows from the address
	latestCQ *completionQueue         // looked up last
}

// recentQueues that were looked up lately are found without a look into a map.
const (
	recentBits   = 6
	recentQueues = 1 << recentBits
)

// sharedQueue is a shared receive queue.
type sharedQueue struct {
	pid   uint32
	addr  uint64
	queue workQueue
}

func newObjects() objects {
	return objects{
		byAddr:   make(map[objectKey]*queuePair),
		byNumber: make(map[numberKey]*queuePair),
		cqs:      make(map[objectKey]*completionQueue),
		srqs:     make(map[objectKey]*sharedQueue),
		contexts: make(map[objectKey]string),
		channels: make(map[channelKey]*channel),
		used:     make(map[numberKey]uint32),
		pairs:    make(map[pairKey][]*queuePair),
	}
}

// queuePair gives the live queue pair at an address, nil if none is known.
func (o *objects) queuePair(pid uint32, addr uint64) *queuePair {
	// Addresses are multiples of the allocator's steps: the top bits of a product
	// with an odd number depend on all of theirs (Fibonacci hashing).
	recent := &o.recent[addr*0x9e3779b97f4a7c15>>(64-recentBits)]
	if q := *recent; q != nil && q.addr == addr && q.pid == pid && !q.gone {
		return q
	}
	q := o.byAddr[objectKey{pid, addr}]
	if q != nil {
		*recent = q
	}
	return q
}

// completed gives the live queue pair that a completion on cq names, nil if
// none is known. Of several with one number it is the one on that CQ.
func (o *objects) completed(pid, num uint32, cq *completionQueue) *queuePair {
	recent := &cq.recent[num%uint32(len(cq.recent))]
	if q := *recent; q != nil && q.num == num && !q.gone {
		return q
	}
	first := o.byNumber[numberKey{pid, num}]
	for q := first; q != nil; q = q.sameNumber {
		if q.sendCQ == cq.addr || q.recvCQ == cq.addr {
			*recent = q
			return q
		}
	}
	for q := first; q != nil; q = q.sameNumber {
		if q.sendCQ == 0 || q.recvCQ == 0 {
			return q
		}
	}
	return nil
}

// add makes a queue pair, the next generation if its address was used before.
func (o *objects) add(pid uint32, addr uint64, num uint32) *queuePair {
	k := numberKey{pid, num}
	q := &queuePair{pid: pid, addr: addr, num: num, generation: o.used[k]}
	o.used[k]++
	q.sendQueue.sigAll = sigAllUnknown
	q.recvQueue.receive = true
	q.recvQueue.sigAll = 1
	o.all = append(o.all, q)
	o.live = append(o.live, q)
	o.byAddr[objectKey{pid, addr}] = q
	o.link(q)
	return q
}

func (o *objects) link(q *queuePair) {
	k := numberKey{q.pid, q.num}
	q.sameNumber = o.byNumber[k]
	o.byNumber[k] = q
}

// remove forgets a queue pair's address and number.
func (o *objects) remove(q *queuePair) {
	q.gone = true
	o.unpair(q)
	if i := slices.Index(o.live, q); i >= 0 {
		o.live = slices.Delete(o.live, i, i+1)
	}
	if o.byAddr[objectKey{q.pid, q.addr}] == q {
		delete(o.byAddr, objectKey{q.pid, q.addr})
	}
	k := numberKey{q.pid, q.num}
	if o.byNumber[k] == q {
		if q.sameNumber == nil {
			delete(o.byNumber, k)
		} else {
			o.byNumber[k] = q.sameNumber
		}
		return
	}
	for p := o.byNumber[k]; p != nil; p = p.sameNumber {
		if p.sameNumber == q {
			p.sameNumber = q.sameNumber
		}
	}
}

// cq gives the completion queue at an address, which need not be known yet.
func (o *objects) cq(pid uint32, addr uint64) *completionQueue {
	if c := o.latestCQ; c != nil && c.addr == addr && c.pid == pid {
		return c
	}
	k := objectKey{pid, addr}
	c := o.cqs[k]
	if c == nil {
		c = &completionQueue{pid: pid, addr: addr, fd: -1, vector: vectorUnknown}
		o.cqs[k] = c
	}
	o.latestCQ = c
	return c
}

// srq gives the shared receive queue at an address.
func (o *objects) srq(pid uint32, addr uint64) *sharedQueue {
	k := objectKey{pid, addr}
	s := o.srqs[k]
	if s == nil {
		s = &sharedQueue{pid: pid, addr: addr}
		s.queue = workQueue{receive: true, shared: true, sigAll: 1, ids: make(map[uint64]int32)}
		o.srqs[k] = s
		o.allSRQs = append(o.allSRQs, s)
	}
	return s
}

// onlySRQ gives the process's shared receive queue if it has just one.
func (o *objects) onlySRQ(pid uint32) *sharedQueue {
	var found *sharedQueue
	for _, s := range o.allSRQs {
		if s.pid == pid {
			if found != nil {
				return nil
			}
			found = s
		}
	}
	return found
}

// Bits of enum ibv_qp_attr_mask, linux/infiniband verbs.h.
const (
	attrState      = 1 << 0
	attrPort       = 1 << 5
	attrAV         = 1 << 7
	attrTimeout    = 1 << 9
	attrRetryCount = 1 << 10
	attrRNRRetry   = 1 << 11
	attrRDAtomic   = 1 << 13
	attrRNRTimer   = 1 << 15
	attrDestNum    = 1 << 20

	attrAll = 1<<32 - 1
)

// learn takes over what an event says of a queue pair.
func (q *queuePair) learn(what event.ObjectEvent, a *event.QP) {
	mask := uint32(attrAll)
	if what == event.ObjectModified {
		mask = a.AttrMask
	}
	set(&q.context, a.Context)
	set(&q.sendCQ, a.SendCQ)
	set(&q.recvCQ, a.RecvCQ)
	set(&q.srq, a.SRQ)
	set(&q.qpType, a.Type)
	set(&q.maxSendWR, a.MaxSendWR)
	if a.SigAll < sigAllUnknown && what != event.ObjectModified {
		q.sendQueue.sigAll = a.SigAll
	}
	if what != event.ObjectModified || mask&attrState != 0 {
		q.state = a.State
	}
	given := func(bit uint32) bool { return mask&bit != 0 }
	if given(attrPort) || given(attrAV) {
		set(&q.port, a.Port)
	}
	if given(attrTimeout) {
		set(&q.timeout, a.Timeout)
	}
	if given(attrRetryCount) {
		set(&q.retryCount, a.RetryCnt)
	}
	if given(attrRNRRetry) {
		set(&q.rnrRetry, a.RNRRetry)
	}
	if given(attrRDAtomic) {
		set(&q.maxRDAtomic, a.MaxRDAtomic)
	}
	if given(attrRNRTimer) {
		set(&q.minRNRTimer, a.MinRNRTimer)
	}
	if given(attrDestNum) {
		set(&q.destNum, a.DestNum)
	}
	if given(attrAV) || given(attrDestNum) {
		if peer := peerName(a.DLID, a.DGID, q.destNum); peer != "" {
			q.peer = peer
		}
	}
}

// set takes over what is known.
func set[T comparable](to *T, from T) {
	var unknown T
	if from != unknown {
		*to = from
	}
}

// couple notes of two queue pairs of the trace that they are connected to each
// other. Numbers are a device's own: both are of one, and both name one port as
// their peer's, which then is the port of both.
func (o *objects) couple(q *queuePair) {
	o.unpair(q)
	if q.destNum == 0 || peerHost(q.peer) == "" {
		return
	}
	q.paired = pairKey{q.num, q.destNum}
	o.pairs[q.paired] = append(o.pairs[q.paired], q)
	for _, p := range o.pairs[pairKey{q.destNum, q.num}] {
		if p.device == q.device && peerHost(p.peer) == peerHost(q.peer) {
			p.uncouple()
			q.connected, p.connected = p, q
			return
		}
	}
}

// pairKey are a queue pair's number and its peer's.
type pairKey struct{ num, dest uint32 }

// unpair forgets whom q is connected to.
func (o *objects) unpair(q *queuePair) {
	q.uncouple()
	if q.paired == (pairKey{}) {
		return
	}
	list := o.pairs[q.paired]
	if i := slices.Index(list, q); i >= 0 {
		list = slices.Delete(list, i, i+1)
	}
	if o.pairs[q.paired] = list; len(list) == 0 {
		delete(o.pairs, q.paired)
	}
	q.paired = pairKey{}
}

func (q *queuePair) uncouple() {
	if p := q.connected; p != nil {
		q.connected, p.connected = nil, nil
	}
}

// peerName is "lid 1 qp 0x105", or with the address of the GID where there is
// one; empty if nothing is known.
func peerName(dlid uint16, dgid [16]byte, num uint32) string {
	var node string
	switch {
	case dlid != 0:
		node = fmt.Sprintf("lid %d", dlid)
	case dgid != [16]byte{}:
		node = netip.AddrFrom16(dgid).Unmap().String()
	case num == 0:
		return ""
	default:
		return fmt.Sprintf("qp 0x%x", num)
	}
	if num == 0 {
		return node
	}
	return fmt.Sprintf("%s qp 0x%x", node, num)
}
