package attribution

import "testing"

// Two that take turns cost nothing, wherever their numbers put them.
func TestCulpritsAreKept(t *testing.T) {
	var s culpritSet
	for other := range uint32(2000) {
		a, b := culprit{kind: culpritTask, id: 5}, culprit{kind: culpritTask, id: 6 + other}
		s.keep(a)
		s.keep(b)
		if n := testing.AllocsPerRun(10, func() { s.keep(a); s.keep(b) }); n > 0 {
			t.Fatalf("threads 5 and %d: %v allocations", b.id, n)
		}
	}
	if s.keep(culprit{}) != nil {
		t.Error("nobody is somebody")
	}
}
