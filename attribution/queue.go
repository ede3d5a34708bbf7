package attribution

// pending is a work request that was seen posted and not yet seen completed.
type pending struct {
	wrID       uint64
	postBegin  uint64
	postEnd    uint64 // 0: the call has not returned
	stack      uint64
	chainBytes uint64 // of its call, since the signalled one before it
	shape      uint64 // WQEs of one shape are equally long; see shapeOf
	index      int64  // place in the queue since the window began
	tid, call  uint32
	bytes      uint32
	chained    int32 // WRs in chainBytes, itself included
	depth      int32 // in flight before it
	submit     int32 // number of its call's disturbed submit, see submits; 0: nothing disturbed it
	wqe        uint16
	cpu        uint16
	traps      uint16
	place      uint16 // within its call
	opcode     uint8
	is         pendingFlags
}

// pendingFlags say what is known of a pending work request.
type pendingFlags uint32

const (
	isSignalled  pendingFlags = 1 << iota // a completion of its own will come
	isFlagged                             // posted with IBV_SEND_SIGNALED
	isWQEValid                            // wqe was verified
	isBuilder                             // by ibv_wr_*: all of its call or nothing is posted
	isAnnounced                           // the sink knows of it
	isBeforeLoss                          // records were lost since: unmatched it counts as lost
	isUnproven                            // posted to a queue without anchor: unmatched it counts as excluded
	isRacing                              // another thread's call overlapped: the order is that of returning
	isEndMissing                          // its call went on without the return being seen
	isShuffled                            // completions came in an uncertain order
	isPassed                              // a later one is completed, and its own completion may follow
	isTaken                               // matched out of order, its place is empty
	isBlind                               // the list or the WR could not be read
	isAmbiguous                           // which completion is its own cannot be told
)

// workQueue is a send queue, a receive queue or a shared receive queue: what is
// pending, in queue order.
type workQueue struct {
	buf  []pending // a ring; its length is a power of two
	head uint64    // sequence number of the first pending
	tail uint64
	next int64 // index of the work request to come

	receive  bool
	shared   bool // an SRQ: completed in any order
	indexed  bool // a WR with a verified WQE index was posted
	inFlight int32
	held     int32  // completions that wait for others: see heldCompletion
	passedAt uint64 // when the first WR was passed over
	blocked  bool   // a post failed for want of room since the last completion
	sigAll   uint8  // 0, 1; 2: unknown; see noteFlag

	ids     map[uint64]int32 // of an SRQ: how many are pending with a wr_id
	repeats bool             // of an SRQ: two were pending with one wr_id, or may have been
	differ  bool             // of an SRQ: two were pending with two

	anchor anchor
}

// depthUnknown stands for the depth of a queue whose place is not proven: what
// it holds may be completed, and what is in flight may be older than the window,
// or may have been posted while records were lost; or of one with completions that
// are not taken yet.
const depthUnknown = -1

// depth is how many work requests are in flight.
func (q *workQueue) depth() int32 {
	if !q.proven() || !q.anchor.whole || q.held > 0 {
		return depthUnknown
	}
	return q.inFlight
}

func (q *workQueue) len() int { return int(q.tail - q.head) }

// at gives the i-th pending work request.
func (q *workQueue) at(i int) *pending {
	return &q.buf[(q.head+uint64(i))&uint64(len(q.buf)-1)]
}

func (q *workQueue) push(p pending) *pending {
	if q.len() == len(q.buf) {
		q.grow()
	}
	q.tail++
	slot := q.at(q.len() - 1)
	*slot = p
	return slot
}

func (q *workQueue) grow() {
	buf := make([]pending, max(16, 2*len(q.buf)))
	for seq := q.head; seq != q.tail; seq++ {
		buf[seq&uint64(len(buf)-1)] = q.buf[seq&uint64(len(q.buf)-1)]
	}
	q.buf = buf
}

// drop forgets the first n.
func (q *workQueue) drop(n int) { q.head += uint64(n) }

// cut forgets the i-th and keeps the order of the others.
func (q *workQueue) cut(i int) {
	for n := q.len() - 1; i < n; i++ {
		*q.at(i) = *q.at(i + 1)
	}
	q.tail--
}
