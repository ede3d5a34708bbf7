package attribution

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"github.com/rdmatrace/rdmatrace/event"
)

// Names of operations: one table for posts (enum ibv_wr_opcode) and one for
// receive completions (enum ibv_wc_opcode), both of verbs.h.
var sendOps = [...]string{
	0:  "WRITE",
	1:  "WRITE_IMM",
	2:  "SEND",
	3:  "SEND_IMM",
	4:  "READ",
	5:  "CMP_SWAP",
	6:  "FETCH_ADD",
	7:  "LOCAL_INV",
	8:  "BIND_MW",
	9:  "SEND_INV",
	10: "TSO",
	11: "DRIVER1",
	14: "FLUSH",
	15: "ATOMIC_WRITE",
}

const (
	opRead       = 4
	opCmpSwap    = 5
	opFetchAdd   = 6
	opLocalInv   = 7
	opBindMW     = 8
	opDriver1    = 11
	wcReceive    = 128 // IBV_WC_RECV: this bit is set for all receives
	wcReceiveImm = 129 // IBV_WC_RECV_RDMA_WITH_IMM
)

// opName of a work request.
func opName(opcode uint8, receive bool) string {
	switch {
	case receive && opcode == wcReceiveImm:
		return "RECV_WRITE_IMM"
	case receive:
		return "RECV"
	case int(opcode) < len(sendOps) && sendOps[opcode] != "":
		return sendOps[opcode]
	}
	return "op " + strconv.Itoa(int(opcode))
}

// transportName of enum ibv_qp_type.
func transportName(qpType uint32) string {
	switch qpType {
	case 2:
		return "RC"
	case 3:
		return "UC"
	case 4:
		return "UD"
	case 8:
		return "RAW"
	case 9, 10:
		return "XRC"
	case 0xff:
		return "DRIVER"
	}
	return "type " + strconv.FormatUint(uint64(qpType), 10)
}

// statusNames of enum ibv_wc_status, without IBV_WC_.
var statusNames = [...]string{
	"SUCCESS", "LOC_LEN_ERR", "LOC_QP_OP_ERR", "LOC_EEC_OP_ERR", "LOC_PROT_ERR", "WR_FLUSH_ERR", "MW_BIND_ERR",
	"BAD_RESP_ERR", "LOC_ACCESS_ERR", "REM_INV_REQ_ERR", "REM_ACCESS_ERR", "REM_OP_ERR", "RETRY_EXC_ERR",
	"RNR_RETRY_EXC_ERR", "LOC_RDD_VIOL_ERR", "REM_INV_RD_REQ_ERR", "REM_ABORT_ERR", "INV_EECN_ERR",
	"INV_EEC_STATE_ERR", "FATAL_ERR", "RESP_TIMEOUT_ERR", "GENERAL_ERR", "TM_ERR", "TM_RNDV_INCOMPLETE",
}

// StatusName of a completion's status, enum ibv_wc_status.
func StatusName(status uint32) string {
	if int(status) < len(statusNames) {
		return statusNames[status]
	}
	return "status " + strconv.FormatUint(uint64(status), 10)
}

// softirqNames in the order of include/linux/interrupt.h.
var softirqNames = [...]string{
	"HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER", "RCU",
}

// ipiVectors of x86, from arch/x86/include/asm/irq_vectors.h. Other
// architectures number their IPIs from 0 and are shown by number.
var ipiVectors = map[uint32]string{
	0xfd: "reschedule IPI",
	0xfc: "function call IPI",
	0xfb: "function call IPI", // a single CPU's
	0xf8: "reboot IPI",
	0xf7: "platform IPI",
	0xf6: "irq work IPI",
	0xfa: "thermal interrupt",
	0xf9: "threshold interrupt",
}

// naming resolves what single work requests hold as numbers.
type naming struct {
	arch    string
	toolPID uint32 // rdmatrace's own process
	lines   map[uint32]string
	threads map[uint32]string
	cgroups map[uint64]string
	own     map[uint64]bool // cgroups of targets
}

func newNaming(ctx *event.Context) *naming {
	n := &naming{arch: ctx.Host.Arch, toolPID: ctx.ToolPID, lines: make(map[uint32]string), threads: make(map[uint32]string)}
	n.nameCgroups(ctx)
	for _, line := range ctx.IRQs {
		n.lines[line.Line] = line.Name
	}
	for _, t := range ctx.Threads {
		n.threads[t.TID] = validText(t.Comm)
	}
	return n
}

// validText is UTF-8: what the kernel and processes call things may be any
// bytes, and consumers of profiles reject those (a comm can be cut inside a rune).
func validText(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

// commText of a NUL padded name.
func commText(name []byte) string {
	if i := bytes.IndexByte(name, 0); i >= 0 {
		name = name[:i]
	}
	return validText(string(name))
}

// thread is "name/tid"; empty for no thread.
func (n *naming) thread(tid uint32) string {
	if tid == 0 {
		return ""
	}
	name := n.threads[tid]
	if name == "" {
		name = "thread"
	}
	return name + "/" + strconv.FormatUint(uint64(tid), 10)
}

// culprit in words: "stress-ng (pid 312)", "virtio3-input.0 (irq 27)",
// "NET_RX softirq", "local timer", "read", with what led to it before it, and that it told the
// completion queue's event. Empty where nobody is to blame.
func (n *naming) culprit(c *culprit) string {
	if c == nil {
		return ""
	}
	name := n.chain(c.chain, n.one(c))
	if c.told {
		name += " > CQ event"
	}
	return name
}

// one culprit without what led to it.
func (n *naming) one(c *culprit) string {
	name := commText(c.name[:])
	switch c.kind {
	case culpritTask:
		if name == "" {
			name = "task"
		}
		if c.pid == n.toolPID && c.pid != 0 {
			return fmt.Sprintf("%s (pid %d, which traced this)", name, c.pid)
		}
		return fmt.Sprintf("%s (pid %d)", name, c.pid)
	case culpritIRQ:
		if known := n.lines[c.id]; known != "" {
			name = validText(known)
		}
		if name == "" {
			return fmt.Sprintf("irq %d", c.id)
		}
		return fmt.Sprintf("%s (irq %d)", name, c.id)
	case culpritSoftirq:
		if int(c.id) < len(softirqNames) {
			return softirqNames[c.id] + " softirq"
		}
		return fmt.Sprintf("softirq %d", c.id)
	case culpritTimer:
		return "local timer"
	case culpritIPI:
		if known := ipiVectors[c.id]; known != "" && n.x86() {
			return known
		}
		return fmt.Sprintf("IPI %d", c.id)
	case culpritIdle:
		return "idle CPU"
	case culpritSyscall:
		return n.syscall(int32(c.id))
	}
	return ""
}

func (n *naming) x86() bool { return n.arch != "arm64" && n.arch != "aarch64" }

// syscall by name, or "syscall 123".
func (n *naming) syscall(nr int32) string {
	for i := range syscalls {
		s := &syscalls[i]
		if n.x86() && s.amd64 == nr || !n.x86() && s.arm64 == nr {
			return s.name
		}
	}
	return "syscall " + strconv.Itoa(int(nr))
}

// peerHost is the part of a peer's name that its queue pairs share:
// "lid 1" of "lid 1 qp 0x105".
func peerHost(peer string) string {
	host, _, _ := strings.Cut(peer, " qp ")
	return host
}

// sizeLabel is the power of two that a size does not exceed: "4KiB" for 2049
// to 4096 bytes.
func sizeLabel(bucket uint8) string {
	if bucket == 0 {
		return "0B"
	}
	const units = "BKMGTPE"
	shift := int(bucket) - 1
	unit := units[shift/10 : shift/10+1]
	if unit != "B" {
		unit += "iB"
	}
	return strconv.Itoa(1<<(shift%10)) + unit
}
