package export

// SchemaVersion of the JSON object. It grows only if a field's meaning changes;
// fields are added without.
const SchemaVersion = 1

// The fields are described in schema.md; a test holds the two together.

type jsonReport struct {
	Version  int         `json:"version"`
	Tool     string      `json:"tool"`
	Target   *jsonTarget `json:"target"`
	WindowNS int64       `json:"window_ns"`
	Start    string      `json:"start,omitempty"`

	WRs       jsonBooks            `json:"wrs"`
	Latency   jsonDistribution     `json:"latency"`
	Undecided jsonDistribution     `json:"undecided"`
	Uncertain jsonDistribution     `json:"uncertain"`
	Classes   jsonClasses          `json:"classes"`
	AtP50     jsonSplit            `json:"at_p50"`
	AtP99     jsonSplit            `json:"at_p99"`
	Causes    map[string]jsonCause `json:"causes"`
	// Groups by dimension: op, size, qp, peer, device, thread, op_size.
	Groups    map[string][]jsonGroup `json:"groups"`
	Incidents []jsonIncident         `json:"incidents"`

	Verdict     string               `json:"verdict"`
	Received    jsonTotals           `json:"received"`
	Chains      jsonChains           `json:"chains"`
	Floors      []jsonFloor          `json:"floors"`
	Slow        jsonSlow             `json:"slow"`
	Probe       jsonDistribution     `json:"probe"`
	ExposedNS   map[string]int64     `json:"exposed_ns"`
	Kinds       map[string]jsonBooks `json:"kinds"`
	DoneSources map[string]int64     `json:"done_sources"`
	Demands     map[string]int64     `json:"demands"`
	Queues      []jsonQueue          `json:"queues"`
	Ports       []jsonPort           `json:"ports"`
	EventQueues []jsonEventQueues    `json:"event_queues"`
	Receives    []jsonReceive        `json:"receives"`
	Series      []jsonPoint          `json:"series"`
	Late        jsonLate             `json:"late"`
	Doubts      []string             `json:"doubts"`
	Evidence    []string             `json:"evidence"`
	Losses      map[string]uint64    `json:"losses"`
	Probes      []jsonProbe          `json:"probes"`
	Sampled     *jsonSampled         `json:"sampled"`
	Cost        jsonCost             `json:"cost"`
	Targets     []jsonTarget         `json:"targets"`
	Host        jsonHost             `json:"host"`
	Devices     []jsonDevice         `json:"devices"`
}

// jsonTotals of receives: as the fields of jsonReport have them for sends.
type jsonTotals struct {
	Latency   jsonDistribution     `json:"latency"`
	Undecided jsonDistribution     `json:"undecided"`
	Uncertain jsonDistribution     `json:"uncertain"`
	Classes   jsonClasses          `json:"classes"`
	Probe     jsonDistribution     `json:"probe"`
	AtP50     jsonSplit            `json:"at_p50"`
	AtP99     jsonSplit            `json:"at_p99"`
	Causes    map[string]jsonCause `json:"causes"`
}

type jsonChains struct {
	Count int64 `json:"count"`
	WRs   int64 `json:"wrs"`
	Bytes int64 `json:"bytes"`
}

type jsonFloor struct {
	Device    string `json:"device"`
	Port      int    `json:"port"`
	Peer      string `json:"peer"`
	Op        string `json:"op"`
	Transport string `json:"transport"`
	Learnt    int64  `json:"learnt"`
	Split     int64  `json:"split"`
	Known     bool   `json:"known"`
	BaseNS    int64  `json:"base_ns"`
	RateBPS   uint64 `json:"rate_bps"`
	LinkBPS   uint64 `json:"link_bps"`
	PCIeBPS   uint64 `json:"pcie_bps"`
}

type jsonSlow struct {
	ThresholdNS int64  `json:"threshold_ns"`
	Bursts      int64  `json:"bursts"`
	PeriodNS    int64  `json:"period_ns"`
	Pattern     string `json:"pattern"`
}

type jsonLate struct {
	RanNS         int64           `json:"ran_ns"`
	SleptNS       int64           `json:"slept_ns"`
	WaitedNS      int64           `json:"waited_for_cpu_ns"`
	UnknownNS     int64           `json:"unknown_ns"`
	NotLookedAtNS int64           `json:"not_looked_at_ns"`
	UnsampledNS   int64           `json:"unsampled_ns"`
	DelayNS       int64           `json:"delay_ns"`
	UnprovenNS    int64           `json:"unproven_ns"`
	Samples       int64           `json:"samples"`
	Stacks        []jsonLateStack `json:"stacks"`
	Omitted       int64           `json:"omitted"`
}

type jsonLateStack struct {
	PID     uint32   `json:"pid"`
	Doing   string   `json:"doing"`
	TotalNS int64    `json:"total_ns"`
	Samples int64    `json:"samples"`
	Stack   []string `json:"stack"`
}

type jsonTarget struct {
	PID     uint32   `json:"pid"`
	Comm    string   `json:"comm"`
	Exe     string   `json:"exe"`
	Cmdline []string `json:"cmdline"`
	Cgroup  string   `json:"cgroup"`
	Rank    *int     `json:"rank"`
	Exited  bool     `json:"exited"`
}

type jsonHost struct {
	Name         string `json:"name"`
	Kernel       string `json:"kernel"`
	Arch         string `json:"arch"`
	Distribution string `json:"distribution"`
	CPUs         int    `json:"cpus"`
	Governor     string `json:"governor"`
}

type jsonDevice struct {
	Name     string           `json:"name"`
	Driver   string           `json:"driver"`
	Firmware string           `json:"firmware"`
	PCI      string           `json:"pci"`
	NUMANode *int             `json:"numa_node"`
	PCIeBPS  uint64           `json:"pcie_bps"`
	Software bool             `json:"software"`
	Ports    []jsonDevicePort `json:"ports"`
}

type jsonDevicePort struct {
	Number    int    `json:"number"`
	LinkLayer string `json:"link_layer"`
	State     string `json:"state"`
	RateBPS   uint64 `json:"rate_bps"`
}

type jsonBooks struct {
	Posted      int64 `json:"posted"`
	Completed   int64 `json:"completed"`
	Outstanding int64 `json:"outstanding"`
	Flushed     int64 `json:"flushed"`
	Lost        int64 `json:"lost"`
	Excluded    int64 `json:"excluded"`
	Unsignalled int64 `json:"unsignalled"`
	Bytes       int64 `json:"bytes"`
}

type jsonDistribution struct {
	Count    int64   `json:"count"`
	TotalNS  int64   `json:"total_ns"`
	MeanNS   float64 `json:"mean_ns"`
	StdDevNS float64 `json:"stddev_ns"`
	P50NS    int64   `json:"p50_ns"`
	P90NS    int64   `json:"p90_ns"`
	P99NS    int64   `json:"p99_ns"`
	P999NS   int64   `json:"p999_ns"`
	MaxNS    int64   `json:"max_ns"`
	MinNS    int64   `json:"min_ns"`
}

type jsonClasses struct {
	Software   jsonDistribution `json:"software"`
	Interrupt  jsonDistribution `json:"interrupt"`
	Scheduling jsonDistribution `json:"scheduling"`
	Wire       jsonDistribution `json:"wire"`
}

// jsonParts are the classes of one latency or sum; probe is a part of software.
type jsonParts struct {
	SoftwareNS   float64 `json:"software_ns"`
	InterruptNS  float64 `json:"interrupt_ns"`
	SchedulingNS float64 `json:"scheduling_ns"`
	WireNS       float64 `json:"wire_ns"`
	UndecidedNS  float64 `json:"undecided_ns"`
}

type jsonSplit struct {
	Count     int64   `json:"count"`
	LatencyNS float64 `json:"latency_ns"`
	jsonParts
	ProbeNS float64            `json:"probe_ns"`
	Causes  map[string]float64 `json:"causes"`
}

type jsonCause struct {
	TotalNS int64         `json:"total_ns"`
	Count   int64         `json:"count"`
	Who     []jsonCulprit `json:"who"`
}

type jsonCulprit struct {
	Name    string `json:"name"`
	TotalNS int64  `json:"total_ns"`
	Count   int64  `json:"count"`
	Cgroup  string `json:"cgroup,omitempty"`
}

type jsonGroup struct {
	Key       string           `json:"key"`
	Bytes     int64            `json:"bytes"`
	Latency   jsonDistribution `json:"latency"`
	Undecided jsonDistribution `json:"undecided"`
	Classes   jsonClasses      `json:"classes"`
	ProbeNS   int64            `json:"probe_ns"`
	AtP50     jsonSplit        `json:"at_p50"`
	AtP99     jsonSplit        `json:"at_p99"`
}

type jsonIncident struct {
	Cause    string        `json:"cause"`
	Who      string        `json:"who"`
	Cgroup   string        `json:"cgroup,omitempty"`
	BeginNS  int64         `json:"begin_ns"`
	EndNS    int64         `json:"end_ns"`
	WRs      int64         `json:"wrs"`
	DelayNS  int64         `json:"delay_ns"`
	Worst    jsonWR        `json:"worst"`
	Timeline []jsonSegment `json:"timeline"`
	Omitted  int64         `json:"omitted"`
	Also     []jsonAnother `json:"also"`
}

type jsonAnother struct {
	Cause   string `json:"cause"`
	Who     string `json:"who"`
	Cgroup  string `json:"cgroup,omitempty"`
	Parts   int64  `json:"parts"`
	TotalNS int64  `json:"total_ns"`
	DelayNS int64  `json:"delay_ns"`
}

type jsonSegment struct {
	Cause   string `json:"cause"`
	BeginNS int64  `json:"begin_ns"`
	EndNS   int64  `json:"end_ns"`
	Who     string `json:"who"`
	Cgroup  string `json:"cgroup,omitempty"`
	TID     uint32 `json:"tid"`
	CPU     *int32 `json:"cpu"`
}

type jsonWR struct {
	PID         uint32   `json:"pid"`
	QP          uint32   `json:"qp"`
	Index       int64    `json:"index"`
	Op          string   `json:"op"`
	Bytes       int64    `json:"bytes"`
	Device      string   `json:"device"`
	Peer        string   `json:"peer"`
	Transport   string   `json:"transport"`
	PostThread  string   `json:"post_thread"`
	ReapThread  string   `json:"reap_thread"`
	PostBeginNS int64    `json:"post_begin_ns"`
	PostEndNS   int64    `json:"post_end_ns"`
	DoneLowNS   int64    `json:"done_low_ns"`
	DoneNS      int64    `json:"done_ns"`
	DoneHighNS  int64    `json:"done_high_ns"`
	ReapNS      int64    `json:"reap_ns"`
	DoneSource  string   `json:"done_source"`
	Demand      string   `json:"demand"`
	Status      uint32   `json:"status"`
	Stack       []string `json:"stack"`
}

type jsonQueue struct {
	PID    uint32 `json:"pid"`
	QP     uint32 `json:"qp"`
	Device string `json:"device"`
	Peer   string `json:"peer"`
	jsonBacklog
	QueueSize int64 `json:"queue_size"`
	Bypass    bool  `json:"bypass"`
}

type jsonBacklog struct {
	Posted         int64         `json:"posted"`
	DepthMean      float64       `json:"depth_mean"`
	DepthMax       int64         `json:"depth_max"`
	DepthKnown     int64         `json:"depth_known"`
	IdleNS         int64         `json:"idle_ns"`
	WindowNS       int64         `json:"window_ns"`
	IdleRunningNS  int64         `json:"idle_running_ns"`
	IdleRunnableNS int64         `json:"idle_runnable_ns"`
	IdleAsleepNS   int64         `json:"idle_asleep_ns"`
	IdleUnknownNS  int64         `json:"idle_unknown_ns"`
	IdleSyscalls   []jsonCulprit `json:"idle_syscalls"`
	BytesPerSec    float64       `json:"bytes_per_sec"`
	WRsPerSec      float64       `json:"wrs_per_sec"`
}

type jsonPort struct {
	Device string `json:"device"`
	Port   int    `json:"port"`
	jsonBacklog
	RateBPS     uint64  `json:"rate_bps"`
	TracedBPS   float64 `json:"traced_bps"`
	TracedSent  int64   `json:"traced_sent_bytes"`
	TracedRecv  int64   `json:"traced_received_bytes"`
	CountedSent *int64  `json:"counted_sent_bytes"`
	CountedRecv *int64  `json:"counted_received_bytes"`
}

type jsonEventQueues struct {
	Device  string  `json:"device"`
	Vector  *int64  `json:"vector"`
	Queues  int64   `json:"queues"`
	IRQ     *uint32 `json:"irq"`
	Line    string  `json:"line"`
	CPUs    string  `json:"cpus"`
	Vectors int64   `json:"vectors"`
}

type jsonReceive struct {
	PID    uint32           `json:"pid"`
	Device string           `json:"device"`
	Peer   string           `json:"peer"`
	QP     uint32           `json:"qp"`
	Wait   jsonDistribution `json:"wait"`
}

type jsonPoint struct {
	BeginNS   int64 `json:"begin_ns"`
	EndNS     int64 `json:"end_ns"`
	Count     int64 `json:"count"`
	LatencyNS int64 `json:"latency_ns"`
	MaxNS     int64 `json:"max_ns"`
	jsonParts
}

type jsonProbe struct {
	Name    string  `json:"name"`
	Kind    string  `json:"kind"`
	Library string  `json:"library"`
	BuildID string  `json:"build_id"`
	Offset  string  `json:"offset"`
	Source  string  `json:"source"`
	Hits    uint64  `json:"hits"`
	Misses  uint64  `json:"misses"`
	Error   string  `json:"error"`
	RunNS   float64 `json:"run_ns"`
	Stepped bool    `json:"stepped"`
	PID     uint32  `json:"pid"`
	Removed bool    `json:"removed"`
}

type jsonCost struct {
	TrapNS    float64 `json:"trap_ns"`
	PairNS    float64 `json:"pair_ns"`
	CPUTimeNS uint64  `json:"cpu_time_ns"`
	// On instructions that the kernel single-steps.
	SteppedTrapNS float64 `json:"stepped_trap_ns"`
	SteppedPairNS float64 `json:"stepped_pair_ns"`
	OfThreads     float64 `json:"of_threads"`
	Limit         float64 `json:"limit"`
	Tracepoints   float64 `json:"tracepoints"`
	// Sentences.
	Where []string `json:"where"`
}

// jsonSampled is null where all of the window was observed.
type jsonSampled struct {
	Stretches           int64   `json:"stretches"`
	ObservedNS          int64   `json:"observed_ns"`
	LongestUnobservedNS int64   `json:"longest_unobserved_ns"`
	WRsPerSec           float64 `json:"wrs_per_sec"`
	WRsPerSecError      float64 `json:"wrs_per_sec_error"`
	BytesPerSec         float64 `json:"bytes_per_sec"`
	BytesPerSecError    float64 `json:"bytes_per_sec_error"`
}
