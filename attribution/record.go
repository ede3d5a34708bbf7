package attribution

import (
	"bytes"
	"cmp"

	"github.com/rdmatrace/rdmatrace/event"
)

// stamp is what all events have in common.
type stamp struct {
	time     uint64
	pid, tid uint32
	flags    uint32
	cpu      uint16
	kind     event.Kind
}

// The records are events reduced to the part that is set: they are held back
// by the hundred thousand, and most of an event.Event is empty.
type (
	verbRecord struct {
		stamp
		event.Verb
		written uint64 // of a completion: when the kernel began to write its entry, until End; 0: not known
		noticed uint64 // of a completion: when it was there by its queue's event; 0: not known
	}
	schedRecord struct {
		stamp
		event.Sched
	}
	interruptRecord struct {
		stamp
		event.Interrupt
	}
	sampleRecord struct {
		stamp
		event.Sample
	}
	rareRecord struct {
		stamp     // of a loss: its beginning
		lossEnd   uint64
		lossCount uint64
		lossOf    event.Kind // 0: unknown
		object    *event.Object
	}
)

// begins: of a pause.
func (r *rareRecord) begins() bool { return r.flags&event.PauseBegin != 0 }

// recordHandler takes records in the order of time.
type recordHandler interface {
	verb(r *verbRecord)
	sched(r *schedRecord)
	interrupt(r *interruptRecord)
	sample(r *sampleRecord)
	rare(r *rareRecord)
}

// rank orders kinds at the same instant so that a cause comes before what it
// leads to: a loss un-anchors before anything is matched, a thread runs before
// it posts, and posts before it reaps.
var rank = [event.Kinds]uint8{
	event.KindPause:         0,
	event.KindLoss:          1,
	event.KindDeviceContext: 2,
	event.KindCQ:            3,
	event.KindQP:            4,
	event.KindTask:          5,
	event.KindInterrupt:     6,
	event.KindWaking:        7,
	event.KindSwitch:        8,
	event.KindMigration:     9,
	event.KindQuota:         10,
	event.KindSample:        11,
	event.KindArm:           12,
	event.KindWR:            13,
	event.KindCQE:           14,
	event.KindCQEvent:       15,
	event.KindPostEnd:       16,
	event.KindCompletion:    17,
}

// The comparisons below order all that is in a record, so that the order of
// arrival cannot matter: records that compare equal are the same.

func compareStamp(a, b *stamp) int {
	if a.time != b.time {
		return cmp.Compare(a.time, b.time)
	}
	if a.kind != b.kind {
		return cmp.Compare(rank[a.kind], rank[b.kind])
	}
	return cmp.Or(
		cmp.Compare(a.pid, b.pid),
		cmp.Compare(a.tid, b.tid),
	)
}

// compareVerb puts a thread's calls in their order before all else: at one
// instant a call returns before the next one begins, and before a poll.
func compareVerb(a, b *verbRecord) int {
	switch {
	case a.time != b.time:
		return cmp.Compare(a.time, b.time)
	case a.pid != b.pid:
		return cmp.Compare(a.pid, b.pid)
	case a.tid != b.tid:
		return cmp.Compare(a.tid, b.tid)
	}
	if x, y := a.isPost(), b.isPost(); x != y {
		return trueFirst(x, y)
	} else if x && a.Call != b.Call {
		return cmp.Compare(a.Call, b.Call)
	}
	if a.kind != b.kind {
		return cmp.Compare(rank[a.kind], rank[b.kind])
	}
	if a.Index != b.Index {
		return cmp.Compare(a.Index, b.Index)
	}
	return cmp.Or(
		cmp.Compare(a.cpu, b.cpu),
		cmp.Compare(a.Call, b.Call),
		cmp.Compare(a.flags, b.flags),
		cmp.Compare(a.QP, b.QP),
		cmp.Compare(a.CQ, b.CQ),
		cmp.Compare(a.QPNum, b.QPNum),
		cmp.Compare(a.Begin, b.Begin),
		cmp.Compare(a.WQE, b.WQE),
		cmp.Compare(a.WRID, b.WRID),
		cmp.Compare(a.HWTime, b.HWTime),
		cmp.Compare(a.End, b.End),
		cmp.Compare(a.LastEmpty, b.LastEmpty),
		cmp.Compare(a.LastEmptyTID, b.LastEmptyTID),
		cmp.Compare(a.EmptyPolls, b.EmptyPolls),
		cmp.Compare(a.Status, b.Status),
		cmp.Compare(a.Opcode, b.Opcode),
		cmp.Compare(a.Bytes, b.Bytes),
		cmp.Compare(a.SendFlags, b.SendFlags),
		cmp.Compare(a.Result, b.Result),
		cmp.Compare(a.BadIndex, b.BadIndex),
		cmp.Compare(a.Count, b.Count),
		cmp.Compare(a.NumSGE, b.NumSGE),
		cmp.Compare(a.Traps, b.Traps),
		cmp.Compare(a.Stack, b.Stack),
		cmp.Compare(a.RemoteQPN, b.RemoteQPN),
		cmp.Compare(a.VendorErr, b.VendorErr),
		cmp.Compare(a.WCFlags, b.WCFlags),
		cmp.Compare(a.Entry, b.Entry),
		cmp.Compare(a.Entries, b.Entries),
	)
}

func (r *verbRecord) isPost() bool { return r.kind == event.KindWR || r.kind == event.KindPostEnd }

func compareSched(a, b *schedRecord) int {
	if c := compareStamp(&a.stamp, &b.stamp); c != 0 {
		return c
	}
	return cmp.Or(
		cmp.Compare(a.cpu, b.cpu),
		cmp.Compare(a.PrevTID, b.PrevTID),
		cmp.Compare(a.NextTID, b.NextTID),
		cmp.Compare(a.PrevPID, b.PrevPID),
		cmp.Compare(a.NextPID, b.NextPID),
		cmp.Compare(a.flags, b.flags),
		cmp.Compare(a.PrevState, b.PrevState),
		cmp.Compare(a.Syscall, b.Syscall),
		cmp.Compare(a.SyscallArg, b.SyscallArg),
		cmp.Compare(a.NextCgroup, b.NextCgroup),
		cmp.Compare(a.PrevCgroup, b.PrevCgroup),
		cmp.Compare(a.PrevStack, b.PrevStack),
		cmp.Compare(a.Interrupt, b.Interrupt),
		cmp.Compare(a.Vec, b.Vec),
		cmp.Compare(a.InterruptBegin, b.InterruptBegin),
		cmp.Compare(a.FromCPU, b.FromCPU),
		cmp.Compare(a.CQ, b.CQ),
		bytes.Compare(a.PrevComm[:], b.PrevComm[:]),
		bytes.Compare(a.NextComm[:], b.NextComm[:]),
	)
}

func compareInterrupt(a, b *interruptRecord) int {
	if c := compareStamp(&a.stamp, &b.stamp); c != 0 {
		return c
	}
	return cmp.Or(
		cmp.Compare(b.Begin, a.Begin), // of two that end together the inner one first
		cmp.Compare(a.cpu, b.cpu),
		cmp.Compare(a.Kind, b.Kind),
		cmp.Compare(a.Vec, b.Vec),
		cmp.Compare(a.Nested, b.Nested),
		cmp.Compare(a.flags, b.flags),
		bytes.Compare(a.Name[:], b.Name[:]),
	)
}

func compareSample(a, b *sampleRecord) int {
	return cmp.Or(
		compareStamp(&a.stamp, &b.stamp),
		cmp.Compare(a.cpu, b.cpu),
		cmp.Compare(a.flags, b.flags),
		cmp.Compare(a.Stack, b.Stack),
		cmp.Compare(a.Period, b.Period),
	)
}

func compareRare(a, b *rareRecord) int {
	if c := compareStamp(&a.stamp, &b.stamp); c != 0 {
		return c
	}
	return cmp.Or(
		cmp.Compare(a.cpu, b.cpu),
		cmp.Compare(a.lossOf, b.lossOf),
		cmp.Compare(a.lossEnd, b.lossEnd),
		cmp.Compare(a.lossCount, b.lossCount),
		cmp.Compare(a.flags, b.flags),
		compareObject(a.object, b.object),
	)
}

func compareObject(a, b *event.Object) int {
	if a == nil || b == nil {
		return trueFirst(a == nil, b == nil)
	}
	if x, y := a.Event == event.ObjectDestroyed, b.Event == event.ObjectDestroyed; x != y {
		return trueFirst(x, y) // its address may be another's at once
	}
	if c := cmp.Compare(a.Event, b.Event); c != 0 {
		return c
	}
	switch {
	case a.QP != nil && b.QP != nil:
		return compareQP(a.QP, b.QP)
	case a.CQ != nil && b.CQ != nil:
		return compareCQ(a.CQ, b.CQ)
	case a.Context != nil && b.Context != nil:
		return cmp.Or(cmp.Compare(a.Context.Addr, b.Context.Addr), cmp.Compare(a.Context.Device, b.Context.Device))
	case a.Task != nil && b.Task != nil:
		return cmp.Or(
			cmp.Compare(a.Task.Event, b.Task.Event),
			cmp.Compare(a.Task.ParentPID, b.Task.ParentPID),
			cmp.Compare(a.Task.State, b.Task.State),
			cmp.Compare(a.Task.Comm, b.Task.Comm),
			compareCall(a.Task.Sleep, b.Task.Sleep),
		)
	}
	return 0
}

func compareCall(a, b *event.SystemCall) int {
	if a == nil || b == nil {
		return trueFirst(a == nil, b == nil)
	}
	return cmp.Or(cmp.Compare(a.Number, b.Number), cmp.Compare(a.Arg, b.Arg))
}

// trueFirst puts true first.
func trueFirst(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

func compareQP(a, b *event.QP) int {
	return cmp.Or(
		cmp.Compare(a.Addr, b.Addr),
		cmp.Compare(a.Num, b.Num),
		cmp.Compare(a.Context, b.Context),
		cmp.Compare(a.SendCQ, b.SendCQ),
		cmp.Compare(a.RecvCQ, b.RecvCQ),
		cmp.Compare(a.SRQ, b.SRQ),
		cmp.Compare(a.Type, b.Type),
		cmp.Compare(a.State, b.State),
		cmp.Compare(a.AttrMask, b.AttrMask),
		cmp.Compare(a.DestNum, b.DestNum),
		cmp.Compare(a.MaxSendWR, b.MaxSendWR),
		cmp.Compare(a.SigAll, b.SigAll),
		cmp.Compare(a.PathMTU, b.PathMTU),
		cmp.Compare(a.Timeout, b.Timeout),
		cmp.Compare(a.RetryCnt, b.RetryCnt),
		cmp.Compare(a.RNRRetry, b.RNRRetry),
		cmp.Compare(a.MinRNRTimer, b.MinRNRTimer),
		cmp.Compare(a.MaxRDAtomic, b.MaxRDAtomic),
		cmp.Compare(a.Port, b.Port),
		cmp.Compare(a.DLID, b.DLID),
		bytes.Compare(a.DGID[:], b.DGID[:]),
	)
}

func compareCQ(a, b *event.CQ) int {
	return cmp.Or(
		cmp.Compare(a.Addr, b.Addr),
		cmp.Compare(a.Context, b.Context),
		cmp.Compare(a.Channel, b.Channel),
		cmp.Compare(a.ChannelFD, b.ChannelFD),
		cmp.Compare(a.CQE, b.CQE),
		cmp.Compare(a.CompVector, b.CompVector),
	)
}
