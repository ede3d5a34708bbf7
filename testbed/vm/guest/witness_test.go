package guest

import (
	"math"
	"strings"
	"testing"

	"github.com/rdmatrace/rdmatrace/testbed/witness"
)

// watching is the kernel's own tracer, five times: three of its instances are called at
// each tracepoint before rdmatrace, two after. In an emulated guest a record takes 1 to
// 10 us, and the first one at a handler's begin, in cold caches, up to 30: so each sees
// handlers shorter than the one before it, and rdmatrace those before itself.
type watching struct{ recorders []*witness.Recorder }

// places of the recorders, in the order in which they are called.
var places = [...]string{"first", "second", "before", "after", "last"}

// before is the place in front of rdmatrace.
const before = 2

// watch puts those before rdmatrace to their places, for threads of a program.
func watch(t *testing.T, tids ...int) *watching {
	t.Helper()
	w := &watching{}
	for _, place := range places[:before+1] {
		w.place(t, place, tids)
	}
	return w
}

func (w *watching) place(t *testing.T, name string, tids []int) {
	t.Helper()
	r, err := witness.Place("witness-"+name, tids...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Remove(); err != nil {
			t.Error(err)
		}
	})
	w.recorders = append(w.recorders, r)
}

// record puts the others behind rdmatrace, which is at its place by now, and has all
// begin.
func (w *watching) record(t *testing.T, tids ...int) {
	t.Helper()
	for _, place := range places[before+1:] {
		w.place(t, place, tids)
	}
	for _, r := range w.recorders {
		if err := r.Record(); err != nil {
			t.Fatal(err)
		}
	}
}

// stop ends the recording.
func (w *watching) stop(t *testing.T) {
	t.Helper()
	for _, r := range w.recorders {
		if err := r.Stop(); err != nil {
			t.Fatal(err)
		}
	}
}

// result is what they recorded, in the order of their places.
func (w *watching) result(t *testing.T) (out []*witness.Recording) {
	t.Helper()
	for i, r := range w.recorders {
		text, err := r.Text()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { keepText(t, "."+places[i], text) })
		seen, err := witness.Read(strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, seen)
	}
	return out
}

// stoodNS is by how much two recorders that stand next to each other cannot differ on
// a stretch, unless the host took the emulated CPU away between them.
const stoodNS = 1_000_000

// here is what they say of rdmatrace's place, ns. It is next to that of the one before it;
// of which is taken off what a single record adds to a sum, as two tell that stand next to
// each other in caches that another has warmed: half of what those in front of rdmatrace
// differ by and half of what those behind do, where records take less.
//
// What lies between rdmatrace and those behind it is of no use: at a handler's end it
// writes its record, 5 to 25 us in an emulated guest, and at its begin it does not.
//
// stood is for how long the host was seen to take the CPU away between recorders.
func (j *judgement) here(says func(*witness.Recording, *stretch) uint64) (ns, stood float64) {
	for i := range j.parts {
		var said [len(places)]float64
		for place, r := range j.truth {
			said[place] = float64(says(r, &j.parts[i]))
		}
		ns += said[before]
		for place := range said[1:] {
			off := said[place] - said[place+1]
			switch {
			case place == 0: // what comes later has both at once
			case math.Abs(off) > stoodNS:
				stood += math.Abs(off)
			case place == before-1 || place == before+1:
				ns -= off / 2
			}
		}
	}
	return ns, stood
}
