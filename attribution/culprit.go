package attribution

import "github.com/rdmatrace/rdmatrace/event"

// culpritKind says what a culprit's fields mean.
type culpritKind uint8

const (
	nobody         culpritKind = iota
	culpritTask                // id is a thread id, pid its thread group, name its comm
	culpritIRQ                 // id is the line, name its action
	culpritSoftirq             // id is the softirq number
	culpritTimer               // the local timer
	culpritIPI                 // id is the vector
	culpritSyscall             // id is the system call number
	culpritIdle                // the CPU that took the interrupt was idle
)

// culprit names who was behind a segment, without a string.
type culprit struct {
	kind    culpritKind
	id, pid uint32
	cgroup  uint64
	name    [16]byte
	chain   *event.Chain // what led to it; nil: nothing is known
	told    bool         // it told the completion queue's event
}

// home is the cgroup that it was in, 0: unknown or nobody's.
func (c *culprit) home() uint64 {
	if c == nil {
		return 0
	}
	return c.cgroup
}

// isSame says that two name the same culprit; nil is nobody.
func isSame(a, b *culprit) bool { return a == b || a != nil && b != nil && *a == *b }

// culpritSet gives out culprits that are never written again, so that segments
// point to them: most have none, and all are copied a few times. Those met lately
// are there once, at one of two places that follow from the thread, line or call.
type culpritSet struct{ recent [1 << culpritBits][2]*culprit }

const culpritBits = 7

// keep c; nil if it is nobody.
func (s *culpritSet) keep(c culprit) *culprit {
	if c.kind == nobody {
		return nil
	}
	// The top bits of a product with an odd number depend on all of the id's.
	pair := &s.recent[(c.id+uint32(c.kind)<<16)*0x9e3779b1>>(32-culpritBits)]
	for _, kept := range pair {
		if kept != nil && *kept == c {
			return kept
		}
	}
	fresh := new(culprit) // and not &c, which would put each c on the heap
	*fresh = c
	pair[1], pair[0] = pair[0], fresh
	return fresh
}
