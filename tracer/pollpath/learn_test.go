package pollpath

import (
	"errors"
	"testing"
)

const (
	rbx = Location(3)
	r12 = Location(12)
	r13 = Location(13)
)

// mlx5Calls are polls of the shape of libmlx5's: r12 holds the queue, r13 has
// moved on to the next ibv_wc.
func mlx5Calls(n int, want int32, got func(i int) int32) []Call {
	calls := make([]Call, n)
	for i := range calls {
		c := Call{CQ: 0x7f0000001000, WC: 0x7ffc00002000 + 64*uint64(i%3), Want: want, Got: got(i)}
		for k := range max(c.Got, 0) {
			var s [Snapshot]uint64
			s[r12] = c.CQ
			s[r13] = c.WC + WCSize*uint64(k+1)
			s[0] = uint64(i * 7919) // noise
			s[Registers+2] = c.WC   // the argument, spilt: right only for the first completion
			c.Hits = append(c.Hits, s)
		}
		calls[i] = c
	}
	return calls
}

func TestLearn(t *testing.T) {
	mixed := func(i int) int32 { return int32(i % 4) }
	ones := func(i int) int32 { return int32(i % 2) }
	tests := []struct {
		name    string
		calls   []Call
		strides []Location
		want    Learned
		more    bool
		fails   bool
	}{
		{"several completions a poll", mlx5Calls(100, 16, mixed), nil, Learned{CQ: r12, WC: r13, WCOffset: -48}, false, false},
		{"one at a time, asked for one: anything constant is right", mlx5Calls(100, 1, ones), nil, Learned{CQ: r12, WC: r13, WCOffset: -48}, false, false},
		{"one at a time, asked for more: the register that moves", mlx5Calls(100, 16, ones), []Location{r13}, Learned{CQ: r12, WC: r13, WCOffset: -48}, false, false},
		{"one at a time, asked for more, nothing moves: wait", mlx5Calls(100, 16, ones), nil, Learned{}, true, false},
		{"too little", mlx5Calls(10, 16, mixed), nil, Learned{}, true, false},
		{"empty only", mlx5Calls(1000, 16, func(int) int32 { return 0 }), nil, Learned{}, true, false},
		{"errors return no completion", mlx5Calls(100, 16, func(i int) int32 { return int32(i%4) - 2*int32(i%7/6)*int32(i%4) }), nil, Learned{CQ: r12, WC: r13, WCOffset: -48}, false, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Learn(tt.calls, Candidate{Strides: tt.strides})
			if errors.Is(err, ErrMoreTraffic) != tt.more || (err != nil) != (tt.more || tt.fails) {
				t.Fatalf("error %v", err)
			}
			if got != tt.want {
				t.Errorf("learned %+v, want %+v", got, tt.want)
			}
		})
	}
}

// Of soft-RoCE's librxe no register holds the queue, r13 its lock, and the stack
// may hold it by chance, in a caller's register.
func TestLearnShifted(t *testing.T) {
	const lock = 0x138
	calls := func(saved bool) []Call {
		calls := mlx5Calls(100, 16, func(i int) int32 { return int32(i % 4) })
		for i := range calls {
			for h := range calls[i].Hits {
				s := &calls[i].Hits[h]
				s[rbx], s[r13], s[r12] = s[r13], calls[i].CQ+lock, 16
				if saved {
					s[Registers+4] = calls[i].CQ
				}
			}
		}
		return calls
	}
	shifted := Learned{CQ: r13, CQOffset: -lock, WC: rbx, WCOffset: -48}
	for _, tt := range []struct {
		name   string
		saved  bool
		shifts []int64
		want   Learned
	}{
		{"the function adds that much", false, []int64{-8, lock}, shifted},
		{"it takes that much", false, []int64{-lock}, Learned{}},
		{"it adds nothing like it", false, []int64{lock + 8}, Learned{}},
		{"beside what a caller left", true, []int64{lock}, shifted},
		{"what a caller left alone", true, nil, Learned{CQ: Registers + 4, WC: rbx, WCOffset: -48}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Learn(calls(tt.saved), Candidate{Shifts: tt.shifts})
			if got != tt.want || (err == nil) != (tt.want != Learned{}) {
				t.Errorf("learned %+v, %v; want %+v", got, err, tt.want)
			}
		})
	}
}

func TestLearnContradicted(t *testing.T) {
	mixed := func(i int) int32 { return int32(i % 4) }
	hitOnEmpty := mlx5Calls(100, 16, mixed)
	hitOnEmpty[50*4/4].Hits = append(hitOnEmpty[50].Hits, [Snapshot]uint64{})
	missed := mlx5Calls(100, 16, mixed)
	missed[3].Hits = missed[3].Hits[:2]
	noQueue := mlx5Calls(100, 16, mixed)
	noQueue[7].Hits[0][r12]++
	noWC := mlx5Calls(100, 16, mixed)
	noWC[7].Hits[1][r13]++
	for name, calls := range map[string][]Call{"a hit too many": hitOnEmpty, "a hit too few": missed,
		"the queue moves": noQueue, "the completion moves": noWC} {
		if l, err := Learn(calls, Candidate{}); err == nil || errors.Is(err, ErrMoreTraffic) {
			t.Errorf("%s: learned %+v, error %v", name, l, err)
		}
	}
}

func TestLocationString(t *testing.T) {
	for l, want := range map[Location]string{rbx: "r3", Registers: "0(sp)", Registers + 3: "24(sp)", Registers + StackWords: "-8(fp)"} {
		if got := l.String(); got != want {
			t.Errorf("%d: %s, want %s", int(l), got, want)
		}
	}
}
