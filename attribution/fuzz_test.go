package attribution

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"

	"github.com/rdmatrace/rdmatrace/event"
)

// reader makes events of arbitrary bytes. Names and numbers are few, so that
// they meet each other.
type reader struct{ data []byte }

func (r *reader) byte() byte {
	if len(r.data) == 0 {
		return 0
	}
	b := r.data[0]
	r.data = r.data[1:]
	return b
}

func (r *reader) word() uint64 {
	var b [8]byte
	n := copy(b[:], r.data)
	r.data = r.data[n:]
	return binary.LittleEndian.Uint64(b[:])
}

// near gives a time around t, 0, or now and then any.
func (r *reader) near(t uint64) uint64 {
	switch b := r.byte(); {
	case b < 32:
		return 0
	case b == 255:
		return r.word()
	case b < 128:
		return t - uint64(b)
	default:
		return t + uint64(b) - 128
	}
}

func (r *reader) tid() uint32 { return []uint32{0, worker, helper, third, hog}[r.byte()%5] }

func (r *reader) event(t uint64) event.Event {
	ev := event.Event{
		Time: t, PID: uint32(tapePID + r.byte()%2), TID: r.tid(), Kind: event.Kind(r.byte() % (uint8(event.Kinds) + 1)),
		CPU: uint16(r.byte() % 3), Flags: uint32(r.byte()),
	}
	switch ev.Kind {
	case event.KindWR, event.KindPostEnd, event.KindCompletion, event.KindArm, event.KindCQE, event.KindCQEvent:
		b := r.byte()
		ev.Verb = event.Verb{
			QP: tapeQP + uint64(b%3), QPNum: tapeNum + uint32(b%3), CQ: tapeCQ + uint64(b%2), WRID: uint64(b % 4),
			Begin: r.near(t), End: r.near(t), LastEmpty: r.near(t), LastEmptyTID: r.tid(), HWTime: r.near(t) << (b % 40),
			Call: uint32(r.byte() % 8), Index: uint16(r.byte() % 4), Count: uint16(r.byte() % 4), SendFlags: uint32(r.byte()),
			Bytes: uint32(r.byte()), WQE: uint16(r.byte()), Opcode: r.byte(), Traps: uint16(r.byte() % 4),
		}
		if s := r.byte(); s > 200 {
			ev.Verb.Status, ev.Verb.Result, ev.Verb.BadIndex = uint32(s%14), int32(s%14), int32(s%4)-1
		}
	case event.KindSwitch, event.KindWaking:
		ev.Sched = event.Sched{
			PrevTID: r.tid(), PrevPID: tapePID, NextTID: r.tid(), NextPID: tapePID, PrevState: uint32(r.byte() % 2),
			Syscall: int32(r.byte()) - 1, SyscallArg: uint64(r.byte() % 10),
			Interrupt: event.InterruptKind(r.byte() % 8), Vec: uint32(r.byte()), InterruptBegin: r.near(t), PrevStack: uint64(r.byte() % 4),
			CQ: tapeCQ * uint64(r.byte()%2),
		}
	case event.KindQuota:
	case event.KindMigration:
		ev.Sched.FromCPU = uint16(r.byte() % 4)
	case event.KindSample:
		ev.Sample = event.Sample{Stack: uint64(r.byte() % 4), Period: r.near(t)}
	case event.KindInterrupt:
		ev.IRQ = event.Interrupt{Begin: r.near(t), Kind: event.InterruptKind(r.byte() % 8), Vec: uint32(r.byte())}
	case event.KindLoss:
		ev.Loss = event.Loss{Begin: r.near(t), Count: uint64(r.byte()), Of: event.Kind(r.byte() % 16)}
	default:
		ev.Object = r.object()
	}
	return ev
}

func (r *reader) object() *event.Object {
	b := r.byte()
	o := &event.Object{Event: event.ObjectEvent(b % 5)}
	switch b / 5 % 5 {
	case 0:
		o.QP = &event.QP{
			Addr: tapeQP + uint64(b%3), Num: tapeNum + uint32(b%2), State: uint32(r.byte() % 7), AttrMask: uint32(r.word()),
			SendCQ: tapeCQ, RecvCQ: tapeCQ + uint64(b%2), SRQ: uint64(b % 2), SigAll: r.byte() % 3,
			MaxSendWR: uint32(r.byte() % 8), Timeout: r.byte(), RetryCnt: r.byte(), DLID: uint16(r.byte()), DestNum: uint32(b),
		}
	case 1:
		o.CQ = &event.CQ{Addr: tapeCQ + uint64(b%2), ChannelFD: int32(r.byte()%10) - 1}
	case 2:
		o.Context = &event.DeviceContext{Addr: uint64(b % 2), Device: "mlx5_0"}
	case 3:
		o.Task = &event.Task{Event: event.TaskEvent(r.byte() % 6), State: uint32(b % 2)}
	}
	return o
}

// checkAnything runs events through an engine and its aggregates, and checks
// all that holds for any input whatever.
func checkAnything(t *testing.T, events []event.Event) {
	rec := &recorder{t: t}
	e := newEngine(Config{Watermark: 1000, Cost: event.Cost{TrapNS: 30, InPost: 50, SteppedTrapNS: 90}}, rec)
	whole := New(Config{Watermark: 1000})
	for i := range events {
		e.Add(&events[i])
		whole.Add(&events[i])
	}
	e.close()
	checkBooks(t, e)
	for i := range rec.wrs {
		if m := &rec.wrs[i]; m.status == 0 {
			checkCut(t, m)
		}
	}
	if rec.posts != rec.retires || rec.bytes != 0 {
		t.Fatalf("posts %d, retired %d, bytes left %d", rec.posts, rec.retires, rec.bytes)
	}
	r := whole.Finish(&event.Context{})
	if r.WRs.Posted != r.WRs.Completed+r.WRs.Outstanding+r.WRs.Flushed+r.WRs.Lost+r.WRs.Excluded {
		t.Fatalf("books %+v", r.WRs)
	}
	checkLate(t, &r.Late)
}

func FuzzEngine(f *testing.F) {
	rng := rand.New(rand.NewPCG(1, 8))
	for range 8 {
		data := make([]byte, 4000)
		for i := range data {
			data[i] = byte(rng.Uint32())
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		r := &reader{data}
		var events []event.Event
		for at := uint64(10_000); len(r.data) > 0; {
			at = at + uint64(r.byte()%64) - 4
			events = append(events, r.event(at))
		}
		checkAnything(t, events)
	})
}

// TestHostileOrder: legal histories, shuffled far beyond the watermark and with
// pieces missing that nobody counted, break nothing.
func TestHostileOrder(t *testing.T) {
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 9))
		s := newSim(simConfig{
			seed: seed, qps: 2, depth: 8, target: 6, threads: 2, poller: seed%2 == 0, list: 3, signal: 1 + int(seed%3),
			wqe: seed%5 == 0, wrID: "constant", latency: 500, lazy: 300, fails: 50, resets: true, end: 10_000, knowDepth: true,
		})
		events := s.run()
		for i := range events {
			events[i].Time *= 1000 // far more than the watermark
			j := rng.IntN(i + 1)
			events[i], events[j] = events[j], events[i]
		}
		checkAnything(t, events[:len(events)-rng.IntN(len(events)/2)])
	}
}
