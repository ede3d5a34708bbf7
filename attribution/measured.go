package attribution

// measured is one work request whose latency has been cut into segments: what
// the engine hands to the aggregates. It is reused for the next one, so the
// aggregates copy what they keep, and swap its segments for others. It holds no
// strings: names are resolved when the Report is made.
type measured struct {
	qp       *queuePair
	index    int64 // place in the QP's send or receive queue since the window began
	receive  bool
	opcode   uint8  // enum ibv_wr_opcode of the post; for receives enum ibv_wc_opcode
	bytes    uint64 // of the chain: the WR and the unsignalled ones before it in its post call
	chained  int32  // WRs of the chain, itself included
	retired  int32  // unsignalled WRs that this completion retired, of this and of earlier calls
	retBytes uint64 // their bytes

	wrID               uint64
	status             uint32
	postTID, reapTID   uint32
	postCPU, reapCPU   uint16
	postBegin, postEnd uint64
	doneLow, doneHigh  uint64 // done lies in between, for certain
	// likelyLow and likelyHigh: done lies in between as far as it can be told from
	// what is typical. Inside [doneLow, doneHigh].
	likelyLow, likelyHigh uint64
	done                  uint64 // best estimate, inside both
	waitsFrom             uint64 // since then it is likely to have been done
	reap                  uint64
	doneSource            DoneSource
	demand                Demand
	depth                 int32 // WRs in flight on the QP at post_begin
	pollers               int32 // threads that polled its CQ lately
	stack                 uint64

	// segments cut [postBegin, reap] without gap or overlap, in order. For
	// receives they cut [done, reap], and peerWait is [post_recv, done].
	segments []segment
	peerWait uint64
	// unmatched: a receive whose post is not known. Its index is -1, and peerWait
	// means nothing.
	unmatched bool
	// uncertain: the doubt, doneHigh - doneLow, exceeds 1 us and 10 % of the
	// latency. What is not even likely to be before or after done is then a
	// segment of class Undecided.
	uncertain bool
}

// latency in ns: reap - post_begin, for receives reap - done.
func (m *measured) latency() uint64 {
	if m.receive {
		return m.reap - m.done
	}
	return m.reap - m.postBegin
}

// segment is a part of a latency with one cause.
type segment struct {
	begin, end uint64
	who        *culprit // nil: nobody
	tid        uint32   // the thread it happened to; 0: none
	cpu        int16    // -1: unknown
	cause      Cause
}

// queuePair is one generation of a queue pair (numbers and addresses are reused).
type queuePair struct {
	pid        uint32
	num        uint32
	generation uint32
	addr       uint64
	qpType     uint32 // enum ibv_qp_type
	destNum    uint32 // 0: unknown
	peer       string // "lid 1 qp 0x105", built once
	device     string
	port       uint8
	maxSendWR  uint32
	state      uint32 // enum ibv_qp_state

	// As given to modify_qp; 0: not seen.
	maxRDAtomic uint8 // READs and atomics in flight
	timeout     uint8 // 4.096 us * 2^timeout
	retryCount  uint8
	rnrRetry    uint8
	minRNRTimer uint8 // what this side asks of its peer

	context, sendCQ, recvCQ, srq uint64 // addresses; 0: unknown or none

	emptyAt uint64 // when it was made or reset last

	failed bool // a completion in error was seen: what follows are its consequences
	gone   bool // destroyed, or its address belongs to another now

	sendQueue workQueue
	recvQueue workQueue

	created   uint64      // 0: before the window
	ended     uint64      // destroyed, or its process came to its end; 0: not in the window
	aggregate *queueState // the aggregates' own
	flow      flow        // its port's

	sameNumber *queuePair   // another one of its process with this number
	connected  *queuePair   // the peer, where it is of this trace, too
	paired     pairKey      // by which it is found for that
	clock      *deviceClock // of its device, once a CQE had a time stamp
	undemanded *undemandedWR
	flightKey  flightKey // of the latest WR located
	flight     *flightKind
}
