package pollpath

import "fmt"

// The snapshot that is taken at a candidate's hit while it is tried: registers
// in the order of the machine's encoding (x86-64: rax, rcx, rdx, rbx, rsp, rbp,
// rsi, rdi, r8 to r15), then words at the stack pointer and upwards, then words
// below the frame pointer and downwards.
const (
	Registers  = 16
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
	Got    int32  // what it returned
	Hits   [][Snapshot]uint64
}

// Location says where a value lies at the site: index into a Snapshot.
type Location int

func (l Location) String() string {
	switch {
	case l < Registers:
		return "%" + registerNames[l]
	case l < Registers+StackWords:
		return fmt.Sprintf("%d(%%rsp)", 8*(l-Registers))
	default:
		return fmt.Sprintf("-%d(%%rbp)", 8*(l-Registers-StackWords+1))
	}
}

var registerNames = [Registers]string{"rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi",
	"r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15"}

// Learned says where the completion and its queue are found at every hit.
type Learned struct {
	CQ       Location // holds the address of the ibv_cq
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
// the queue and the completion. strides are the registers that the function
// moves from one ibv_wc to the next; they decide when no poll returned two.
func Learn(calls []Call, strides []Location) (Learned, error) {
	completions := 0
	several := false
	single := true // every caller asks for one completion at a time
	for i := range calls {
		c := &calls[i]
		got := max(c.Got, 0)
		if len(c.Hits) != int(got) {
			return Learned{}, fmt.Errorf("poll path: %d hits in a poll that returned %d", len(c.Hits), c.Got)
		}
		completions += int(got)
		several = several || got > 1
		single = single && c.Want == 1
	}
	if completions < leastCompletions || len(calls) < leastCalls {
		return Learned{}, ErrMoreTraffic
	}
	var l Learned
	var ok bool
	if l.CQ, _, ok = constant(calls, allLocations(), func(c *Call, _ int) uint64 { return c.CQ }, 0); !ok {
		return Learned{}, fmt.Errorf("poll path: the queue's address lies nowhere at the site")
	}
	where := allLocations()
	if !several && !single {
		where = strides
	}
	l.WC, l.WCOffset, ok = constant(calls, where, func(c *Call, i int) uint64 { return c.WC + WCSize*uint64(i) }, farthest)
	switch {
	case ok:
		return l, nil
	case !several && !single:
		return Learned{}, ErrMoreTraffic
	default:
		return Learned{}, fmt.Errorf("poll path: the completion's address lies nowhere at the site")
	}
}

func allLocations() []Location {
	all := make([]Location, Snapshot)
	for i := range all {
		all[i] = Location(i)
	}
	return all
}

// constant finds the location whose distance to the wanted value is the same
// at every hit and at most far: the nearest, registers first.
func constant(calls []Call, where []Location, want func(c *Call, i int) uint64, far int64) (Location, int64, bool) {
	best, bestDistance, found := Location(0), int64(0), false
	for _, at := range where {
		d, ok := distance(calls, at, want)
		if !ok || abs(d) > far {
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
