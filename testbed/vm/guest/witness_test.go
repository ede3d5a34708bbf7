package guest

import (
	"strings"
	"testing"

	"github.com/rdmatrace/rdmatrace/testbed/witness"
)

// watching is the kernel's own tracer, twice: its instances are called at each
// tracepoint before and after rdmatrace, which is in between by its clock. In an
// emulated guest a record takes 2 to 12 us, and the more the colder the CPU's
// caches, so one of them alone is off by that much at each end of an interval.
type watching struct{ recorders []*witness.Recorder }

// watch puts the first one to its place, for threads of a program.
func watch(t *testing.T, tids ...int) *watching {
	t.Helper()
	w := &watching{}
	w.place(t, "before", tids)
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

// record puts the second one behind rdmatrace, which is at its place by now, and
// has both begin.
func (w *watching) record(t *testing.T, tids ...int) {
	t.Helper()
	w.place(t, "after", tids)
	for _, r := range w.recorders {
		if err := r.Record(); err != nil {
			t.Fatal(err)
		}
	}
}

// witnesses are what they recorded.
type witnesses []*witness.Recording

func (w *watching) result(t *testing.T) (out witnesses) {
	t.Helper()
	for i, r := range w.recorders {
		text, err := r.Text()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { keepText(t, [...]string{".before", ".after"}[i], text) })
		seen, err := witness.Read(strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, seen)
	}
	return out
}

// between is the mean of what they say.
func (w witnesses) between(says func(*witness.Recording) uint64) float64 {
	return float64(says(w[0])+says(w[1])) / 2
}
