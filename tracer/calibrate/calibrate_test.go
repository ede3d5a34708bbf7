package calibrate

import (
	"context"
	"errors"
	"os"
	"slices"
	"syscall"
	"testing"
	"time"
)

// The costs depend on the machine and on who else uses it. But no machine
// traps in less than 20 ns, and without a trap the difference to a bare call is
// far less.
func TestRun(t *testing.T) {
	r, err := Run(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", r)
	for name, c := range map[string]Trap{"emulated": r.Emulated, "stepped": r.Stepped} {
		if c.Entry < 20 || c.Pair < 20 || c.InPost < 20 {
			t.Errorf("%s: implausible costs %+v", name, c)
		}
	}
}

// Every call is seen, at its entry and at its return, and no call of another
// function is.
func TestEveryCallIsSeen(t *testing.T) {
	c, err := startChild(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	defer c.stop()
	k := &kind{at: c.program.emulated}
	defer k.close()
	if err := k.attach(c); err != nil {
		t.Fatal(err)
	}
	want := [variants]int{}
	for _, calls := range []uint32{1, 7, 100} {
		for v := range variants {
			if _, err := c.run(k.at[v], calls); err != nil {
				t.Fatal(err)
			}
			want[v] += int(calls)
		}
	}
	single, none, err := k.probes[entry].read()
	if err != nil {
		t.Fatal(err)
	}
	both, between, err := k.probes[pair].read()
	if err != nil {
		t.Fatal(err)
	}
	if len(single) != want[entry] || len(none) != 0 || len(both) != want[pair] || len(between) != want[pair] {
		t.Errorf("%d and %d, %d and %d times; want %v calls", len(single), len(none), len(both), len(between), want)
	}
	for i, s := range between {
		if s.ns <= 0 || i > 0 && s.ns >= both[i].ns+1e9 {
			t.Errorf("%v ns between the stamps of a pair", s.ns)
		}
	}
}

// A call during which the thread stood still for a while is known as such: here the
// process is stopped from outside, now and then.
func TestInterrupted(t *testing.T) {
	c, err := startChild(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	defer c.stop()
	k := &kind{at: c.program.stepped}
	defer k.close()
	if err := k.attach(c); err != nil {
		t.Fatal(err)
	}
	const stop = 20 * time.Millisecond
	stopping := make(chan error, 1)
	go func() {
		var errs []error
		for range 3 {
			errs = append(errs, c.cmd.Process.Signal(syscall.SIGSTOP))
			time.Sleep(stop)
			errs = append(errs, c.cmd.Process.Signal(syscall.SIGCONT))
			time.Sleep(time.Millisecond)
		}
		stopping <- errors.Join(errs...)
	}()
	for stopped := false; !stopped; {
		select {
		case err := <-stopping:
			if err != nil {
				t.Fatal(err)
			}
			stopped = true
		default:
			if _, err := c.run(k.at[pair], 10); err != nil {
				t.Fatal(err)
			}
		}
	}
	both, between, err := k.probes[pair].read()
	if err != nil {
		t.Fatal(err)
	}
	long := 0
	for _, s := range slices.Concat(both[1:], between) {
		if s.ns < float64(stop) {
			continue
		}
		if long++; !s.interrupted {
			t.Errorf("%v ms without leaving the CPU", s.ns/1e6)
		}
	}
	if long == 0 {
		t.Error("the process did not stand still in any call")
	}
}

// Where most calls are interrupted, what they take is that of the others.
func TestTypical(t *testing.T) {
	for _, tc := range []struct {
		name string
		in   []sample
		want float64
	}{
		{"quiet", []sample{{11, false}, {12, false}, {16, false}}, 12},
		{"mostly interrupted", []sample{{347, true}, {88, true}, {13, false}, {90, true}, {11, false}, {61, true}, {12, false}}, 12},
		{"always interrupted", []sample{{347, true}, {88, true}, {90, true}}, 88},
	} {
		if got := typical(tc.in); got != tc.want {
			t.Errorf("%s: %v, want %v", tc.name, got, tc.want)
		}
	}
}

func TestRunCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if r, err := Run(ctx); err == nil || r != (Result{}) {
		t.Errorf("got %+v, %v", r, err)
	}
}

// A child that is killed in between is an error, not a hang.
func TestChildKilled(t *testing.T) {
	c, err := startChild(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	defer c.stop()
	if _, err := c.run(c.program.emulated[bare], 1); err != nil {
		t.Fatal(err)
	}
	c.cmd.Process.Kill()
	c.cmd.Wait()
	for range 2 { // the first request may still find room in the pipe
		if _, err = c.run(c.program.emulated[bare], 1); err != nil {
			break
		}
	}
	if err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("error is %v", err)
	}
}

func TestMedian(t *testing.T) {
	for _, tc := range []struct {
		in   []float64
		want float64
	}{{[]float64{3}, 3}, {[]float64{9, 1, 5}, 5}, {[]float64{1e9, 2, 1}, 2}} {
		if got := median(tc.in); got != tc.want {
			t.Errorf("median of %v is %v, want %v", tc.in, got, tc.want)
		}
	}
}
