// Package event holds what the tracer observes and attribution consumes: one
// Event per record of the kernel, and the Context in which they were taken.
//
// All times are nanoseconds of CLOCK_MONOTONIC on one host. The package is
// pure data: it imports neither the kernel's interfaces nor a clock.
package event

// Kind says which of an Event's parts are set.
type Kind uint8

const (
	// KindWR: one work request was handed to a posting function. Verb is set.
	KindWR Kind = iota + 1
	// KindPostEnd: a posting function returned. Verb is set.
	KindPostEnd
	// KindCompletion: a poll returned this completion. Verb is set.
	KindCompletion
	// KindArm: ibv_req_notify_cq. Of Verb, CQ and Traps are set.
	KindArm
	// KindSwitch: sched_switch. Sched is set.
	KindSwitch
	// KindWaking: sched_waking of a thread of a target. Sched is set.
	KindWaking
	// KindInterrupt: an interrupt ran on top of a thread of a target. IRQ is set.
	KindInterrupt
	// KindQP, KindCQ, KindDeviceContext: an object's life. Object is set.
	KindQP
	KindCQ
	KindDeviceContext
	// KindTask: a thread or process started, ended or was found. Object is set.
	KindTask
	// KindLoss: records were dropped between Begin and Time. Loss is set.
	KindLoss
	// KindCQE: the kernel wrote a completion entry, as the NIC is software. PID
	// owns the queue; TID is the task it was written on. In Verb: CQ, QPNum, WRID,
	// Status, Opcode, End, Count, Entry and Entries.
	KindCQE
	// KindPause: posts and polls are not observed from here on (PauseBegin), or
	// again (PauseEnd). All else is, all the time.
	KindPause
	// KindSample: the thread ran, seen at regular times. Sample is set.
	KindSample
	// KindCQEvent: the kernel tells the completion channel of Verb.CQ that something
	// completed. PID owns the queue; TID is the task that this ran on.
	KindCQEvent
	// KindQuota: TID waits for CPU, and cannot run from here on as its cgroup's quota is
	// used up (QuotaBegin), or could again (QuotaEnd).
	KindQuota
	// KindMigration: TID waits for CPU from here on, before for Sched.FromCPU.
	KindMigration
	kinds
)

// Kinds is one more than the largest Kind: the size of a table indexed by it.
const Kinds = int(kinds)

// Event is one observation. It holds no reference to memory of its producer
// except Object, which is immutable once made.
type Event struct {
	Time uint64 // ns; the order of things
	PID  uint32 // thread group of the thread that ran
	TID  uint32
	Kind Kind
	CPU  uint16
	// Flags are of the part that is set: WR* for KindWR, Completion* for
	// KindCompletion, Arm* for KindArm, Switch* for KindSwitch, Pause* for KindPause,
	// Quota* for KindQuota.
	Flags uint32

	Verb   Verb
	Sched  Sched
	IRQ    Interrupt
	Loss   Loss
	Sample Sample
	Object *Object
}

// Flags of KindWR.
const (
	WRReceive    = 1 << iota // posted to a receive queue or SRQ
	WRBuilder                // made by the ibv_wr_* builders
	WRTruncated              // the list went on past what could be read
	WRUnreadable             // user memory faulted: WRID to Bytes are unknown
	WRSRQ                    // QP is the address of an ibv_srq
	WRWQEValid               // WQE is verified
)

// Flags of KindCompletion.
const (
	CompletionHWTime     = 1 << iota // HWTime is this CQE's, verified
	CompletionWQEValid               // WQE is this CQE's wqe_counter, verified
	CompletionUnreadable             // the ibv_wc could not be read
	CompletionEx                     // by ibv_start_poll / ibv_next_poll
	CompletionNoEmpty                // empty polls are not observed: LastEmpty means nothing
	CompletionLost                   // the poll failed: Count completions may be lost
	CompletionEntryValid             // Entry is where the kernel wrote this completion's entry, verified
)

// Verb is the data-path part: KindWR, KindPostEnd, KindCompletion, KindArm, KindCQE,
// KindCQEvent.
type Verb struct {
	QP    uint64 // address of the ibv_qp (of the ibv_srq with WRSRQ); 0 for completions
	CQ    uint64 // address of the ibv_cq; completions, arms and events
	WRID  uint64
	Stack uint64 // id of a Stack in the Context; 0: none
	// Begin is post_begin (KindWR, KindPostEnd) or the entry of the poll (KindCompletion), ns.
	Begin uint64
	// End bounds, with Event.Time, when the entry became visible (KindCQE), ns.
	End uint64
	// LastEmpty is the entry time of the latest poll of this CQ that found it
	// empty, ns; 0: none was seen. LastEmptyTID made it; 0: it was no poll, the
	// programs looked at the CQ themselves.
	LastEmpty    uint64
	LastEmptyTID uint32
	// HWTime is the raw timestamp field of the CQE, in units of the device's clock.
	HWTime     uint64
	QPNum      uint32
	Call       uint32 // ties KindPostEnd to its KindWRs: the posting calls of TID, counted
	Bytes      uint32 // posted length, or byte_len of the completion
	SendFlags  uint32 // enum ibv_send_flags
	RemoteQPN  uint32 // UD destination; src_qp of a completion
	Status     uint32 // enum ibv_wc_status
	VendorErr  uint32
	WCFlags    uint32
	EmptyPolls uint32 // polls that found this CQ empty since its previous completion
	Result     int32  // KindPostEnd: the function's return value
	BadIndex   int32  // KindPostEnd: index of *bad_wr, -1: none
	Index      uint16 // place within its call or poll
	Count      uint16 // WRs of the call; completions of the poll; entries not yet reaped (KindCQE)
	NumSGE     uint16
	WQE        uint16 // 16-bit index of the WQE: of the post, or the CQE's wqe_counter
	Traps      uint16 // our probe hits inside the call or poll; KindArm: 1, where it was seen by one
	// Entry is the place of a completion's entry in a ring that the kernel writes,
	// of a KindCQE the first of the Entries that it may be at: others were written
	// meanwhile where that is more than one place. In 65536ths of the ring, so
	// that differences wrap as places do, whatever its size.
	Entry, Entries uint16
	Opcode         uint8 // enum ibv_wr_opcode (KindWR) or ibv_wc_opcode (KindCompletion)
}

// ArmStepped is a flag of KindArm: the kernel had to single-step the instruction at
// which it was seen.
const ArmStepped = 1

// Flags of KindPause.
const (
	PauseBegin = 1 << iota
	PauseEnd
)

// Flags of KindQuota.
const (
	QuotaBegin = 1 << iota
	QuotaEnd
)

// Flags of KindSwitch.
const (
	SwitchPrevTarget = 1 << iota
	SwitchNextTarget
	SwitchPrevExited
	SwitchThrottled // prev was taken off the CPU by its cgroup's quota
	SwitchPreempt
	SwitchInferred // next was found running, its switch was not seen: prev is unknown, Time an upper bound
	// SwitchMigrated stands in captures of old versions only, which knew no KindMigration:
	// it is reserved, and no event has it that the tracer or a capture's reader gives.
	SwitchMigrated
)

// Sched is the scheduler's part: KindSwitch, KindWaking and KindMigration.
type Sched struct {
	PrevTID, PrevPID uint32
	NextTID, NextPID uint32 // for KindWaking: the wakee
	PrevState        uint32 // 0: still runnable
	Syscall          int32  // the system call prev is in; -1: none
	SyscallArg       uint64 // its first argument
	PrevComm         Comm   // for KindWaking: the waker (current, which an interrupt may have borrowed)
	NextComm         Comm
	// NextCgroup, PrevCgroup are ids of Context.Cgroups; 0: unknown.
	NextCgroup, PrevCgroup uint64
	// KindSwitch: id of prev's Stack in the Context, where it entered the kernel; 0: none.
	PrevStack uint64
	FromCPU   uint16 // KindMigration, of which it is all
	// KindWaking: the interrupt the waker ran in, its line, softirq or vector, and its entry.
	Interrupt      InterruptKind
	Vec            uint32
	InterruptBegin uint64
	// KindWaking: what led to the waker; nil: nothing is known. It is shared by
	// events and never changes.
	Chain *Chain
	// With Chain: the entry of the first of the interrupts that alone, threaded
	// handlers included, led to the wakeup; 0 where the waker ran in none.
	ChainBegin uint64
	// KindWaking: the interrupt that all began with came to a CPU that had been
	// idle since then; 0: it was not idle, or an interrupt began nothing.
	IdleSince uint64
	// KindWaking: address of the wakee's ibv_cq whose event woke it, see KindCQEvent;
	// 0: it was none, or is not known.
	CQ uint64
}

// ChainMost links are known before the waker: four wakers in all.
const ChainMost = 3

// Chain is what led to a waker, the first thing first.
type Chain struct {
	Links [ChainMost]Link
	N     uint8
}

// Link is an interrupt, or a kernel thread that was woken.
type Link struct {
	Kind InterruptKind // InterruptNone: a kernel thread
	Vec  uint32        // the line, softirq or vector
	Name Comm          // of a thread: as in Sched.PrevComm
}

// Comm is a task's name as the kernel keeps it: NUL padded, any bytes.
type Comm [16]byte

// InterruptKind says what kind of handler ran.
type InterruptKind uint8

// The values are those of enum interrupt_kind in bpf/event.h.
const (
	InterruptNone    InterruptKind = iota
	InterruptDevice                // a device's line
	InterruptSoftirq               // vec is the softirq number
	InterruptTimer                 // the local timer
	InterruptIPI                   // reschedule, function call, irq work
	InterruptThread                // a threaded handler
)

// Interrupt ran on top of thread TID from Begin to Event.Time.
type Interrupt struct {
	Begin  uint64
	Nested uint64 // ns of it in which others ran: interrupts nested inside it, which have events of their own, and on PREEMPT_RT threads
	Kind   InterruptKind
	Vec    uint32
	Name   [32]byte // a device line's action, NUL padded
}

// Sample is a look at what a thread ran.
type Sample struct {
	Stack  uint64 // id of a Stack in the Context; 0: none
	Period uint64 // ns of a CPU's time between two samples
}

// Loss says that Count records of kind Of, made on Event.CPU between Begin and
// Event.Time, were dropped.
type Loss struct {
	Begin uint64
	Count uint64
	Of    Kind // 0: unknown
}

// ObjectEvent says what happened to an object.
type ObjectEvent uint8

// The values are those of enum object_event in bpf/event.h.
const (
	ObjectCreated ObjectEvent = iota + 1
	ObjectModified
	ObjectDestroyed
	ObjectFound // it existed when the gate opened
)

// Object is the part of rare events; exactly one pointer is set.
type Object struct {
	Event   ObjectEvent
	QP      *QP
	CQ      *CQ
	Context *DeviceContext
	Task    *Task
}

// QP is a queue pair's state after the event.
type QP struct {
	Addr, Context, SendCQ, RecvCQ, SRQ uint64
	Num, Type, State                   uint32 // enum ibv_qp_type, ibv_qp_state
	AttrMask                           uint32 // ObjectModified: which attributes were given
	DestNum                            uint32
	MaxSendWR                          uint32
	SigAll                             uint8 // 0, 1; 2: unknown
	PathMTU                            uint8 // enum ibv_mtu
	Timeout, RetryCnt, RNRRetry        uint8
	MinRNRTimer, MaxRDAtomic, Port     uint8
	DLID                               uint16
	DGID                               [16]byte
}

// CQ is a completion queue.
type CQ struct {
	Addr, Context, Channel uint64
	ChannelFD              int32 // -1: none
	CQE                    uint32
	CompVector             uint32
}

// DeviceContext is an open device: an ibv_context.
type DeviceContext struct {
	Addr   uint64
	Device string // "mlx5_0"
}

// TaskEvent says what happened to a task.
type TaskEvent uint8

// The values are those of enum task_event in bpf/event.h.
const (
	TaskStarted TaskEvent = iota + 1
	TaskExec
	TaskExited
	TaskFound
)

// Task is a thread of a target; Event.TID and Event.PID name it.
type Task struct {
	Event     TaskEvent
	ParentPID uint32
	State     uint32 // TaskFound: 0 running or runnable, else asleep
	Comm      string
	// Sleep is the system call of a TaskFound asleep; nil: none, or not known.
	Sleep *SystemCall `json:",omitempty"`
}

// SystemCall is what a thread asked of the kernel.
type SystemCall struct {
	Number int32
	Arg    uint64 // the first argument
}
