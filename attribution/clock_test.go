package attribution

import (
	"math/rand/v2"
	"testing"

	"pgregory.net/rapid"
)

// trueClock is a device clock whose relation to the host's is known.
type trueClock struct {
	realTime bool
	begin    uint64 // stamp at host time start, in units
	start    uint64
	rate     float64 // units per ns of host time
	drift    float64 // relative change of the rate per second
}

func (c *trueClock) stamp(host uint64) uint64 {
	t := float64(host - c.start)
	units := c.begin + uint64(c.rate*(t+c.drift*t*t/2e9))
	if !c.realTime {
		return units
	}
	return units/1_000_000_000<<32 | units%1_000_000_000
}

// clockRun feeds completions to a deviceClock. Bounds of each are those of a
// program that posts, polls and reaps.
type clockRun struct {
	clock    deviceClock
	truth    trueClock
	rng      *rand.Rand
	now      uint64
	interval uint64 // between completions, at most
	flight   uint64 // least time from post to done
	bracket  uint64 // between polls; 0: empty polls are not seen
	lag      uint64 // a stamp is so much older than its entry, at most
	looks    int    // before one in so many the CQ was seen empty; 0: none
	late     int    // all but one in so many are reaped late; 0: none
	held     int    // one in so many becomes visible up to 50 us after its stamp; 0: none
	wrong    int    // conversions that were believed and do not hold the truth
	tooEarly int    // of these, those that end before it
}

// step makes a completion and says whether it was converted, and how wide.
func (r *clockRun) step(garbage bool) (width uint64, ok bool) {
	r.now += 1 + r.rng.Uint64N(r.interval)
	done := r.now
	low := done - min(done, r.flight+r.rng.Uint64N(3*r.flight))
	high := done + 1 + r.rng.Uint64N(2000)
	if r.late > 0 && r.rng.IntN(r.late) > 0 {
		high += 60_000
	} else if r.bracket > 0 {
		low = max(low, done-min(done, r.rng.Uint64N(r.bracket)))
		high = min(high, done+1+r.rng.Uint64N(r.bracket))
	}
	if r.looks > 0 && r.rng.IntN(r.looks) == 0 {
		low = max(low, done-r.rng.Uint64N(100))
	}
	stamped := done
	if r.lag > 0 {
		stamped -= r.rng.Uint64N(r.lag)
	}
	held := r.held > 0 && r.rng.IntN(r.held) == 0
	if held {
		stamped -= r.rng.Uint64N(50_000)
	}
	stamp := r.truth.stamp(stamped)
	if garbage {
		stamp = r.rng.Uint64()
		if r.rng.IntN(2) == 0 { // one of an earlier CQE
			stamp = r.truth.stamp(max(done-1_000_000, r.truth.start+1_000_000_000) - r.rng.Uint64N(1_000_000_000))
		}
	}
	from, to, ok := r.clock.meet(stamp, low, high)
	if ok && !garbage && !held && (stamped+r.lag < from || stamped > to) && from <= high && to >= low {
		r.wrong++
		if stamped > to {
			r.tooEarly++
		}
	}
	return to - from, ok
}

func anyClock(t *rapid.T) trueClock {
	c := trueClock{
		realTime: rapid.Bool().Draw(t, "real time"),
		begin:    rapid.Uint64Range(1<<42, 1<<50).Draw(t, "begin"),
		drift:    rapid.Float64Range(-1e-7, 1e-7).Draw(t, "drift"),
	}
	if c.realTime {
		c.begin += 1_700_000_000_000_000_000
		c.rate = 1 + rapid.Float64Range(-1e-4, 1e-4).Draw(t, "offset of rate")
	} else {
		c.rate = rapid.SampledFrom([]float64{0.078125, 0.15625, 0.5, 1, 2}).Draw(t, "rate")
		c.rate *= 1 + rapid.Float64Range(-1e-4, 1e-4).Draw(t, "offset of rate")
	}
	return c
}

func anyClockRun(t *rapid.T) *clockRun {
	r := &clockRun{
		truth:    anyClock(t),
		rng:      rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 4)),
		now:      rapid.Uint64Range(1_000_000, 1<<45).Draw(t, "uptime"),
		interval: rapid.SampledFrom([]uint64{2_000, 50_000, 2_000_000}).Draw(t, "interval"),
		flight:   rapid.SampledFrom([]uint64{2_000, 20_000}).Draw(t, "flight"),
		bracket:  rapid.SampledFrom([]uint64{0, 200, 5_000}).Draw(t, "bracket"),
	}
	r.late = rapid.SampledFrom([]int{0, 10}).Draw(t, "late")
	r.truth.start = r.now - 100_000 // so that stamps older than the first entry have a time
	return r
}

// TestClockHoldsTheTruth: the true host time of a stamp lies in the range it is
// converted to, from the first completion on, and the range soon is about as
// narrow as the bounds allow.
func TestClockHoldsTheTruth(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := anyClockRun(t)
		var wide int
		for i := range 3000 {
			width, ok := r.step(false)
			bound := 4*r.flight + 2000
			if r.bracket > 0 && r.late == 0 {
				bound = min(bound, 2*r.bracket+100)
			}
			if i > 300 && (!ok || width > bound) {
				wide++
			}
		}
		if wide > 30 {
			t.Fatalf("%d of 2700 are wide: rate %d to %d", wide, r.clock.rateLow, r.clock.rateHigh)
		}
		if r.clock.steps > 0 || r.clock.outliers > 0 || r.wrong > 0 {
			t.Fatalf("%d steps, %d outliers, %d wrong", r.clock.steps, r.clock.outliers, r.wrong)
		}
	})
}

// TestClockOfFewLooks: where polls that find nothing are not seen, and the CQ is
// looked at 20 or 40 times in a second, the range still becomes much narrower than
// a flight.
func TestClockOfFewLooks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := anyClockRun(t)
		r.interval, r.flight, r.bracket, r.late = 50_000, 20_000, 0, 0
		r.looks = rapid.SampledFrom([]int{1000, 2000}).Draw(t, "looks") // in 25 and 50 ms
		wide := 0
		for i := range 100_000 {
			if width, ok := r.step(false); i > 80_000 && (!ok || width > 2000) {
				wide++
			}
		}
		if wide > 1000 || r.wrong > 0 {
			t.Fatalf("%d of 20000 are wide, %d of all wrong", wide, r.wrong)
		}
	})
}

// TestClockOfOlderStamps: an entry is written after its stamp was taken, now
// sooner and now later, which must not be read as a rate that is off.
func TestClockOfOlderStamps(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := anyClockRun(t)
		r.lag = rapid.SampledFrom([]uint64{300, writeLag}).Draw(t, "lag")
		for range 3000 {
			r.step(false)
		}
		if r.clock.steps > 0 || r.wrong > 0 {
			t.Fatalf("%d steps, %d wrong", r.clock.steps, r.wrong)
		}
	})
}

// TestClockOfHeldEntries: the writer of an entry may stand still between the
// stamp and the entry (a software device on a busy machine, a bus that is
// stalled), which must not mislead for longer than it lasts.
func TestClockOfHeldEntries(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := anyClockRun(t)
		r.lag = writeLag
		r.held = rapid.SampledFrom([]int{200, 2000}).Draw(t, "held")
		steps := 5000
		if r.held == 2000 && rapid.IntRange(0, 9).Draw(t, "long") == 0 {
			steps = 200_000 // of fast ones many to an epoch
		}
		for range steps {
			r.step(false)
		}
		// Of a few entries at the beginning nobody can say that they were held.
		if r.clock.steps > 1 || r.tooEarly > 0 || r.wrong > 250 {
			t.Fatalf("%d steps, %d wrong, %d of these too early", r.clock.steps, r.wrong, r.tooEarly)
		}
	})
}

// TestClockStepsAndGarbage: a step is noticed within clockSuspects completions
// and followed; broken stamps change nothing.
func TestClockStepsAndGarbage(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := anyClockRun(t)
		step := rapid.Int64Range(1_000_000, 1<<40).Draw(t, "step")
		if rapid.Bool().Draw(t, "back") {
			step = -min(step, int64(r.truth.begin/2))
		}
		for range 1000 {
			r.step(r.rng.IntN(200) == 0)
		}
		if r.clock.steps > 1 {
			t.Fatalf("%d steps before the step", r.clock.steps)
		}
		r.clock.steps = 0
		r.truth.begin += uint64(step)
		wrong := 0
		for i := range 1000 {
			if width, ok := r.step(false); i > 500 && (!ok || width > 4*r.flight+4000) {
				wrong++
			}
		}
		if r.clock.steps != 1 || wrong > 5 {
			t.Fatalf("%d steps, then %d of 500 not converted", r.clock.steps, wrong)
		}
		// A broken stamp that is taken for good while nothing is known yet can
		// mislead until the next good ones contradict it.
		if r.wrong > 40 {
			t.Fatalf("%d of 2000 are wrong", r.wrong)
		}
	})
}
