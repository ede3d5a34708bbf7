package calibrate

import (
	"context"
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
	stop := wakers(t)
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

// wakers start a thread on each CPU that sleeps a little and then runs a little, ahead
// of all others.
func wakers(t *testing.T) (stop func()) {
	t.Helper()
	var may unix.CPUSet
	if err := unix.SchedGetaffinity(0, &may); err != nil {
		t.Fatal(err)
	}
	var ended atomic.Bool
	var threads sync.WaitGroup
	ready := make(chan error)
	n := 0
	for cpu := range len(may) * 64 {
		if !may.IsSet(cpu) {
			continue
		}
		n++
		threads.Go(func() {
			runtime.LockOSThread() // for good: the thread ends with its priority
			var here unix.CPUSet
			here.Set(cpu)
			err := unix.SchedSetaffinity(0, &here)
			if err == nil {
				err = unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: 1}, 0)
			}
			ready <- err
			for err == nil && !ended.Load() {
				unix.Nanosleep(&unix.Timespec{Nsec: 20_000}, nil)
				for end := time.Now().Add(20 * time.Microsecond); time.Now().Before(end); {
				}
			}
		})
	}
	stop = func() { ended.Store(true); threads.Wait() }
	for range n {
		if err := <-ready; err != nil {
			stop()
			t.Fatal(err)
		}
	}
	return stop
}
