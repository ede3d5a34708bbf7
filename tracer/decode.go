package tracer

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"unsafe"

	"github.com/rdmatrace/rdmatrace/bpf"
	"github.com/rdmatrace/rdmatrace/event"
)

var (
	errShort = errors.New("record is shorter than its kind")
	errKind  = errors.New("record of an unknown kind")
)

// load copies the front of raw into a record of the kernel's layout; false if
// raw is too short.
func load[T any](raw []byte, into *T) bool {
	size := int(unsafe.Sizeof(*into))
	if len(raw) < size {
		return false
	}
	copy(unsafe.Slice((*byte)(unsafe.Pointer(into)), size), raw)
	return true
}

// decodeHeader reads what every record begins with.
func decodeHeader(raw []byte, h *bpf.RdmaRecordHeader) error {
	if !load(raw, h) {
		return errShort
	}
	return nil
}

// decode turns a record into e, all of whose fields it sets. Of one that is more
// than an event e is the first: decodeNext makes the others. Records that are no
// events (stacks, libraries) are errKind here: the reader takes them first.
func decode(raw []byte, e *event.Event) error {
	var h bpf.RdmaRecordHeader
	if err := decodeHeader(raw, &h); err != nil {
		return err
	}
	if int(h.Kind) >= len(decoders) || decoders[h.Kind] == nil {
		return fmt.Errorf("%w: %d", errKind, h.Kind)
	}
	*e = event.Event{
		Time: h.Time, PID: h.Pid, TID: h.Tid, CPU: h.Cpu, Flags: h.Flags,
		Kind: kindOf[h.Kind],
	}
	if !decoders[h.Kind](raw, e) {
		return errShort
	}
	return nil
}

// kindOf says which event a kind of record becomes; 0: none.
var kindOf = [bpf.RdmaRecordKindRECORD_KINDS]event.Kind{
	bpf.RdmaRecordKindRECORD_WR:             event.KindWR,
	bpf.RdmaRecordKindRECORD_POST_END:       event.KindPostEnd,
	bpf.RdmaRecordKindRECORD_COMPLETION:     event.KindCompletion,
	bpf.RdmaRecordKindRECORD_ARM:            event.KindArm,
	bpf.RdmaRecordKindRECORD_CQE:            event.KindCQE,
	bpf.RdmaRecordKindRECORD_CQ_EVENT:       event.KindCQEvent,
	bpf.RdmaRecordKindRECORD_SWITCH:         event.KindSwitch,
	bpf.RdmaRecordKindRECORD_QUOTA:          event.KindQuota,
	bpf.RdmaRecordKindRECORD_MIGRATION:      event.KindMigration,
	bpf.RdmaRecordKindRECORD_SAMPLE:         event.KindSample,
	bpf.RdmaRecordKindRECORD_WAKING:         event.KindWaking,
	bpf.RdmaRecordKindRECORD_INTERRUPT:      event.KindInterrupt,
	bpf.RdmaRecordKindRECORD_QP:             event.KindQP,
	bpf.RdmaRecordKindRECORD_CQ:             event.KindCQ,
	bpf.RdmaRecordKindRECORD_DEVICE_CONTEXT: event.KindDeviceContext,
	bpf.RdmaRecordKindRECORD_TASK:           event.KindTask,
}

// decoders fill the part of an event; false: the record is too short.
var decoders = [bpf.RdmaRecordKindRECORD_KINDS]func([]byte, *event.Event) bool{
	bpf.RdmaRecordKindRECORD_WR:             decodeWR,
	bpf.RdmaRecordKindRECORD_POST_END:       decodePostEnd,
	bpf.RdmaRecordKindRECORD_COMPLETION:     decodeCompletion,
	bpf.RdmaRecordKindRECORD_ARM:            decodeArm,
	bpf.RdmaRecordKindRECORD_CQE:            decodeCQE,
	bpf.RdmaRecordKindRECORD_CQ_EVENT:       decodeCQEvent,
	bpf.RdmaRecordKindRECORD_SWITCH:         decodeSwitch,
	bpf.RdmaRecordKindRECORD_QUOTA:          func([]byte, *event.Event) bool { return true }, // its header says all
	bpf.RdmaRecordKindRECORD_MIGRATION:      decodeMigration,
	bpf.RdmaRecordKindRECORD_SAMPLE:         decodeSample,
	bpf.RdmaRecordKindRECORD_WAKING:         decodeWaking,
	bpf.RdmaRecordKindRECORD_INTERRUPT:      decodeInterrupt,
	bpf.RdmaRecordKindRECORD_QP:             decodeQP,
	bpf.RdmaRecordKindRECORD_CQ:             decodeCQ,
	bpf.RdmaRecordKindRECORD_DEVICE_CONTEXT: decodeDeviceContext,
	bpf.RdmaRecordKindRECORD_TASK:           decodeTask,
}

// decodeNext turns e, the event before in a record that decode took, into its
// event number i, from 0; false: it has no more.
func decodeNext(raw []byte, i int, e *event.Event) bool {
	var r bpf.RdmaWrRecord
	return e.Kind == event.KindWR && load(raw, &r) && i < int(r.Count) && decodeEntry(raw, &r, i, e)
}

func decodeWR(raw []byte, e *event.Event) bool {
	var r bpf.RdmaWrRecord
	const entry = int(unsafe.Sizeof(bpf.RdmaWrEntry{}))
	if !load(raw, &r) || r.Count == 0 || len(raw) < int(unsafe.Sizeof(r))+int(r.Count)*entry {
		return false
	}
	e.Verb = event.Verb{QP: r.Qp, Stack: r.Stack, Begin: r.Begin, QPNum: r.QpNum, Call: r.Call}
	return decodeEntry(raw, &r, 0, e)
}

// decodeEntry sets what the work requests of a record differ in.
func decodeEntry(raw []byte, r *bpf.RdmaWrRecord, i int, e *event.Event) bool {
	var w bpf.RdmaWrEntry
	if !load(raw[unsafe.Sizeof(*r)+uintptr(i)*unsafe.Sizeof(w):], &w) {
		return false
	}
	e.Flags = r.H.Flags | uint32(w.Flags)
	v := &e.Verb
	v.WRID, v.Bytes, v.SendFlags, v.RemoteQPN = w.WrId, w.Bytes, w.SendFlags, w.RemoteQpn
	v.NumSGE, v.WQE, v.Opcode, v.Index = w.NumSge, w.Wqe, w.Opcode, r.First+uint16(i)
	return true
}

func decodePostEnd(raw []byte, e *event.Event) bool {
	var r bpf.RdmaPostEndRecord
	if !load(raw, &r) {
		return false
	}
	e.Verb = event.Verb{
		QP: r.Qp, Begin: r.Begin, Call: r.Call, Result: r.Result, BadIndex: r.BadIndex,
		Count: clamp16(r.Count), Traps: clamp16(r.Traps),
	}
	return true
}

func decodeCompletion(raw []byte, e *event.Event) bool {
	var r bpf.RdmaCompletionRecord
	if !load(raw, &r) {
		return false
	}
	e.Verb = event.Verb{
		CQ: r.Cq, WRID: r.WrId, Begin: r.Begin, LastEmpty: r.LastEmpty, LastEmptyTID: r.LastEmptyTid,
		HWTime: r.HwTime, QPNum: r.QpNum, Bytes: r.ByteLen, RemoteQPN: r.SrcQp, Status: r.Status, VendorErr: r.VendorErr,
		WCFlags: r.WcFlags, EmptyPolls: r.EmptyPolls, Index: r.Index, Count: r.Count, WQE: r.WqeCounter,
		Traps: r.Traps, Opcode: uint8(r.Opcode), Entry: r.Entry,
	}
	return true
}

func decodeArm(raw []byte, e *event.Event) bool {
	var r bpf.RdmaArmRecord
	if !load(raw, &r) {
		return false
	}
	e.Verb.CQ, e.Verb.Traps = r.Cq, 1
	return true
}

func decodeCQE(raw []byte, e *event.Event) bool {
	var r bpf.RdmaCqeRecord
	if !load(raw, &r) {
		return false
	}
	e.Verb = event.Verb{CQ: r.Cq, End: r.End, WRID: r.WrId, QPNum: r.QpNum, Status: r.Status, Opcode: uint8(r.Opcode),
		Count: clamp16(r.Ahead), Entry: r.Entry, Entries: r.Entries}
	return true
}

func decodeCQEvent(raw []byte, e *event.Event) bool {
	var r bpf.RdmaCqEventRecord
	if !load(raw, &r) {
		return false
	}
	e.Verb.CQ = r.Cq
	return true
}

func decodeSwitch(raw []byte, e *event.Event) bool {
	var r bpf.RdmaSwitchRecord
	if !load(raw, &r) {
		return false
	}
	e.Sched = event.Sched{
		PrevTID: r.PrevTid, PrevPID: r.PrevPid, NextTID: r.NextTid, NextPID: r.NextPid, PrevState: r.PrevState,
		Syscall: r.Syscall, SyscallArg: r.SyscallArg, PrevComm: r.PrevComm, NextComm: r.NextComm,
		NextCgroup: r.NextCgroup, PrevCgroup: r.PrevCgroup, PrevStack: r.PrevStack,
	}
	return true
}

func decodeMigration(raw []byte, e *event.Event) bool {
	var r bpf.RdmaMigrationRecord
	if !load(raw, &r) {
		return false
	}
	e.Sched.FromCPU = uint16(r.FromCpu)
	return true
}

func decodeSample(raw []byte, e *event.Event) bool {
	var r bpf.RdmaSampleRecord
	if !load(raw, &r) {
		return false
	}
	e.Sample = event.Sample{Stack: r.Stack, Period: r.Period}
	return true
}

func decodeWaking(raw []byte, e *event.Event) bool {
	var r bpf.RdmaWakingRecord
	if !load(raw, &r) {
		return false
	}
	e.Sched = event.Sched{
		NextTID: r.WakeeTid, NextPID: r.WakeePid, PrevComm: r.WakerComm,
		Interrupt: event.InterruptKind(r.Interrupt), Vec: r.Vec, InterruptBegin: r.InterruptBegin,
	}
	e.Sched.Chain, e.Sched.ChainBegin = decodeChain(&r)
	e.Sched.IdleSince, e.Sched.CQ = r.IdleSince, r.Cq
	return true
}

func decodeInterrupt(raw []byte, e *event.Event) bool {
	var r bpf.RdmaInterruptRecord
	if !load(raw, &r) {
		return false
	}
	e.IRQ = event.Interrupt{
		Begin: r.Begin, Nested: r.Nested, Kind: event.InterruptKind(r.Kind), Vec: r.Vec, Name: r.Name,
	}
	return true
}

func decodeQP(raw []byte, e *event.Event) bool {
	var r bpf.RdmaQpRecord
	if !load(raw, &r) {
		return false
	}
	e.Object = &event.Object{Event: event.ObjectEvent(r.H.Flags), QP: &event.QP{
		Addr: r.Qp, Context: r.Context, SendCQ: r.SendCq, RecvCQ: r.RecvCq, SRQ: r.Srq,
		Num: r.QpNum, Type: r.QpType, State: r.State, AttrMask: r.AttrMask, DestNum: r.DestQpNum, MaxSendWR: r.MaxSendWr,
		SigAll: r.SqSigAll, PathMTU: r.PathMtu, Timeout: r.Timeout, RetryCnt: r.RetryCnt, RNRRetry: r.RnrRetry,
		MinRNRTimer: r.MinRnrTimer, MaxRDAtomic: r.MaxRdAtomic, Port: r.PortNum, DLID: r.Dlid, DGID: r.Dgid,
	}}
	return true
}

func decodeCQ(raw []byte, e *event.Event) bool {
	var r bpf.RdmaCqRecord
	if !load(raw, &r) {
		return false
	}
	e.Object = &event.Object{Event: event.ObjectEvent(r.H.Flags), CQ: &event.CQ{
		Addr: r.Cq, Context: r.Context, Channel: r.Channel, ChannelFD: r.ChannelFd, CQE: r.Cqe, CompVector: r.CompVector,
	}}
	return true
}

func decodeDeviceContext(raw []byte, e *event.Event) bool {
	var r bpf.RdmaDeviceContextRecord
	if !load(raw, &r) {
		return false
	}
	e.Object = &event.Object{Event: event.ObjectEvent(r.H.Flags), Context: &event.DeviceContext{
		Addr: r.Context, Device: cstring(r.Device[:]),
	}}
	return true
}

func decodeTask(raw []byte, e *event.Event) bool {
	var r bpf.RdmaTaskRecord
	if !load(raw, &r) {
		return false
	}
	task := &event.Task{
		Event: event.TaskEvent(r.H.Flags), ParentPID: r.ParentPid, State: r.State, Comm: cstring(r.Comm[:]),
	}
	if r.Syscall >= 0 {
		task.Sleep = &event.SystemCall{Number: r.Syscall, Arg: r.SyscallArg}
	}
	e.Object = &event.Object{Event: 0, Task: task}
	return true
}

// cstring is b up to its first NUL, made valid UTF-8: anybody may set names.
func cstring(b []byte) string {
	if i := bytes.IndexByte(b, 0); i >= 0 {
		b = b[:i]
	}
	return strings.ToValidUTF8(string(b), "\uFFFD")
}

func clamp16(v uint32) uint16 { return uint16(min(v, 0xffff)) }
