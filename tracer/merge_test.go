package tracer

import (
	"encoding/binary"
	"errors"
	"slices"
	"testing"

	"github.com/rdmatrace/rdmatrace/event"
)

// What was found comes before the first record that is younger, whatever else a
// pass has, and once.
func TestMerge(t *testing.T) {
	var got []uint64
	m := merge{
		events: []event.Event{{Time: 2}, {Time: 5}, {Time: 5}, {Time: 9}, {Time: 30}},
		sink:   func(e *event.Event) error { got = append(got, e.Time); return nil },
	}
	take := m.before(func(raw []byte) error {
		if len(raw) >= 8 {
			got = append(got, 1000+binary.NativeEndian.Uint64(raw))
		}
		return nil
	})
	for _, at := range []uint64{1, 4, 5, 6, 20} {
		if err := take(binary.NativeEndian.AppendUint64(nil, at)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(take([]byte{1}), m.rest(), m.rest()); err != nil {
		t.Fatal(err)
	}
	want := []uint64{1001, 2, 1004, 1005, 5, 5, 1006, 9, 1020, 30}
	if !slices.Equal(got, want) {
		t.Errorf("%v, not %v", got, want)
	}
}

// An error of the sink ends the pass.
func TestMergeFails(t *testing.T) {
	failure := errors.New("no")
	m := merge{events: []event.Event{{Time: 2}}, sink: func(*event.Event) error { return failure }}
	if err := m.before(func([]byte) error { return nil })(binary.NativeEndian.AppendUint64(nil, 3)); err != failure {
		t.Errorf("%v", err)
	}
}

// At the end of the window all is handed on that was found in it, and nothing later.
func TestMergeUntil(t *testing.T) {
	var got []uint64
	m := merge{
		events: []event.Event{{Time: 2}, {Time: 7}, {Time: 8}},
		sink:   func(e *event.Event) error { got = append(got, e.Time); return nil },
	}
	const end = 7
	if err := m.until(end + 1); err != nil || !slices.Equal(got, []uint64{2, 7}) {
		t.Errorf("%v, %v", got, err)
	}
}
