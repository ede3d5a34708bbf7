package attribution

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rdmatrace/rdmatrace/event"
)

// Queues that were armed are counted by vector, as many as there were at a time; the line
// is the one that mlx5 named after the vector.
func TestEventQueues(t *testing.T) {
	tp := newTape()
	at := uint64(1)
	cq := func(what event.ObjectEvent, addr, context uint64, vector uint32) {
		tp.add(event.Event{Time: at, Kind: event.KindCQ, Object: &event.Object{
			Event: what, CQ: &event.CQ{Addr: addr, Context: context, ChannelFD: 7, CompVector: vector}}})
		at++
	}
	arm := func(addr uint64) {
		tp.add(event.Event{Time: at, TID: worker, Kind: event.KindArm, Verb: event.Verb{CQ: addr}})
		at++
	}
	for context, name := range map[uint64]string{0x10: "mlx5_0", 0x20: "mlx5_1", 0x30: "rxe0"} {
		tp.add(event.Event{Time: 1, Kind: event.KindDeviceContext, Object: &event.Object{
			Event: event.ObjectFound, Context: &event.DeviceContext{Addr: context, Device: name}}})
	}
	cq(event.ObjectCreated, 0x100, 0x10, 3)
	arm(0x100)
	cq(event.ObjectDestroyed, 0x100, 0, 0)
	cq(event.ObjectCreated, 0x100, 0x10, 3) // another one at its address
	arm(0x100)
	arm(0x100)
	cq(event.ObjectCreated, 0x110, 0x10, 3)
	arm(0x110)
	cq(event.ObjectCreated, 0x200, 0x10, 4) // polled only
	cq(event.ObjectFound, 0x300, 0x20, vectorUnknown)
	arm(0x300)
	cq(event.ObjectCreated, 0x400, 0x30, 0) // a software device
	arm(0x400)
	cq(event.ObjectCreated, 0x500, 0x40, 1) // of who knows what
	arm(0x500)
	ctx := &event.Context{
		Devices: []event.Device{{Name: "mlx5_0"}, {Name: "mlx5_1"}, {Name: "rxe0", Software: true}},
		IRQs: []event.IRQ{
			{Line: 40, Name: "mlx5_async0@pci:0000:03:00.0", Device: "mlx5_0", CPUs: "0"},
			{Line: 43, Name: "mlx5_comp3@pci:0000:03:00.0", Device: "mlx5_0", CPUs: "5"},
			{Line: 44, Name: "mlx5_comp4@pci:0000:03:00.0", Device: "mlx5_0", CPUs: "6"},
			{Line: 53, Name: "mlx5_comp3", Device: "mlx5_1", CPUs: "7"},
		},
	}
	e := New(Config{})
	for i := range tp.events {
		e.Add(&tp.events[i])
	}
	want := []EventQueues{
		{Vector: 1, Queues: 1},
		{Device: "mlx5_0", Vector: 3, Queues: 2, Line: 43, LineName: "mlx5_comp3@pci:0000:03:00.0", CPUs: "5", Vectors: 2},
		{Device: "mlx5_1", Vector: -1, Queues: 1, Vectors: 1},
	}
	if diff := cmp.Diff(want, e.Finish(ctx).EventQueues); diff != "" {
		t.Error(diff)
	}
}
