package tracer

import (
	"github.com/rdmatrace/rdmatrace/event"
	"github.com/rdmatrace/rdmatrace/tracer/locate"
)

// found are events for the objects of a process that exist now.
func found(pid int, snap *locate.Snapshot, now uint64) []event.Event {
	var out []event.Event
	add := func(kind event.Kind, o event.Object) {
		o.Event = event.ObjectFound
		out = append(out, event.Event{Time: now, PID: uint32(pid), TID: uint32(pid), Kind: kind, Object: &o})
	}
	for _, c := range snap.Contexts {
		add(event.KindDeviceContext, event.Object{Context: &event.DeviceContext{Addr: c.Addr, Device: c.Device}})
	}
	for _, c := range snap.CQs {
		add(event.KindCQ, event.Object{CQ: &event.CQ{
			Addr: c.Addr, Context: c.Context, Channel: c.Channel, ChannelFD: c.ChannelFD, CQE: c.CQE, CompVector: ^uint32(0),
		}})
	}
	for _, q := range snap.QPs {
		add(event.KindQP, event.Object{QP: &event.QP{
			Addr: q.Addr, Context: q.Context, SendCQ: q.SendCQ, RecvCQ: q.RecvCQ, SRQ: q.SRQ,
			Num: q.Num, Type: q.Type, State: q.State, SigAll: q.SigAll, MaxSendWR: q.MaxSendWR,
		}})
	}
	return out
}

// deliver hands events to sink.
func deliver(events []event.Event, sink func(*event.Event) error) error {
	for i := range events {
		if err := sink(&events[i]); err != nil {
			return err
		}
	}
	return nil
}
