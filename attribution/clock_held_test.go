package attribution

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// heldRun is a program that polls busily, at the least distance at which a reap
// follows its completion on a real machine, 0.7 us. Its empty polls are seen for
// 400 ms and then, in looks, before one completion in 200. One entry in so many
// becomes visible after a stamp that is 0.2 to 2.2 us older, as where the timer
// interrupts a software device just then; a look, which comes with the same timer,
// meets one of those 20 times as often.
type heldRun struct {
	rng   *rand.Rand
	clock deviceClock
	truth trueClock
	held  int
	n     int
	wrong int // conversions that begin more than 500 ns after the truth
	width []uint64
}

func (r *heldRun) step(now uint64) {
	dense := now < r.truth.start+400_000_000
	stamped := now - 50 - r.rng.Uint64N(60)
	low, high := now-6000-r.rng.Uint64N(500), now+700+uint64(r.rng.ExpFloat64()*300)
	held := r.rng.IntN(r.held) == 0
	switch {
	case dense:
		low = now - r.rng.Uint64N(500)
	case r.rng.IntN(200) == 0:
		low = now - r.rng.Uint64N([]uint64{60, 2500, 2500}[r.rng.IntN(3)])
		held = held || r.rng.IntN(r.held/20) == 0
	}
	if held {
		late := 200 + r.rng.Uint64N(2000)
		low += late
		high += late
	}
	from, to, ok := r.clock.meet(r.truth.stamp(stamped), low, high)
	r.n++
	if !ok {
		return
	}
	if from > stamped+500 {
		r.wrong++
	}
	if r.n > 500 {
		r.width = append(r.width, to-from)
	}
}

// TestClockOfEntriesHeldByLittle: entries that come out late by about as much as
// the band is wide cannot be told from the others. As long as they are few they
// must not decide, and what it takes to leave them out must not widen the band to
// where the doubt is worth telling.
func TestClockOfEntriesHeldByLittle(t *testing.T) {
	for _, c := range []struct {
		held   int
		misled int // of 100 runs, those of which 1 % may be wrong
	}{{4000, 1}, {1500, 8}, {700, 20}} {
		misled := 0
		var width []uint64
		for seed := range 100 {
			r := heldRun{rng: rand.New(rand.NewPCG(uint64(seed), 9)), truth: trueClock{begin: 1 << 45, start: 1 << 40, rate: 1}, held: c.held}
			for now := r.truth.start + 20_000; now < r.truth.start+1_200_000_000; now += 20_000 + r.rng.Uint64N(30_000) {
				r.step(now)
			}
			if 100*r.wrong > r.n {
				misled++
			}
			width = append(width, r.width...)
		}
		slices.Sort(width)
		half := width[len(width)/2]
		t.Logf("one in %d held: %d of 100 runs misled, half of the ranges wider than %d ns", c.held, misled, half)
		if misled > c.misled || half > doubtNS {
			t.Errorf("one in %d held: %d of 100 runs misled, expected %d; half of the ranges wider than %d ns", c.held, misled, c.misled, half)
		}
	}
}

// TestNearOfMergedEpochs: bounds of two epochs stand for each other only where they bind
// about as much.
func TestNearOfMergedEpochs(t *testing.T) {
	const rate = 1 << rateShift // a unit is 1 ns
	of := func(t uint64) (e epoch) {
		e.low, e.high = clockBound{0, t}, clockBound{0, t + 5000}
		for range 10 {
			e.bindSecond(clockBound{0, t - 100}, 1, rate)
		}
		return e
	}
	for _, c := range []struct {
		later uint64
		near  int
		dense bool
	}{
		{10_000, 21, true}, // and the one's low is the other's near
		{10_300, 21, true},
		{11_300, 10, false},
		{8_700, 10, false},
	} {
		e, later := of(10_000), of(c.later)
		e.merge(&later, rate)
		if e.near != c.near || e.dense != c.dense {
			t.Errorf("with a later one at %d: %d near, dense %t; want %d, %t", c.later, e.near, e.dense, c.near, c.dense)
		}
	}
}
