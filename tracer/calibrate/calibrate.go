// Package calibrate measures what a probe costs on this machine, on a process
// of its own: the target is not touched.
package calibrate

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"
)

// Trap is the cost of probes on one kind of instruction, ns per call of the
// probed function; 0: not measured. The programs do no more than to take the
// time and to store it: what the tracer's own do beyond that is in their run
// time as the kernel counts it.
type Trap struct {
	Entry float64 // one entry probe
	Pair  float64 // an entry and a return probe
	// InPost is what of a pair lies between its two time stamps: the difference
	// between the times that a traced call seems to take and that it does take.
	InPost float64
}

// Result of Run: medians.
type Result struct {
	Emulated Trap // the kernel emulates the probed instruction (x86: push, nop, near jump or call, jcc)
	Stepped  Trap // it single-steps it (x86: endbr64, mov, ret, ...)
	Took     time.Duration
}

// How much is measured. A single-stepped probe takes 10 us in some virtual
// machines, an emulated one 1 us; a round takes 3 ms there.
const (
	probedCalls = 100
	bareCalls   = 2000
	maxRounds   = samples / probedCalls
	minRounds   = 3
	enough      = 30                     // calls that nothing interrupted
	timeBudget  = 120 * time.Millisecond // after which no round is begun, if there are enough of them
	patience    = 5 * time.Second        // with a machine that does not get to it
)

// Run measures, in less than 300 ms where other programs leave room for that. The
// probes are taken out in the background, which takes the kernel some tenths of
// a second more. An error leaves zero values where nothing was learnt; it is
// worth a note, not an end of tracing.
func Run(ctx context.Context) (Result, error) {
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	c, err := startChild(ctx)
	if err != nil {
		return Result{}, err
	}
	defer c.stop()
	kinds := []*kind{{at: c.program.emulated}, {at: c.program.stepped}}
	defer func() {
		go func() {
			for _, k := range kinds {
				k.close()
			}
		}()
	}()
	for _, k := range kinds {
		if err := k.attach(c); err != nil {
			return Result{}, err
		}
	}
	if err := rounds(ctx, c, kinds); err != nil {
		return Result{}, err
	}
	var res Result
	var errs [2]error
	res.Emulated, errs[0] = kinds[0].trap()
	res.Stepped, errs[1] = kinds[1].trap()
	res.Took = time.Since(began)
	return res, errors.Join(errs[:]...)
}

// kind is what is measured of one kind of function.
type kind struct {
	at     [variants]int
	probes [variants]*probes // none on the bare one
	bare   []float64         // ns of CPU time per call, a value for each round
}

func (k *kind) attach(c *child) error {
	for _, v := range []int{entry, pair} {
		p, err := newProbes()
		if err != nil {
			return err
		}
		k.probes[v] = p
		if err := p.attach(c, k.at[v], v == pair); err != nil {
			return err
		}
	}
	return nil
}

func (k *kind) close() {
	for _, p := range k.probes {
		if p != nil {
			p.close() // of no consequence: they end with this process too
		}
	}
}

// rounds calls all functions in turn, so that what else the machine does meets
// all of them.
func rounds(ctx context.Context, c *child, kinds []*kind) error {
	began := time.Now()
	for n := range maxRounds {
		if n >= minRounds && time.Since(began) > timeBudget {
			if done, err := areEnough(kinds); done || err != nil {
				return err
			}
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		for _, k := range kinds {
			took, err := c.run(k.at[bare], bareCalls)
			if err != nil {
				return err
			}
			k.bare = append(k.bare, float64(took)/bareCalls)
			for _, v := range []int{entry, pair} {
				if _, err := c.run(k.at[v], probedCalls); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// areEnough says that enough calls of each kind were not interrupted.
func areEnough(kinds []*kind) (bool, error) {
	for _, k := range kinds {
		for _, v := range []int{entry, pair} {
			since, between, err := k.probes[v].read()
			if err != nil {
				return false, err
			}
			if len(whole(since)) < enough || v == pair && len(whole(between)) < enough {
				return false, nil
			}
		}
	}
	return true, nil
}

// trap evaluates the rounds of a kind.
func (k *kind) trap() (Trap, error) {
	single, _, err := k.probes[entry].read()
	if err != nil {
		return Trap{}, err
	}
	both, between, err := k.probes[pair].read()
	if err != nil {
		return Trap{}, err
	}
	if len(single) == 0 || len(both) == 0 || len(between) == 0 {
		return Trap{}, errors.New("calibration probes were never hit")
	}
	call := median(k.bare)
	return Trap{
		Entry:  max(0, typical(single)-call),
		Pair:   max(0, typical(both)-call),
		InPost: max(0, typical(between)-call),
	}, nil
}

// typical is what a call takes that nothing interrupts: the time from one entry to
// the next is all that a probed one takes. Where another program is woken on the
// same CPU again and again, most of the calls that take as long as a single-stepped
// trap are interrupted: it would be the others' time that their median tells.
func typical(all []sample) float64 {
	if kept := whole(all); len(kept) > 0 {
		return median(kept)
	}
	// None was seen whole. The least is no less than one.
	return slices.MinFunc(all, func(a, b sample) int { return cmp.Compare(a.ns, b.ns) }).ns
}

// whole are the times in which the thread had its CPU throughout.
func whole(all []sample) (ns []float64) {
	for _, s := range all {
		if !s.interrupted {
			ns = append(ns, s.ns)
		}
	}
	return ns
}

func median(v []float64) float64 {
	slices.Sort(v)
	return v[len(v)/2]
}
