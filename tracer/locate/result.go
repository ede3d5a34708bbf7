package locate

import "time"

// FileID says which file a library is, whatever path leads to it: a uprobe
// belongs to an inode. On overlay file systems Dev may be that of a layer; the
// build-id then tells libraries apart.
type FileID struct {
	Dev     uint64 // as in /proc/PID/maps: major<<32 | minor
	Ino     uint64
	BuildID string // hex; empty: the file has none
}

// Role says what a library is to RDMA. It is decided by the file's content,
// never by its name.
type Role uint8

const (
	RoleVerbs    Role = 1 << iota // exports verbs_set_ops: libibverbs
	RoleProvider                  // imports verbs_set_ops or verbs_register_driver*
	RoleMLX5                      // exports mlx5dv_init_obj
	RoleDirect                    // imports mlx5dv_init_obj or mlx5dv_devx_*: may build WQEs itself (UCX, DOCA, DPDK)
	RoleUCX                       // exports uct_* of UCX's InfiniBand transports
)

// Library is a file that a process has mapped executable.
type Library struct {
	FileID
	Path    string // as the process sees it, without " (deleted)"
	Deleted bool   // the path leads elsewhere now, or nowhere
	Role    Role
	// Build is the same for the same code, wherever its file lies: each container has a
	// copy of its own, or another inode of the same.
	Build Build
	// Open is a path at which this very file can be opened while the process
	// lives: /proc/PID/map_files/LO-HI, or below /proc/PID/root.
	Open string
	// Beside it, that path below /proc/PID/root: see OpenFile.
	InRoot string
}

// Function is one place to put probes on.
type Function struct {
	Library *Library
	Verb    Verb
	Offset  uint64 // in the file: what a uprobe wants
	Vaddr   uint64 // in the file's own address space
	Size    uint64 // bytes, of its .eh_frame entry; 0: unknown
	Source  string // how it was found: "ops table; live context"
	Live    bool   // a live object of this process points at it
}

// Functions is what was found, each (Library, Offset, Verb) once.
type Functions []Function

// Of returns the functions that are v.
func (f Functions) Of(v Verb) Functions {
	var out Functions
	for _, fn := range f {
		if fn.Verb == v {
			out = append(out, fn)
		}
	}
	return out
}

// DeviceContext is an open device: an ibv_context.
type DeviceContext struct {
	Addr     uint64
	Device   string // "mlx5_0"
	DevName  string // "uverbs0"
	CmdFD    int
	Provider *Library // where its post_send is; nil: in none of the mapped files
}

// QP is a queue pair as its ibv_qp says.
type QP struct {
	Addr, Context, SendCQ, RecvCQ, SRQ uint64
	Num, Type, State                   uint32 // enum ibv_qp_type, ibv_qp_state
	Ex                                 bool   // has the ibv_wr_* builders
	SigAll                             uint8  // 0, 1; 2: unknown
	MaxSendWR                          uint32 // 0: unknown
}

// CQ is a completion queue as its ibv_cq says.
type CQ struct {
	Addr, Context, Channel uint64
	ChannelFD              int32 // -1: none
	CQE                    uint32
	Ex                     bool // has start_poll
}

// MLX5Layout holds where libmlx5 keeps what its ABI does not show. All offsets
// are bytes from the ibv_cq or ibv_qp. It is derived from live objects and
// holds for one build of the library; never from a version number.
type MLX5Layout struct {
	Library *Library
	CQ      MLX5CQLayout
	QP      MLX5QPLayout
}

// MLX5CQLayout is of struct mlx5_cq. Use it only if Verified.
type MLX5CQLayout struct {
	Verified  bool
	Evidence  string // what spoke for it, or why there is none
	ActiveBuf uint32 // pointer to a mlx5_buf, whose first word is the ring's address
	CQN       uint32 // u32
	ConsIndex uint32 // u32
	DBRec     uint32 // pointer to be32[2]: consumer index, arm
	CQESize   uint32 // int, 64 or 128; the mlx5_cqe64 is the last 64 bytes
}

// MLX5QPLayout is of struct mlx5_qp. Use it only if Verified.
type MLX5QPLayout struct {
	Verified  bool
	Evidence  string
	SigProven bool   // SQSigBits is believed too
	SQSigBits uint32 // u8: 8 with sq_sig_all, else 0
	SQStart   uint32 // pointer to the first WQE
	SQWRID    uint32 // pointer to u64[wqe_cnt]
	SQWQECnt  uint32 // u32, power of two
	SQMaxPost uint32 // u32
	SQHead    uint32 // u32, WRs posted
	SQTail    uint32 // u32, WRs completed
	SQCurPost uint32 // u32, index of the next basic block; its low 16 bits are the next WQE's index
	DB        uint32 // pointer to be32[2]: receive, send
}

// Snapshot is what one look at a process found.
type Snapshot struct {
	Functions Functions
	Libraries []*Library // those with a Role, and others that have a function
	Contexts  []DeviceContext
	QPs       []QP
	CQs       []CQ
	MLX5      []MLX5Layout // one for each libmlx5 mapped that has live objects
	Stats     ScanStats
	// Notes are sentences on what was not found or contradicts itself.
	Notes []string
}

// ScanStats says what looking cost.
type ScanStats struct {
	BytesRead uint64 // of the process's memory
	BytesLeft uint64 // of likely mappings, not looked through for the budget
	Destroyed int    // queue pairs left out: they linger in memory that was freed
	Took      time.Duration
}
