// Package calibrate measures what a probe costs on this machine, on a process
// of its own: the target is not touched.
package calibrate

import (
	"context"
	"errors"
	"time"
)

// Trap is the cost of probes on one kind of instruction, ns; 0: not measured.
type Trap struct {
	Entry  float64 // one entry probe
	Pair   float64 // an entry and a return probe on one call
	InPost float64 // of a pair, what lies between its two time stamps beside the function itself
}

// Result of Run.
type Result struct {
	Emulated Trap // the kernel emulates the probed instruction (push, nop, near jump or call, jcc)
	Stepped  Trap // it single-steps it (endbr64, mov, ret, ...)
	Took     time.Duration
}

// Run measures in less than 300 ms. An error leaves zero values where nothing
// was learnt; it is worth a note, not an end of tracing.
func Run(ctx context.Context) (Result, error) { return Result{}, errors.New("not there yet") }
