package attribution

import "github.com/rdmatrace/rdmatrace/event"

// aggregates is what remains of the work requests: sums, sketches and the worst
// incidents. Its memory does not grow with their number.
//
// The engine calls it in the order of reaping (add) and of posting (posted,
// retired); results depend on that order only where a bound is hit.
type aggregates struct {
	cfg     Config
	threads threadView
}

// threadView answers from the timeline what a thread did between begin and
// end: it calls span for each stretch, in order, without gaps. syscall is the
// system call it slept in, -1: none or not asleep.
type threadView interface {
	walk(tid uint32, begin, end uint64, span func(state threadState, begin, end uint64, syscall int32))
}

// threadState of a stretch of a thread's time.
type threadState uint8

const (
	stateUnknown threadState = iota
	stateRunning             // interrupts on top included
	stateRunnable
	stateAsleep
)

// newAggregates; threads may be nil: then idle time is not told apart.
func newAggregates(cfg Config, threads threadView) *aggregates {
	return &aggregates{cfg: cfg, threads: threads}
}

// add takes one measured work request. Nothing of m is kept.
func (a *aggregates) add(m *measured) {}

// posted says that one work request was posted: opcode is enum ibv_wr_opcode,
// depth the WRs in flight on the QP before it. Receives are not reported.
func (a *aggregates) posted(qp *queuePair, t uint64, tid uint32, opcode uint8, bytes uint64, depth int32) {
}

// retired says that n work requests with these bytes left the QP's send queue
// at t, leaving depth in flight.
func (a *aggregates) retired(qp *queuePair, t uint64, n int32, bytes uint64, depth int32) {}

// finish makes the Report, all of it but WRs, Kinds and the engine's own
// doubts. qps are all queue pairs seen, those without traffic included.
func (a *aggregates) finish(ctx *event.Context, qps []*queuePair) *Report {
	return &Report{Context: ctx}
}
