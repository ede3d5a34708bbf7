package attribution

import (
	"math"
	"testing"
)

// A thread that drives several queue pairs, all of which are stuck now and then for a
// reason of their own, on a port that is busy a good part of the time: those that are
// stuck do not wait for the port, and teach nothing of its rate, though more of the
// others' bytes come and go the longer they are stuck.
func TestStallsOfAllQueuePairs(t *testing.T) {
	const every, stuck, size = 20, 1_000_000, 4096
	for _, perByte := range []float64{0.08, 0.8, 2} {
		path := newSimPath(3_000, perByte)
		path.jitter = 500
		var queues []*simQueue
		for num := range uint32(4) {
			queues = append(queues, &simQueue{
				qp: testQP(1 + num), wrs: 4000, depth: 4, size: fixed(size), think: 1_000 + 500*uint64(num),
				late: func(i int) uint64 {
					if i%every == every-1 {
						return stuck
					}
					return 0
				},
			})
		}
		r := splitAll(t, path.run(queues...))
		right, injected := 0, 0
		for _, w := range r.wrs {
			if w.m.index%every != every-1 || w.parts.causes[WireUnsplit] > 0 {
				continue
			}
			injected++
			// A WR may really have waited for those in front of it first.
			above := w.parts.causes[Excess] + w.parts.causes[RNR] + w.parts.causes[Retransmit]
			if math.Abs(float64(above)-stuck) < stuck/20 {
				right++
			} else if injected-right < 5 {
				t.Logf("WR %d: %d ns above the floor, %v", w.m.index, above, w.parts.causes)
			}
		}
		if injected < 4*4000/every*9/10 || right < injected*98/100 {
			t.Errorf("%v ns a byte: %d of %d stalls found with the right amount", perByte, right, injected)
			r.blame(t)
		}
	}
}
