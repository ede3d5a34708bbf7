package attribution

import "github.com/rdmatrace/rdmatrace/event"

// Report is the result of analysing one window: what export turns into text,
// JSON, profiles and pictures. Same events, same Report, to the byte.
//
// All durations are nanoseconds. Slices are sorted as documented; where
// nothing is said, by key.
type Report struct {
	Context *event.Context

	WRs   Books            // all kinds together
	Kinds map[string]Books // "send" and "receive"

	Latency   Distribution
	Undecided Distribution
	Uncertain int64        // WRs whose doubt exceeds both 1 us and 10 % of their latency
	Doubt     Distribution // DoneHigh - DoneLow of these WRs
	// Classes and Undecided add up: the sum of TotalNS over Classes (Undecided is
	// one of its entries, and repeated above) is Latency.TotalNS.
	Classes [numClasses]Distribution
	// Probe is software.probe: a part of Classes[Software], subtracted where
	// shares are printed.
	Probe Distribution

	AtP50, AtP99 Split
	Causes       []CauseTotal // by falling TotalNS
	// All of the above are of sends. Receives tells the same of receives, whose
	// latency is [done, reap]: it holds no wire.
	Receives    Totals
	Chains      Chains
	DoneSources []Share // WRs per source
	Demands     []Share

	Groups    []Group    // by By, then falling Count
	Incidents []Incident // worst first
	Exposed   [numClasses]int64

	Queues      []Queue // before the post: per QP
	Ports       []PortReport
	EventQueues []EventQueues // of hardware; by device and vector
	Receive     []PeerWait
	Floors      []Floor       // what the wire was split by; most used first
	Series      []SeriesPoint // latency by class over the window
	Slow        Slow
	Late        Late // what the threads that reap did while completions waited for them

	Samples []Sample // for profiles; sorted
	Sampled *Sampled // nil: all of the window was observed
	Doubts  []string // sentences for the reader, worst first
	// Evidence are sentences on what gave causes of the wire their names.
	Evidence []string
}

// Books balance: Posted = Completed + Outstanding + Flushed + Lost + Excluded.
type Books struct {
	Posted      int64
	Completed   int64 // measured, or retired by a later signalled completion
	Outstanding int64 // not completed when the window ended
	Flushed     int64 // completed in error, consequences of the first one included
	Lost        int64 // dropped by us
	Excluded    int64 // on a queue pair whose place was not yet proven
	Unsignalled int64 // of Completed: without a completion of their own
	Bytes       int64 // of Completed
}

// Distribution of one duration over WRs. Percentiles carry a relative error of
// at most RelativeError; Count, Total, Mean, StdDev and Max are exact.
type Distribution struct {
	Count                       int64
	TotalNS                     int64
	MeanNS, StdDevNS            float64
	P50NS, P90NS, P99NS, P999NS int64
	MinNS, MaxNS                int64
}

// RelativeError of the percentiles in a Distribution.
const RelativeError = 0.01

// Totals of receives: as the fields of Report have them for sends.
type Totals struct {
	Latency, Undecided, Doubt, Probe Distribution
	Uncertain                        int64
	Classes                          [numClasses]Distribution
	AtP50, AtP99                     Split
	Causes                           []CauseTotal
}

// Chains are what the latencies are of: signalled WRs with the unsignalled
// ones before them in their call. Other unsignalled WRs are in Books only.
type Chains struct {
	Count, WRs, Bytes int64
}

// Slow says when the slow WRs came.
type Slow struct {
	ThresholdNS int64  // slow is a latency above it: a multiple of the median
	Bursts      int64  // slices of Series, neighbours joined, with a slow WR
	PeriodNS    int64  // between bursts; 0: none
	Pattern     string // "none", "once", "every 1.00 s", "irregular", "throughout"
}

// Floor is what the wire takes at least for a WR of one kind, as this run
// taught it: BaseNS + 8e9 * bytes / RateBPS.
type Floor struct {
	Device           string
	Port             int
	Peer             string // host
	Op, Transport    string
	Learnt           int64 // WRs without doubt
	Split            int64 // WRs split by it
	Known            bool
	BaseNS           int64
	RateBPS          uint64 // fitted; 0: the sizes did not tell
	LinkBPS, PCIeBPS uint64 // 0: unknown
}

// Split is the mean latency of the WRs ranked around a percentile, and its parts:
// unlike marginal percentiles, the parts add up: the sum of ClassNS is LatencyNS.
// The probes' part of ClassNS[Software] is found in Causes.
type Split struct {
	Count     int64 // WRs averaged
	LatencyNS float64
	ClassNS   [numClasses]float64
	Causes    []CauseTotal // of these WRs, by falling TotalNS
}

// CauseTotal is what one cause, with one culprit, took over all WRs.
type CauseTotal struct {
	Cause   Cause
	TotalNS int64
	Count   int64     // WRs it touched; 0 in a Split
	Who     []Culprit // worst first, at most 8, and the rest as "(other)"
}

// Culprit names who or what was behind a cause.
type Culprit struct {
	Name    string // "stress-ng (pid 312)", "virtio3-input.0 (irq 27)", "NET_RX softirq", "read"
	TotalNS int64
	Count   int64
	Cgroup  Cgroup
}

// Share of a whole, by name.
type Share struct {
	Name  string
	Count int64
}

// Group of WRs that share a key.
type Group struct {
	By      string // "op", "size", "qp", "peer", "device", "thread", "op+size"
	Key     string
	Bytes   int64
	Latency Distribution
	Classes [numClasses]Distribution
	ProbeNS int64 // of Classes[Software].TotalNS: software.probe
	AtP50   Split
	AtP99   Split
}

// Incident is one interval with one culprit and all the WRs it delayed.
type Incident struct {
	Cause      Cause
	Who        string
	Cgroup     Cgroup // of Who
	Begin, End uint64 // ns of CLOCK_MONOTONIC
	WRs        int64  // delayed by it
	DelayNS    int64  // summed over them
	Worst      WR     // the one with the longest latency; no other incident has the same
	Timeline   []Segment
	Omitted    int64     // segments left out of Timeline: the shortest
	Also       []Another // what else the worst WR waited for and is the worst WR of, longest first
}

// Another is what one culprit took of a wait beside the incident that it is listed with.
type Another struct {
	Cause   Cause
	Who     string
	Cgroup  Cgroup // of Who
	Parts   int64  // intervals
	NS      int64  // their lengths together
	DelayNS int64  // summed over all the WRs that they delayed
}

// Segment of a WR's latency: a part with one cause.
type Segment struct {
	Cause      Cause
	Begin, End uint64
	Who        string // empty where nobody is to blame
	Cgroup     Cgroup // of Who
	TID        uint32 // the thread it happened to; 0: none
	CPU        int32  // -1: unknown
}

// WR names one work request in a report.
type WR struct {
	PID                    uint32
	QPNum                  uint32
	Index                  int64 // place in the QP's send queue since the window began
	Op                     string
	Bytes                  int64
	Device, Peer           string
	Transport              string
	PostThread, ReapThread string // "name/tid"
	PostBegin, PostEnd     uint64
	DoneLow, DoneHigh      uint64 // done lies in between
	Done                   uint64 // best estimate
	Reap                   uint64
	DoneSource             DoneSource
	Demand                 Demand
	Status                 uint32
	Stack                  uint64
}

// Backlog tells how send queues were kept full. Idle is a time with nothing in
// flight: posted, and not yet reaped.
type Backlog struct {
	Posted       int64
	DepthMean    float64 // WRs in flight at post, itself not counted, where known
	DepthMax     int64
	DepthKnown   int64 // posts at which the depth was known: not before the queue's place is proven
	IdleNS       int64
	WindowNS     int64 // observed
	IdleRunning  int64 // of IdleNS: what the thread did that posted next
	IdleRunnable int64
	IdleAsleep   int64
	IdleUnknown  int64
	IdleSyscalls []Culprit // which system calls it slept in
	BytesPerSec  float64   // posted
	WRsPerSec    float64
}

// Queue describes how a QP was kept busy.
type Queue struct {
	PID          uint32
	QPNum        uint32
	Device, Peer string
	Backlog
	QueueSize int64 // max_send_wr; 0: unknown
	Bypass    bool  // alive, yet no post was seen
}

// PortReport compares what was traced with what the port counted. Its Backlog
// is that of all its queue pairs together, of which each counts from its first post on.
type PortReport struct {
	Device string
	Port   int
	Backlog
	RateBPS    uint64  // of the link, 0 unknown
	TracedBPS  float64 // WR payload sent, bits per second
	TracedSent int64   // payload bytes of send, write and atomic WRs; of reads on Received
	TracedRecv int64
	PortSent   int64 // -1: no counter
	PortRecv   int64
}

// PeerWait is [post_recv, done] of receives from one peer.
type PeerWait struct {
	PID          uint32
	Device, Peer string
	QPNum        uint32
	Wait         Distribution
}

// SeriesPoint is a slice of the window.
type SeriesPoint struct {
	Begin, End uint64
	Count      int64
	LatencyNS  int64
	MaxNS      int64
	ClassNS    [numClasses]int64
}

// Sample is what a profile is made of. Samples with Leaf false carry Count and
// no time; those with Leaf true carry the time of one cause.
type Sample struct {
	Stack  uint64 // of the posting site
	PID    uint32
	Labels Labels
	Leaf   bool
	Cause  Cause
	Who    string
	Cgroup Cgroup // of Who
	Count  int64  // WRs
	NS     int64
}

// Labels of a Sample: their number is bounded.
type Labels struct {
	Op                     string
	Size                   string // power-of-two bucket: "4KiB"
	QP                     string
	Peer                   string
	Device                 string
	Transport              string
	PostThread, ReapThread string
	DoneSource             DoneSource
	Demand                 Demand
}
