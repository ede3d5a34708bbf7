package attribution

// Class is one of the parts that a latency is cut into.
type Class uint8

const (
	Undecided Class = iota // the evidence does not choose between wire and late-poll
	Software
	Interrupt
	Scheduling
	Wire
	numClasses
)

// Classes lists every class in the order of output.
var Classes = [...]Class{Software, Interrupt, Scheduling, Wire, Undecided}

var classNames = [numClasses]string{
	Undecided:  "undecided",
	Software:   "software",
	Interrupt:  "interrupt",
	Scheduling: "scheduling",
	Wire:       "wire",
}

func (c Class) String() string {
	if c < numClasses {
		return classNames[c]
	}
	return "invalid"
}

// Cause is the finer part inside a class.
type Cause uint8

const (
	// CauseUndecided: wire or late-poll.
	CauseUndecided Cause = iota

	Submit   // inside the posting call
	LatePoll // done, but the thread ran something else before it polled
	Reap     // inside the poll that returned it
	OwnSleep // the thread slept for a reason of its own
	Handoff  // a dispatcher was woken and woke the reaper
	Probe    // our own traps, calibrated

	Delivery // done until the handler, or until the wakeup where no handler is seen
	Handler  // the interrupt that led to the wakeup
	IRQOnTop // ran on top of the posting or reaping thread

	Runqueue  // woken, waiting for a CPU
	Preempted // taken off the CPU while runnable
	Yielded   // gave the CPU away, and another ran
	Throttled // its cgroup's quota

	WireUnsplit // wire, where the split below is not known
	SendQueue   // behind the job's own earlier WRs on the QP
	PortShare   // behind other traced QPs on the port
	Transmit    // size / fitted rate
	Base        // the floor that does not depend on size
	PathLimit   // what a rate below link and PCIe adds
	Excess      // above the floor
	Congestion  // excess, with evidence
	RNR
	Retransmit
	numCauses
)

var causes = [numCauses]struct {
	class Class
	name  string
}{
	CauseUndecided: {Undecided, "wire-or-late-poll"},
	Submit:         {Software, "submit"},
	LatePoll:       {Software, "late-poll"},
	Reap:           {Software, "reap"},
	OwnSleep:       {Software, "own-sleep"},
	Handoff:        {Software, "handoff"},
	Probe:          {Software, "probe"},
	Delivery:       {Interrupt, "delivery"},
	Handler:        {Interrupt, "handler"},
	IRQOnTop:       {Interrupt, "irq-on-top"},
	Runqueue:       {Scheduling, "runqueue"},
	Preempted:      {Scheduling, "preempted"},
	Yielded:        {Scheduling, "yielded"},
	Throttled:      {Scheduling, "throttled"},
	WireUnsplit:    {Wire, "unsplit"},
	SendQueue:      {Wire, "send-queue"},
	PortShare:      {Wire, "port-share"},
	Transmit:       {Wire, "transmit"},
	Base:           {Wire, "base"},
	PathLimit:      {Wire, "path-limit"},
	Excess:         {Wire, "excess"},
	Congestion:     {Wire, "congestion"},
	RNR:            {Wire, "rnr"},
	Retransmit:     {Wire, "retransmit"},
}

// Class of the cause.
func (c Cause) Class() Class { return causes[c].class }

func (c Cause) String() string {
	if c < numCauses {
		return causes[c].name
	}
	return "invalid"
}

// FullName is "class.cause", the key used in output.
func (c Cause) FullName() string { return c.Class().String() + "." + c.String() }

// DoneSource says where `done` of a WR comes from, best first.
type DoneSource uint8

const (
	DoneUnknown   DoneSource = iota
	DoneCQE                  // the timestamp in the CQE
	DoneKernel               // the kernel function that writes a software NIC's CQE
	DoneInterrupt            // the handler that led to the wakeup
	DoneBracket              // between the last empty poll and the poll that returned it
	DoneBounded              // nothing better than post_end .. the poll that returned it
	numDoneSources
)

var doneSourceNames = [numDoneSources]string{"unknown", "cqe-timestamp", "kernel", "interrupt", "poll-bracket", "bounded"}

func (d DoneSource) String() string { return doneSourceNames[d] }

// Demand says whether anybody waited for a completion.
type Demand uint8

const (
	Unproven  Demand = iota // nobody was seen to need it yet
	Waited                  // a thread was polling or asleep on its CQ at done
	Dependent               // the send queue was full, or had run dry and this reap triggered the next post
)

func (d Demand) String() string { return [...]string{"unproven", "waited", "dependent"}[d] }
