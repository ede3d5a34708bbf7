package tracer

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/rdmatrace/rdmatrace/bpf"
	"github.com/rdmatrace/rdmatrace/tracer/pollpath"
)

// pollSim makes the records of polls as the programs would.
type pollSim struct {
	rng      *rand.Rand
	now      uint64
	consumed uint32
	lag      uint32 // entries by which the index in memory is behind at a hit
	twice    bool   // the site is hit twice for each completion
	ring     uint32 // entries of a queue whose index wraps with it; 0: it does not
}

func (s *pollSim) mask() uint32 { return s.ring - 1 }

const (
	simCQ, simWC = 0x7f0000001000, 0x7ffc00002000
	simSP        = 0x7ffc00003000
)

// poll gives the records of one poll that returns n.
func (s *pollSim) poll(n int) (hits []bpf.RdmaTrialHitRecord, end bpf.RdmaTrialPollRecord) {
	s.now += 1000
	times := 1
	if s.twice {
		times = 2
	}
	for i := range n {
		s.consumed++
		for range times {
			h := bpf.RdmaTrialHitRecord{Begin: s.now, Index: uint32(len(hits)), Consumed: (s.consumed - s.lag) & s.mask(), ConsumedKnown: 1}
			h.H.Tid = 7
			for r := range h.Registers {
				h.Registers[r] = s.rng.Uint64()
			}
			h.Registers[4] = simSP - 88
			h.Registers[12] = simCQ
			h.Frame[len(h.Frame)-3] = simWC + 48*uint64(i+1) // the third word below the frame pointer
			hits = append(hits, h)
		}
	}
	end = bpf.RdmaTrialPollRecord{Begin: s.now, Cq: simCQ, Wc: simWC, Sp: simSP, Want: 16, Got: int32(n), Hits: uint32(len(hits)),
		Consumed: s.consumed & s.mask(), ConsumedKnown: 1, ConsumedMask: s.mask()}
	end.H.Tid = 7
	return hits, end
}

func (s *pollSim) run(t *trial, polls int) (looks int) {
	t.begin()
	for range polls {
		hits, end := s.poll(1 + s.rng.IntN(4))
		s.rng.Shuffle(len(hits), func(i, j int) { hits[i], hits[j] = hits[j], hits[i] })
		// Records of several CPUs come in any order.
		early := s.rng.IntN(len(hits) + 1)
		for i := range hits {
			if i == early && t.poll(&end) {
				looks++
			}
			if t.hit(&hits[i]) {
				looks++
			}
		}
		if early == len(hits) && t.poll(&end) {
			looks++
		}
	}
	return looks
}

func TestTrialLearns(t *testing.T) {
	for _, ring := range []uint32{0, 4} {
		t.Run(fmt.Sprintf("ring of %d", ring), func(t *testing.T) { learns(t, ring) })
	}
}

func learns(t *testing.T, ring uint32) {
	s := &pollSim{rng: rand.New(rand.NewPCG(1, 2)), now: 1, ring: ring}
	var tr trial
	if looks := s.run(&tr, 60); looks == 0 {
		t.Error("nobody was told to look")
	}
	if len(tr.open) != 0 {
		t.Errorf("%d polls are incomplete", len(tr.open))
	}
	path, err := tr.learn(pollpath.Candidate{}, false)
	if err != nil {
		t.Fatal(err)
	}
	want := pollpath.Learned{CQ: 12, WC: pollpath.Registers + pollpath.StackWords + 2, WCOffset: -48}
	if path.learned != want {
		t.Errorf("learned %+v, want %+v", path.learned, want)
	}
}

func TestTrialRefuses(t *testing.T) {
	t.Run("the index lags", func(t *testing.T) {
		s := &pollSim{rng: rand.New(rand.NewPCG(1, 2)), now: 1, lag: 1}
		var tr trial
		s.run(&tr, 60)
		if _, err := tr.learn(pollpath.Candidate{}, false); !errors.Is(err, errIndex) {
			t.Errorf("learn: %v, want %v", err, errIndex)
		}
	})
	t.Run("hit twice", func(t *testing.T) {
		s := &pollSim{rng: rand.New(rand.NewPCG(1, 2)), now: 1, twice: true}
		var tr trial
		s.run(&tr, 60)
		if _, err := tr.learn(pollpath.Candidate{}, false); err == nil || errors.Is(err, pollpath.ErrMoreTraffic) {
			t.Errorf("learn: %v, want a refusal", err)
		}
	})
	t.Run("too little", func(t *testing.T) {
		s := &pollSim{rng: rand.New(rand.NewPCG(1, 2)), now: 1}
		var tr trial
		s.run(&tr, 5)
		if _, err := tr.learn(pollpath.Candidate{}, false); !errors.Is(err, pollpath.ErrMoreTraffic) {
			t.Errorf("learn: %v, want %v", err, pollpath.ErrMoreTraffic)
		}
	})
}

// TestTrialLosses: of a poll of which records are missing nothing is believed.
func TestTrialLosses(t *testing.T) {
	s := &pollSim{rng: rand.New(rand.NewPCG(1, 2)), now: 1}
	var tr trial
	tr.begin()
	for range 40 {
		hits, end := s.poll(2)
		tr.hit(&hits[0])
		tr.poll(&end)
	}
	if len(tr.calls) != 0 || len(tr.open) != 40 {
		t.Errorf("%d calls, %d incomplete; want 0, 40", len(tr.calls), len(tr.open))
	}
	// After the trial late records change nothing.
	tr.active, tr.open = false, nil
	hits, end := s.poll(1)
	if tr.hit(&hits[0]) || tr.poll(&end) || len(tr.calls) != 0 {
		t.Error("a record after the trial was taken")
	}
}
