package attribution

// Doing is what a thread did while completions waited for it.
type Doing uint8

const (
	Ran          Doing = iota // something else than the poll that would have returned them
	Slept                     // for a reason of its own
	WaitedForCPU              // could have run
	numDoings
)

var doingNames = [numDoings]string{"ran", "slept", "waited for a CPU"}

func (d Doing) String() string {
	if d < numDoings {
		return doingNames[d]
	}
	return "invalid"
}

// Late is what the threads that reap did while completions that somebody needed (Waited, Dependent)
// waited for them: between done, as far as it is certain, and the reap, but for the delivery of the completion.
// Interrupts on top of a thread that runs are part of its time. Each nanosecond of a thread counts once.
// RanNS, SleptNS, WaitedNS, UnknownNS and NotLookedAtNS are disjoint; Stacks and UnsampledNS add up to the first three.
type Late struct {
	RanNS, SleptNS, WaitedNS int64
	UnknownNS                int64 // forgotten by the time it was asked about
	// NotLookedAtNS: completions waited since before the latest 512 times in which others of their
	// thread did, and when those were before is forgotten. It is this at most.
	NotLookedAtNS int64
	UnsampledNS   int64 // of RanNS: without a sample that stands for it
	Samples       int64
	Stacks        []LateStack // by falling NS, the rest last; at most 8195

	// DelayNS is what of the latencies it is, summed over the work requests: a nanosecond
	// counts for each completion that waited. The poll that reaps it is not in it.
	DelayNS int64
	// UnprovenNS: threads were as late for completions that nobody was seen to need. In none
	// of the above, though it may be at the same time. Each nanosecond of a thread once; beyond 512 times
	// that are kept apart it is this at most.
	UnprovenNS int64
}

// LateStack is one call stack with one thing done.
type LateStack struct {
	PID     uint32
	Stack   uint64 // of the thread: as it ran, or where it left the CPU; 0: unknown
	Doing   Doing
	NS      int64 // of Ran: what its samples stand for
	Samples int64 // of Ran
	Rest    bool  // all that are beyond the bound; PID and Stack are 0
}
