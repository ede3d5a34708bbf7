package tracer

import (
	"sync"

	"github.com/rdmatrace/rdmatrace/bpf"
	"github.com/rdmatrace/rdmatrace/event"
)

// decodeChain gives what led to a waker, and when the interrupts that alone led
// to the wakeup began.
func decodeChain(r *bpf.RdmaWakingRecord) (*event.Chain, uint64) {
	var c event.Chain
	begin := uint64(0)
	if r.Interrupt != uint32(event.InterruptNone) {
		begin = r.InterruptBegin
	}
	n := min(int(r.Links), len(c.Links))
	c.N = uint8(n)
	alone := begin != 0
	for i := n - 1; i >= 0; i-- {
		from, to := &r.Before[i], &c.Links[i]
		to.Kind, to.Name = event.InterruptKind(from.Kind), from.Name
		alone = alone && to.Kind != event.InterruptNone && from.Begin != 0
		if to.Kind != event.InterruptNone { // a thread's number says nothing that its name does not
			to.Vec, to.Name = from.Vec, event.Comm{}
		}
		if alone {
			begin = min(begin, from.Begin)
		}
	}
	if n == 0 {
		return nil, 0
	}
	return chains.intern(&c), begin
}

// chains are few, and the same again and again: events share them.
var chains = chainTable{known: map[event.Chain]*event.Chain{}}

// chainTable holds each chain once.
type chainTable struct {
	mu    sync.Mutex
	known map[event.Chain]*event.Chain
}

// chainsMost are shared; a machine that has more gets the others one by one.
const chainsMost = 4096

func (t *chainTable) intern(c *event.Chain) *event.Chain {
	t.mu.Lock()
	defer t.mu.Unlock()
	shared := t.known[*c]
	if shared == nil {
		of := *c
		shared = &of
		if len(t.known) < chainsMost {
			t.known[of] = shared
		}
	}
	return shared
}
