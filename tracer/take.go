package tracer

import (
	"github.com/rdmatrace/rdmatrace/bpf"
	"github.com/rdmatrace/rdmatrace/event"
)

// take returns a function that decodes a record and passes its events on.
func (t *Tracer) take(sink func(*event.Event) error) func([]byte) error {
	e := new(event.Event)
	return func(raw []byte) error {
		if !isEvent(recordKind(raw)) && (t.stacks.take(raw) || t.targets.work.noteRecord(raw)) {
			return nil
		}
		if err := decode(raw, e); err != nil {
			t.undecodable++
			return nil
		}
		for i := 1; ; i++ {
			t.watch(e)
			if err := sink(e); err != nil {
				return err
			}
			if !decodeNext(raw, i, e) {
				return nil
			}
		}
	}
}

// isEvent reports whether records of a kind are events.
func isEvent(kind bpf.RdmaRecordKind) bool { return int(kind) < len(kindOf) && kindOf[kind] != 0 }

// watch takes what concerns the tracer itself from an event.
func (t *Tracer) watch(e *event.Event) {
	t.stacks.threads.resolve(e)
	t.targets.work.note(e)
	t.lines.watch(e)
	t.cgroups.watch(e)
	if e.Object == nil { // those are told of with the gate closed, too
		t.latest = max(t.latest, e.Time)
	}
}
