package locate

import (
	"encoding/binary"

	"github.com/rdmatrace/rdmatrace/tracer/locate/object"
)

// Members of the public structures that programs call through, by their offset
// on x86-64 (<infiniband/verbs.h>, rdma-core 24 to 64: slots are only ever
// added at the end). On arm64 pthread_mutex_t is 8 bytes larger, and all of
// these lie behind one.

// qpExMembers are of struct ibv_qp_ex, from the ibv_qp.
var qpExMembers = map[Verb]int64{
	WRAtomicCmpSwp: 184, WRAtomicFetchAdd: 192, WRBindMW: 200, WRLocalInv: 208,
	WRRDMARead: 216, WRRDMAWrite: 224, WRRDMAWriteImm: 232,
	WRSend: 240, WRSendImm: 248, WRSendInv: 256, WRSendTSO: 264,
	WRSetUDAddr: 272, WRSetXRCSRQN: 280,
	WRSetInlineData: 288, WRSetInlineDataList: 296, WRSetSGE: 304, WRSetSGEList: 312,
	WRStart: 320, WRComplete: 328, WRAbort: 336,
	WRAtomicWrite: 344, WRFlush: 352,
}

// cqExMembers are of struct ibv_cq_ex, from the ibv_cq.
var cqExMembers = map[Verb]int64{StartPoll: 144, NextPoll: 152, EndPoll: 160}

// mutexGrowth is how much larger pthread_mutex_t is than on x86-64.
func mutexGrowth(a object.Arch) int64 {
	if a == object.ArchARM64 {
		return 8
	}
	return 0
}

// layout is where the fields of the public structures are on an architecture.
type layout struct {
	abiCompat        uint64 // in ibv_context
	qpSize, cqSize   uint64 // sizeof(struct ibv_qp), sizeof(struct ibv_cq)
	qpEx, cqEx       map[Verb]int64
	qpExEnd, cqExEnd uint64 // up to the members above
}

func layoutOf(a object.Arch) layout {
	grow := mutexGrowth(a)
	l := layout{abiCompat: uint64(320 + grow), qpSize: uint64(160 + grow), cqSize: uint64(128 + grow),
		qpEx: map[Verb]int64{}, cqEx: map[Verb]int64{}}
	for v, off := range qpExMembers {
		l.qpEx[v] = off + grow
		l.qpExEnd = max(l.qpExEnd, uint64(off+grow+8))
	}
	for v, off := range cqExMembers {
		l.cqEx[v] = off + grow
		l.cqExEnd = max(l.cqExEnd, uint64(off+grow+8))
	}
	return l
}

func u32(b []byte, off uint64) uint32 { return binary.LittleEndian.Uint32(b[off:]) }
func u64(b []byte, off uint64) uint64 { return binary.LittleEndian.Uint64(b[off:]) }
