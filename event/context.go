package event

// Context is everything beside the events that analysis needs later, possibly
// on another machine. A capture file holds it as JSON; fields are only added.
type Context struct {
	Tool    string // version of rdmatrace that recorded
	ToolPID uint32 // its process; 0: unknown
	Host    Host
	Window  Window
	Targets []Target
	Threads []Thread
	Devices []Device
	// Mappings and Stacks carry symbols with them: the target may be gone.
	Mappings []Mapping
	Stacks   []Stack
	Probes   []Probe
	Counters []Counter // what was dropped, missed or unreadable, by name; zero ones included
	Cost     Cost
	IRQs     []IRQ
	Cgroups  []Cgroup // that tasks ran in which were seen, by id
	// Steal is what a hypervisor took of this virtual machine's CPUs in the window: of
	// those of which it took any, by CPU.
	Steal []StolenCPU `json:",omitempty"`
	// Notes are sentences on what was not observed or degraded, for the report.
	Notes []string
	// Costs are sentences on what observing costs at which place, and why.
	Costs []string
}

// Host is the machine the events come from.
type Host struct {
	Name, Kernel, Arch, Distribution string
	CPUs                             int
	// RealtimeOffset is CLOCK_REALTIME minus CLOCK_MONOTONIC at the start, ns.
	RealtimeOffset int64
	// Governor of cpufreq: "performance"; several are joined by commas; empty: none.
	Governor string
}

// StolenCPU is for how long a hypervisor ran something else on a CPU that had work. It is
// known to 10 ms.
type StolenCPU struct {
	CPU      int
	StolenNS uint64
}

// Window is when the gate was open, ns of CLOCK_MONOTONIC.
type Window struct{ Begin, End uint64 }

// Target is a traced process.
type Target struct {
	PID     uint32
	Comm    string
	Exe     string
	Cmdline []string
	Cgroup  string
	// CgroupID is that of its cgroup of version 2, as in Cgroups, when it was
	// seen last; 0: unknown.
	CgroupID uint64
	Rank     int  // -1: unknown
	Exited   bool // before the window ended
}

// Thread is a thread of a target.
type Thread struct {
	PID, TID uint32
	Comm     string
	Affinity string // "0-3,8"
}

// Device is an RDMA device that a target has open.
type Device struct {
	Name, Driver, Firmware string
	PCI                    string // "0000:03:00.0"; empty: none
	NUMANode               int    // -1: unknown
	PCIeBPS                uint64 // bits per second of the link; 0: unknown
	Software               bool   // rxe, siw, or the testbed's emulated device
	Ports                  []Port
}

// Port of a device.
type Port struct {
	Number    int
	LinkLayer string // "InfiniBand", "Ethernet"
	State     string
	RateBPS   uint64 // bits per second of the link; 0: unknown
	LID       uint16
	Counters  []PortCounter
}

// PortCounter at the start and the stop of the window. HW counters carry the
// prefix "hw_counters/". Data counters are in the kernel's unit (4 bytes).
type PortCounter struct {
	Name        string
	Start, Stop uint64
}

// Mapping of a file into a target.
type Mapping struct {
	PID                uint32
	Start, End, Offset uint64
	Path, BuildID      string
	Deleted            bool
}

// Stack is a user call stack, innermost frame first.
type Stack struct {
	ID     uint64
	PID    uint32
	Frames []Frame
	// Truncated: unwinding ended before the thread's start.
	Truncated bool
}

// Frame of a Stack. Func is demangled; empty where no symbol is known.
type Frame struct {
	Addr   uint64 // in the target; of a caller: inside its call instruction (return address - 1)
	Offset uint64 // in the file, 0: not from a file
	Func   string
	Module string // path of the mapped file
	File   string // source, where known
	Line   int
	Inline bool // inlined into the following frame, same Addr
}

// Probe is one place where the tracer looked, and what came of it.
type Probe struct {
	Name    string // "post_send", "poll_cq", "sched_switch"
	Kind    string // "uprobe", "uretprobe", "tp_btf", "fentry", "fexit", "perf_event"
	Library string // path in the target; empty for the kernel
	BuildID string
	Offset  uint64 // in the file
	Source  string // how the address was found: "ops table, live context"
	Hits    uint64
	Misses  uint64  // recursion misses
	RunNS   float64 // what its program took of a hit, of which the trap is no part; 0: not measured
	Error   string  // why it is not there
	Stepped bool    // the kernel single-steps the instruction there
	PID     uint32  // of the process that it is in; 0: the kernel's, or not known
	Removed bool    // before the end: what it told, something cheaper had been learned to tell
}

// Counter is a named count.
type Counter struct {
	Name  string
	Value uint64
}

// Cost is what observing cost, calibrated in this run.
type Cost struct {
	TrapNS  float64 // one entry probe with its program; 0: not calibrated
	PairNS  float64 // an entry and a return probe
	InPost  float64 // of a pair, the part between its two time stamps
	CPUTime uint64  // ns rdmatrace itself ran
	// The same for a probe on an instruction that the kernel has to single-step.
	SteppedTrapNS, SteppedPairNS, SteppedInPost float64
	// OfThreads is what the probes took of the time that the threads ran which
	// post and poll, as a share; 0: not known. Limit is what it was to be kept
	// below by pauses; 0: there was none.
	OfThreads, Limit float64
	// Tracepoints is what the programs at the kernel's tracepoints took, as a share of
	// one CPU; 0: not measured.
	Tracepoints float64
}

// IRQ is a line that was seen, with its device where that is known.
type IRQ struct {
	Line   uint32
	Name   string
	Device string
	CPUs   string // that handle it, as effective_affinity_list: "3" or "0-7,16"; empty: unknown
}

// Cgroup of version 2.
type Cgroup struct {
	ID   uint64
	Path string // from the hierarchy's root: "/system.slice/job.service"; empty: it was gone before it could be looked up
}
