package calibrate

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmatrace/rdmatrace/internal/testenv"
)

// TestRunAmongWakers: a thread that is woken on each CPU each 40 us or so interrupts
// most calls that take as long as a single-stepped trap does in some guests. That is
// no part of the trap's price, whichever that is.
func TestRunAmongWakers(t *testing.T) {
	testenv.Root(t)
	quiet, err := Run(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	stop, err := wakers(realtime)
	if err != nil {
		testenv.Missing(t, "needs threads with SCHED_FIFO: %v", err)
	}
	busy, err := Run(context.Background())
	stop()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("alone %+v", quiet)
	t.Logf("among wakers %+v", busy)
	for _, c := range []struct {
		of          string
		quiet, busy float64
	}{
		{"emulated", quiet.Emulated.Entry, busy.Emulated.Entry},
		{"stepped", quiet.Stepped.Entry, busy.Stepped.Entry},
		{"stepped pair", quiet.Stepped.Pair, busy.Stepped.Pair},
	} {
		if c.busy > 2.5*c.quiet {
			t.Errorf("%s: %.0f ns, %.0f ns alone", c.of, c.busy, c.quiet)
		}
	}
}

// TestWakersRefused: where threads may not run ahead of others, all of them end, and it
// is said why.
func TestWakersRefused(t *testing.T) {
	if _, err := wakers(func() error { return unix.EPERM }); !errors.Is(err, unix.EPERM) {
		t.Error(err)
	}
}

// realtime has the thread run ahead of all that have no priority.
func realtime() error {
	return unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: 1}, 0)
}

// wakers start a thread on each CPU that sleeps a little and then runs a little, ahead
// of all others.
func wakers(ahead func() error) (stop func(), err error) {
	var may unix.CPUSet
	if err := unix.SchedGetaffinity(0, &may); err != nil {
		return nil, err
	}
	var ended atomic.Bool
	var threads sync.WaitGroup
	began := make(chan error, may.Count()) // so that none waits when the first one was refused
	for cpu := range len(may) * 64 {
		if !may.IsSet(cpu) {
			continue
		}
		threads.Go(func() {
			runtime.LockOSThread() // for good: the thread ends with its priority
			var here unix.CPUSet
			here.Set(cpu)
			err := unix.SchedSetaffinity(0, &here)
			if err == nil {
				err = ahead()
			}
			began <- err
			for err == nil && !ended.Load() {
				unix.Nanosleep(&unix.Timespec{Nsec: 20_000}, nil)
				for end := time.Now().Add(20 * time.Microsecond); time.Now().Before(end); {
				}
			}
		})
	}
	stop = func() { ended.Store(true); threads.Wait() }
	for range may.Count() {
		if err := <-began; err != nil {
			stop()
			return nil, err
		}
	}
	return stop, nil
}
