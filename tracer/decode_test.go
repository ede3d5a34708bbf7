package tracer

import (
	"errors"
	"reflect"
	"slices"
	"testing"
	"unsafe"

	"github.com/rdmatrace/rdmatrace/bpf"
	"github.com/rdmatrace/rdmatrace/event"
)

// raw is a record as the kernel writes it.
func raw[T any](r T) []byte {
	return append([]byte(nil), unsafe.Slice((*byte)(unsafe.Pointer(&r)), unsafe.Sizeof(r))...)
}

func header(kind bpf.RdmaRecordKind) bpf.RdmaRecordHeader {
	return bpf.RdmaRecordHeader{Time: 7, Pid: 8, Tid: 9, Kind: uint16(kind), Cpu: 3, Flags: 2}
}

// wrChunk has two work requests, and says that it has so many.
func wrChunk(count uint16) []byte {
	head := bpf.RdmaWrRecord{H: header(bpf.RdmaRecordKindRECORD_WR), Begin: 1, Qp: 2, Stack: 4, QpNum: 5, Call: 6, First: 10, Count: count}
	return slices.Concat(raw(head),
		raw(bpf.RdmaWrEntry{WrId: 3, Bytes: 7, SendFlags: 8, RemoteQpn: 9, NumSge: 11, Wqe: 12, Opcode: 13}),
		raw(bpf.RdmaWrEntry{WrId: 14, Bytes: 15, Flags: event.WRWQEValid}))
}

// samples has a record of every kind.
func samples() map[bpf.RdmaRecordKind][]byte {
	return map[bpf.RdmaRecordKind][]byte{
		bpf.RdmaRecordKindRECORD_WR: wrChunk(2),
		bpf.RdmaRecordKindRECORD_POST_END: raw(bpf.RdmaPostEndRecord{H: header(bpf.RdmaRecordKindRECORD_POST_END),
			Qp: 1, Begin: 2, Call: 3, Result: -4, Count: 70000, BadIndex: -1, Traps: 7}),
		bpf.RdmaRecordKindRECORD_COMPLETION: raw(bpf.RdmaCompletionRecord{H: header(bpf.RdmaRecordKindRECORD_COMPLETION),
			Cq: 1, Begin: 2, LastEmpty: 3, WrId: 4, HwTime: 5, LastEmptyTid: 7, QpNum: 8, Status: 9,
			Opcode: 129, VendorErr: 11, ByteLen: 12, SrcQp: 13, WcFlags: 14, Index: 15, Count: 16, WqeCounter: 17, Traps: 18,
			EmptyPolls: 19}),
		bpf.RdmaRecordKindRECORD_ARM: raw(bpf.RdmaArmRecord{H: header(bpf.RdmaRecordKindRECORD_ARM), Cq: 1}),
		bpf.RdmaRecordKindRECORD_CQE: raw(bpf.RdmaCqeRecord{H: header(bpf.RdmaRecordKindRECORD_CQE),
			Cq: 1, End: 2, WrId: 3, QpNum: 4, Status: 5, Opcode: 129, Ahead: 6}),
		bpf.RdmaRecordKindRECORD_CQ_EVENT: raw(bpf.RdmaCqEventRecord{H: header(bpf.RdmaRecordKindRECORD_CQ_EVENT), Cq: 1}),
		bpf.RdmaRecordKindRECORD_SWITCH: raw(bpf.RdmaSwitchRecord{H: header(bpf.RdmaRecordKindRECORD_SWITCH),
			PrevTid: 1, PrevPid: 2, NextTid: 3, NextPid: 4, PrevState: 5, Syscall: -1, SyscallArg: 7,
			PrevComm: [16]uint8{'a'}, NextComm: [16]uint8{'b'}, NextCgroup: 8, PrevCgroup: 9, PrevStack: 11}),
		bpf.RdmaRecordKindRECORD_QUOTA:     raw(bpf.RdmaQuotaRecord{H: header(bpf.RdmaRecordKindRECORD_QUOTA)}),
		bpf.RdmaRecordKindRECORD_MIGRATION: raw(bpf.RdmaMigrationRecord{H: header(bpf.RdmaRecordKindRECORD_MIGRATION), FromCpu: 10}),
		bpf.RdmaRecordKindRECORD_SAMPLE:    raw(bpf.RdmaSampleRecord{H: header(bpf.RdmaRecordKindRECORD_SAMPLE), Stack: 1, Period: 2}),
		bpf.RdmaRecordKindRECORD_WAKING: raw(bpf.RdmaWakingRecord{H: header(bpf.RdmaRecordKindRECORD_WAKING),
			WakeeTid: 1, WakeePid: 2, Interrupt: 3, Vec: 4, InterruptBegin: 5, WakerComm: [16]uint8{'w'}}),
		bpf.RdmaRecordKindRECORD_INTERRUPT: raw(bpf.RdmaInterruptRecord{H: header(bpf.RdmaRecordKindRECORD_INTERRUPT),
			Begin: 1, Nested: 2, Kind: 3, Vec: 4, Name: [32]uint8{'n'}}),
		bpf.RdmaRecordKindRECORD_QP: raw(bpf.RdmaQpRecord{H: header(bpf.RdmaRecordKindRECORD_QP),
			Qp: 1, Context: 2, SendCq: 3, RecvCq: 4, Srq: 5, QpNum: 6, QpType: 7, State: 8, AttrMask: 9, DestQpNum: 10,
			MaxSendWr: 11, SqSigAll: 2, PathMtu: 5, Timeout: 14, RetryCnt: 7, RnrRetry: 6, MinRnrTimer: 12, MaxRdAtomic: 16,
			PortNum: 1, Dlid: 77, Dgid: [16]uint8{0xfe, 0x80}}),
		bpf.RdmaRecordKindRECORD_CQ: raw(bpf.RdmaCqRecord{H: header(bpf.RdmaRecordKindRECORD_CQ),
			Cq: 1, Context: 2, Channel: 3, ChannelFd: -1, Cqe: 5, CompVector: 6}),
		bpf.RdmaRecordKindRECORD_DEVICE_CONTEXT: raw(bpf.RdmaDeviceContextRecord{
			H: header(bpf.RdmaRecordKindRECORD_DEVICE_CONTEXT), Context: 1, Device: [64]uint8{'m', 'l', 'x', 0xff, 0, 'z'}}),
		bpf.RdmaRecordKindRECORD_TASK: raw(bpf.RdmaTaskRecord{H: header(bpf.RdmaRecordKindRECORD_TASK),
			ParentPid: 1, State: 2, Syscall: 3, SyscallArg: 4, Comm: [16]uint8{'t'}}),
	}
}

func TestDecode(t *testing.T) {
	all := samples()
	verb := func(kind bpf.RdmaRecordKind) event.Verb {
		var e event.Event
		if err := decode(all[kind], &e); err != nil {
			t.Fatal(err)
		}
		if e.Time != 7 || e.PID != 8 || e.TID != 9 || e.CPU != 3 || e.Flags != 2 || e.Kind != kindOf[kind] {
			t.Errorf("header of kind %d: %+v", kind, e)
		}
		return e.Verb
	}
	wr := event.Verb{QP: 2, WRID: 3, Stack: 4, Begin: 1, QPNum: 5, Call: 6, Bytes: 7, SendFlags: 8, RemoteQPN: 9, Index: 10,
		NumSGE: 11, WQE: 12, Opcode: 13}
	if got := verb(bpf.RdmaRecordKindRECORD_WR); got != wr {
		t.Errorf("WR: %+v", got)
	}
	end := event.Verb{QP: 1, Begin: 2, Call: 3, Result: -4, BadIndex: -1, Count: 0xffff, Traps: 7}
	if got := verb(bpf.RdmaRecordKindRECORD_POST_END); got != end {
		t.Errorf("post end: %+v", got)
	}
	completion := event.Verb{CQ: 1, WRID: 4, Begin: 2, LastEmpty: 3, LastEmptyTID: 7, HWTime: 5, QPNum: 8, Bytes: 12,
		RemoteQPN: 13, Status: 9, VendorErr: 11, WCFlags: 14, EmptyPolls: 19, Index: 15, Count: 16, WQE: 17, Traps: 18, Opcode: 129}
	if got := verb(bpf.RdmaRecordKindRECORD_COMPLETION); got != completion {
		t.Errorf("completion: %+v", got)
	}
	cqe := event.Verb{CQ: 1, End: 2, WRID: 3, QPNum: 4, Status: 5, Opcode: 129, Count: 6}
	if got := verb(bpf.RdmaRecordKindRECORD_CQE); got != cqe {
		t.Errorf("CQE: %+v", got)
	}
	if got := verb(bpf.RdmaRecordKindRECORD_ARM); got != (event.Verb{CQ: 1, Traps: 1}) {
		t.Errorf("arm: %+v", got)
	}
	if got := verb(bpf.RdmaRecordKindRECORD_CQ_EVENT); got != (event.Verb{CQ: 1}) {
		t.Errorf("CQ event: %+v", got)
	}
}

func TestDecodeSwitch(t *testing.T) {
	var e event.Event
	if err := decode(samples()[bpf.RdmaRecordKindRECORD_SWITCH], &e); err != nil {
		t.Fatal(err)
	}
	want := event.Sched{PrevTID: 1, PrevPID: 2, NextTID: 3, NextPID: 4, PrevState: 5, Syscall: -1, SyscallArg: 7, PrevComm: event.Comm{'a'},
		NextComm: event.Comm{'b'}, NextCgroup: 8, PrevCgroup: 9, PrevStack: 11}
	if e.Sched != want {
		t.Errorf("%+v", e.Sched)
	}
	if err := decode(samples()[bpf.RdmaRecordKindRECORD_MIGRATION], &e); err != nil {
		t.Fatal(err)
	}
	if e.Kind != event.KindMigration || e.TID != 9 || e.CPU != 3 || e.Sched != (event.Sched{FromCPU: 10}) {
		t.Errorf("%+v", e)
	}
	if err := decode(samples()[bpf.RdmaRecordKindRECORD_SAMPLE], &e); err != nil {
		t.Fatal(err)
	}
	if e.Kind != event.KindSample || e.TID != 9 || e.Sample != (event.Sample{Stack: 1, Period: 2}) {
		t.Errorf("%+v", e)
	}
}

func TestDecodeObjects(t *testing.T) {
	object := func(kind bpf.RdmaRecordKind) event.Object {
		var e event.Event
		if err := decode(samples()[kind], &e); err != nil {
			t.Fatal(err)
		}
		return *e.Object
	}
	qp := event.QP{Addr: 1, Context: 2, SendCQ: 3, RecvCQ: 4, SRQ: 5, Num: 6, Type: 7, State: 8, AttrMask: 9, DestNum: 10,
		MaxSendWR: 11, SigAll: 2, PathMTU: 5, Timeout: 14, RetryCnt: 7, RNRRetry: 6, MinRNRTimer: 12, MaxRDAtomic: 16, Port: 1,
		DLID: 77, DGID: [16]byte{0xfe, 0x80}}
	if o := object(bpf.RdmaRecordKindRECORD_QP); o.Event != event.ObjectModified || *o.QP != qp {
		t.Errorf("QP: %+v %+v", o, o.QP)
	}
	cq := event.CQ{Addr: 1, Context: 2, Channel: 3, ChannelFD: -1, CQE: 5, CompVector: 6}
	if o := object(bpf.RdmaRecordKindRECORD_CQ); *o.CQ != cq {
		t.Errorf("CQ: %+v", o.CQ)
	}
	if o := object(bpf.RdmaRecordKindRECORD_DEVICE_CONTEXT); o.Context.Device != "mlx\uFFFD" {
		t.Errorf("device: %+v", o.Context)
	}
	if o := object(bpf.RdmaRecordKindRECORD_TASK); !reflect.DeepEqual(*o.Task, event.Task{Event: 2, ParentPID: 1, State: 2, Comm: "t", Sleep: &event.SystemCall{Number: 3, Arg: 4}}) {
		t.Errorf("task: %+v", o.Task)
	}
}

// TestDecodeChunk: a record of several work requests is as many events, which differ in
// what is theirs; every other record is one.
func TestDecodeChunk(t *testing.T) {
	var e event.Event
	for kind, r := range samples() {
		if err := decode(r, &e); err != nil {
			t.Fatal(err)
		}
		first := e
		if decodeNext(r, 1, &e) != (kind == bpf.RdmaRecordKindRECORD_WR) {
			t.Errorf("kind %d: the wrong number of events", kind)
		}
		if kind != bpf.RdmaRecordKindRECORD_WR {
			continue
		}
		want := first
		want.Flags = 2 | event.WRWQEValid
		want.Verb = event.Verb{QP: 2, WRID: 14, Stack: 4, Begin: 1, QPNum: 5, Call: 6, Bytes: 15, Index: 11}
		if e != want {
			t.Errorf("second: %+v", e)
		}
		if decodeNext(r, 2, &e) || e != want {
			t.Errorf("there is a third one: %+v", e)
		}
	}
	for _, count := range []uint16{0, 3, 0xffff} {
		if err := decode(wrChunk(count), &e); !errors.Is(err, errShort) {
			t.Errorf("two work requests that are said to be %d: %v", count, err)
		}
	}
}

// TestDecodeShort cuts every kind of record by every number of bytes.
func TestDecodeShort(t *testing.T) {
	for kind, whole := range samples() {
		for n := range len(whole) {
			var e event.Event
			if err := decode(whole[:n], &e); !errors.Is(err, errShort) {
				t.Fatalf("kind %d cut to %d bytes: %v", kind, n, err)
			}
		}
	}
}

func TestDecodeDoesNotAllocate(t *testing.T) {
	var e event.Event
	for kind, r := range samples() {
		allowed := 0.0
		if kind >= bpf.RdmaRecordKindRECORD_QP {
			allowed = 4 // rare: the object is made
		}
		n := testing.AllocsPerRun(100, func() {
			_ = decode(r, &e)
			_ = decodeNext(r, 1, &e)
		})
		if n > allowed {
			t.Errorf("kind %d: %v allocations", kind, n)
		}
	}
}

func FuzzDecode(f *testing.F) {
	for _, r := range samples() {
		f.Add(r)
	}
	f.Add(wrChunk(1))
	f.Add(wrChunk(3))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		var e event.Event
		err := decode(b, &e)
		for n := 1; err == nil && decodeNext(b, n, &e); n++ {
			if e.Kind != event.KindWR || n*int(unsafe.Sizeof(bpf.RdmaWrEntry{})) > len(b) {
				t.Fatalf("event %d of %d bytes, of kind %d", n, len(b), e.Kind)
			}
		}
		if err == nil && (e.Kind == 0 || int(e.Kind) >= event.Kinds) {
			t.Errorf("kind %d without an error", e.Kind)
		}
		if err != nil && !errors.Is(err, errShort) && !errors.Is(err, errKind) {
			t.Error(err)
		}
	})
}

// TestStackRecord takes a record apart as the kernel lays it out: the bytes
// follow the fixed part, beginning at the stack pointer rounded down.
func TestStackRecord(t *testing.T) {
	s, err := newStackKeeper(&sites{})
	if err != nil {
		t.Fatal(err)
	}
	s.stop()
	s.pending = make(chan stackRecord, 1)
	r := bpf.RdmaStackRecord{H: header(bpf.RdmaRecordKindRECORD_STACK), Id: 1, Ip: 2, Sp: 4096*3 + 1000, Size: 2048}
	fixed := unsafe.Offsetof(r.Bytes)
	b := append(raw(r)[:fixed], make([]byte, 16384)...)
	for i := range 2048 {
		b[int(fixed)+i] = byte(i)
	}
	if !s.take(b) || s.dropped != 0 {
		t.Fatal("the record was not taken")
	}
	got := (<-s.pending).snapshot.Stack
	if len(got) != 2048-1000 || got[0] != byte(1000%256) || got[len(got)-1] != byte(2047%256) {
		t.Errorf("%d bytes, first %d", len(got), got[0])
	}
	r.Size = 20000
	if !s.take(append(raw(r)[:fixed], make([]byte, 16384)...)) || s.dropped != 1 {
		t.Error("a record that claims more than it has was taken")
	}
}
