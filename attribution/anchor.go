package attribution

import "math/bits"

// A queue that was alive before we looked holds an unknown number of work
// requests. Completions come in queue order, so pairing them is right once the
// place of one is proven and wrong for ever if it is guessed: wr_ids do not
// tell (perftest uses one value per queue pair). A queue is proven by
//
//   - its beginning: created in the window, or in a state in which it is empty
//     (RESET; for send queues INIT and RTR as well: posting is an immediate
//     error there, InfiniBand Architecture Specification 10.3.1);
//   - the CQE's wqe_counter, matched to the index of a posted WQE: two WQEs in
//     flight with one index would lie at the same place of the buffer;
//   - counting, see below;
//   - a wr_id that cannot be in flight twice: those of more posts before it than
//     the queue has room for were rising up to it;
//   - silence: the CQ was found empty when nothing had been posted for longer
//     than the transport may keep a work request.
//
// Counting. Let s be the signalled work requests that were in flight when we
// began to look; n(t) the signalled ones posted since, c(t) the completions
// seen since. A completion cannot come before its post, so s >= c(t) - n(t) at
// all times; this is the lower bound. The queue has room for so many (room), so
// if s were greater than what makes all that is not yet retired fit in, a post
// would have failed; this is the upper bound. (It takes that one thread posts
// and polls: the room that another thread's poll makes shows in its records
// only when that poll returns.) Where they meet, s is known. The queue always
// holds what is pending if s is the upper bound: what it drops is completed for
// certain, and when the bounds meet it holds the truth.

// proof says how a queue's place was proven.
type proof uint8

const (
	unproven proof = iota
	provenEmpty
	provenWQE
	provenCount
	provenWRID
	provenSilence
	numProofs
)

const (
	sigAllUnknown = 2
	noBound       = -1
	// silence is how long a work request may be in flight where the timeout of
	// the queue pair is not known.
	silence = 2_000_000_000
	// wrIDRun is the room of a queue of unknown size: mlx5 allows 32768 WQEs.
	wrIDRun = 32768
	// unprovenMost bounds what a queue holds that has no proof in sight,
	// pendingMost what any queue holds.
	unprovenMost = 4096
	pendingMost  = 1 << 17
)

// anchor is the state of proving a queue's place.
type anchor struct {
	by      proof
	whole   bool   // nothing is in flight that was posted unseen: by a proof, or as what was posted later is completed
	since   uint64 // when we began to look
	lossEnd uint64 // until then records were being lost; 0: none were

	posts, completions int64 // of signalled work requests, since then
	lower, upper       int64 // bounds of s; upper may be noBound
	rising             bool
	runStart           int64 // index of the first of the latest posts with rising wr_ids
	unflagged          int64 // posts in a row without IBV_SEND_SIGNALED
	flagged            bool  // one with it was seen
	latestWRID         uint64
	latestReap         uint64
}

func (q *workQueue) proven() bool { return q.anchor.by != unproven }

// prove anchors the queue: what it holds now is what is in flight.
func (q *workQueue) prove(by proof) {
	q.anchor.by, q.anchor.whole = by, by != provenWQE
	for i := range q.len() {
		q.at(i).is &^= isUnproven
	}
}

// unprove starts to look for a proof at t; until lossEnd none is accepted. room
// is the queue pair's, 0: unknown.
func (q *workQueue) unprove(t, lossEnd uint64, room uint32) {
	q.anchor = anchor{since: max(t, lossEnd), lossEnd: lossEnd, upper: noBound, flagged: q.anchor.flagged}
	if room > 0 && !q.receive && q.len() == 0 {
		q.anchor.upper = int64(room)
	}
}

// isLossy says that records of time t are missing.
func (a *anchor) isLossy(t uint64) bool { return a.lossEnd != 0 && t <= a.lossEnd }

// notePost counts a post that was just pushed to a queue without proof. One
// whose neighbours may be missing says nothing about room.
func (q *workQueue) notePost(p *pending, t uint64) {
	a := &q.anchor
	p.is |= isUnproven
	if a.isLossy(t) {
		p.is |= isBeforeLoss
		a.upper = noBound
		return
	}
	if p.is&isSignalled != 0 || q.sigAll == sigAllUnknown {
		a.posts++ // more than there are keeps the lower bound low
	}
	if !a.rising || p.wrID <= a.latestWRID {
		a.rising, a.runStart = true, p.index
	}
	a.latestWRID = p.wrID
}

// noteFlag watches which posts carry IBV_SEND_SIGNALED, for queues of which it
// is unknown whether all are signalled. A program that sets it on some posts
// and not on others would gain nothing by sq_sig_all.
func (q *workQueue) noteFlag(flag bool) {
	a := &q.anchor
	if flag {
		a.flagged, a.unflagged = true, 0
	} else {
		a.unflagged++
	}
	if q.sigAll == sigAllUnknown && a.flagged && a.unflagged > 0 {
		q.sigAll = 0
	}
}

// allSignalled takes note that every post of this queue is signalled.
func (q *workQueue) allSignalled() {
	q.sigAll = 1
	for i := range q.len() {
		q.at(i).is |= isSignalled
	}
}

// settled says whether the bounds met.
func (q *workQueue) settled() bool {
	a := &q.anchor
	return a.upper != noBound && a.lower == a.upper && q.sigAll != sigAllUnknown
}

// overfull says that the queue would hold more than it has room for if s were
// the upper bound. Ask after a post succeeded.
func (q *workQueue) overfull(room uint32) bool {
	a := &q.anchor
	if a.upper == noBound || room == 0 || q.sigAll == sigAllUnknown {
		return false
	}
	return int64(q.len())+max(0, a.upper-a.completions) > int64(room)
}

// noteCompletion counts a completion that proves nothing by itself. It reports
// whether one of what the queue holds is completed for certain.
func (q *workQueue) noteCompletion() bool {
	a := &q.anchor
	a.completions++
	a.lower = max(a.lower, a.completions-a.posts)
	if a.upper == noBound {
		return false
	}
	if a.upper < a.lower || q.sigAll == sigAllUnknown && a.completions > a.upper {
		a.upper = noBound
		return false
	}
	return a.completions > a.upper
}

// uniqueWRID says that nothing that was in flight with p can have its wr_id: so
// many posts before it had smaller ones. The room counts twice, for completions
// that other threads have taken and not yet returned.
func (a *anchor) uniqueWRID(p *pending, room uint32) bool {
	if room == 0 {
		room = wrIDRun
	}
	return a.rising && p.index-a.runStart >= 2*int64(room)
}

// room is how many send WRs the queue pair can hold, 0: unknown. Providers may
// have more room than they say: librxe leaves max_send_wr n as it was asked for
// and makes a ring of the power of two above it, a place of which stays empty.
func (q *queuePair) room() uint32 {
	return 1<<bits.Len32(q.maxSendWR) - 1
}

// patience is how long the queue pair's transport may keep a work request
// before it completes or fails, ns: InfiniBand allows a response timeout to be
// four times its nominal 4.096 us * 2^timeout, once and retry_cnt times more.
func (q *queuePair) patience() uint64 {
	if q.timeout == 0 || q.timeout > 31 {
		return silence
	}
	return max(silence, 4*4096<<q.timeout*(uint64(q.retryCount)+1))
}
