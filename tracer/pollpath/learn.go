package pollpath

import (
	"fmt"
	"slices"
)

// The snapshot that is taken at a candidate's hit while it is tried: registers
// in the order of the machine's encoding (x86-64: rax, rcx, rdx, rbx, rsp, rbp,
// rsi, rdi, r8 to r15, the rest unused; arm64: x0 to x30, sp), then words at the stack pointer and upwards, then words
// below the frame pointer and downwards.
const (
	Registers  = 32
	StackWords = 24
	FrameWords = 24
	Snapshot   = Registers + StackWords + FrameWords
)

// WCSize is sizeof(struct ibv_wc), the stride of a poll's array.
const WCSize = 48

// Call is one poll that was observed whole: by its entry, by its return, and
// by the candidate's hits in between.
type Call struct {
	CQ, WC uint64 // the poll's first and third argument
	Want   int32  // its second
	Got    int32  // completions that it returned; negative: it failed
	Hits   [][Snapshot]uint64
}

// Location says where a value lies at the site: index into a Snapshot.
type Location int

// String numbers a register as the machine's encoding does: r3 is rbx, or x3.
func (l Location) String() string {
	switch {
	case l < Registers:
		return fmt.Sprintf("r%d", int(l))
	case l < Registers+StackWords:
		return fmt.Sprintf("%d(sp)", 8*(l-Registers))
	default:
		return fmt.Sprintf("-%d(fp)", 8*(l-Registers-StackWords+1))
	}
}

// Learned says where the completion and its queue are found at every hit.
type Learned struct {
	CQ       Location // holds the address of the ibv_cq, once CQOffset is added
	CQOffset int64
	WC       Location // holds the address of the ibv_wc, once WCOffset is added
	WCOffset int64
}

// Least evidence before a candidate is believed.
const (
	leastCompletions = 16
	leastCalls       = 8
	farthest         = 4096 // an ibv_wc lies no farther from what points to it
)

// ErrMoreTraffic: nothing contradicts the candidate, but too little was seen.
var ErrMoreTraffic = fmt.Errorf("too few completions were seen to confirm the path that consumes them")

// Learn confirms a candidate against observed polls: exactly one hit for every
// completion and none without, and one place each, the same at every hit, for
// the queue and the completion. Of the candidate its Strides decide where the
// completion is when no poll returned two, and its Shifts how far from the
// queue a register may point that is taken for it.
func Learn(calls []Call, c Candidate) (Learned, error) {
	l, err := LearnCurrent(calls, c)
	if err != nil {
		return Learned{}, err
	}
	several := false
	single := true // every caller asks for one completion at a time
	for i := range calls {
		several = several || calls[i].Got > 1
		single = single && calls[i].Want == 1
	}
	where := everywhere
	if !several && !single {
		where = c.Strides
	}
	var ok bool
	l.WC, l.WCOffset, ok = constant(calls, where, func(c *Call, i int) uint64 { return c.WC + WCSize*uint64(i) },
		func(d int64) bool { return abs(d) <= farthest })
	switch {
	case ok:
		return l, nil
	case !several && !single:
		return Learned{}, ErrMoreTraffic
	default:
		return Learned{}, fmt.Errorf("poll path: the completion's address lies nowhere at the site")
	}
}

// LearnCurrent is Learn for polls that make a completion the current one of its
// queue: only the queue has to be found.
func LearnCurrent(calls []Call, c Candidate) (l Learned, err error) {
	completions := 0
	for i := range calls {
		got := max(calls[i].Got, 0)
		if len(calls[i].Hits) != int(got) {
			return l, fmt.Errorf("poll path: %d hits in a poll that returned %d", len(calls[i].Hits), calls[i].Got)
		}
		completions += int(got)
	}
	if completions < leastCompletions || len(calls) < leastCalls {
		return l, ErrMoreTraffic
	}
	var ok bool
	if l.CQ, l.CQOffset, ok = queue(calls, c.Shifts); !ok {
		return l, fmt.Errorf("poll path: the queue's address lies nowhere at the site")
	}
	return l, nil
}

// registers and everywhere are the locations, in their order.
var (
	everywhere = locations(Snapshot)
	registers  = everywhere[:Registers]
)

func locations(n int) []Location {
	all := make([]Location, n)
	for i := range all {
		all[i] = Location(i)
	}
	return all
}

// queue finds where the CQ's address is. A function may keep only that of a
// member of the CQ, such as its lock: that is believed where the function adds
// just as much to something. What lies on the stack comes last, as a caller's
// register may have been saved there that holds the address by chance.
func queue(calls []Call, shifts []int64) (Location, int64, bool) {
	want := func(c *Call, _ int) uint64 { return c.CQ }
	exact := func(d int64) bool { return d == 0 }
	shifted := func(d int64) bool { return slices.Contains(shifts, -d) }
	for _, try := range []struct {
		where   []Location
		allowed func(int64) bool
	}{{registers, exact}, {registers, shifted}, {everywhere, exact}} {
		if at, d, ok := constant(calls, try.where, want, try.allowed); ok {
			return at, d, true
		}
	}
	return 0, 0, false
}

// constant finds the location whose distance to the wanted value is the same
// at every hit, and allowed: the nearest, registers first.
func constant(calls []Call, where []Location, want func(c *Call, i int) uint64, allowed func(int64) bool) (Location, int64, bool) {
	best, bestDistance, found := Location(0), int64(0), false
	for _, at := range where {
		d, ok := distance(calls, at, want)
		if !ok || !allowed(d) {
			continue
		}
		register, bestRegister := at < Registers, best < Registers
		if !found || register == bestRegister && abs(d) < abs(bestDistance) {
			best, bestDistance, found = at, d, true
		}
	}
	return best, bestDistance, found
}

func distance(calls []Call, at Location, want func(c *Call, i int) uint64) (int64, bool) {
	var d int64
	first := true
	for i := range calls {
		c := &calls[i]
		for h := range c.Hits {
			x := int64(want(c, h) - c.Hits[h][at])
			if first {
				d, first = x, false
			}
			if x != d {
				return 0, false
			}
		}
	}
	return d, !first
}

func abs(x int64) int64 {
	if x < 0 {
		return -x
	}
	return x
}
