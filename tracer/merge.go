package tracer

import (
	"math"

	"github.com/rdmatrace/rdmatrace/event"
)

// merge puts events that user space found among the records of a pass over the rings,
// by time: handed on after the pass, or before it, the ones would be as much later than
// the others as records wait in their rings.
type merge struct {
	events []event.Event // by time
	sink   func(*event.Event) error
}

// before makes take hand on what was found before its record.
func (m *merge) before(take func([]byte) error) func([]byte) error {
	if len(m.events) == 0 {
		return take
	}
	return func(raw []byte) error {
		if err := m.until(timeOf(raw)); err != nil {
			return err
		}
		return take(raw)
	}
}

// until hands on what was found before t.
func (m *merge) until(t uint64) error {
	for len(m.events) > 0 && m.events[0].Time < t {
		e := &m.events[0]
		m.events = m.events[1:]
		if err := m.sink(e); err != nil {
			return err
		}
	}
	return nil
}

// rest hands on what is left.
func (m *merge) rest() error { return m.until(math.MaxUint64) }
