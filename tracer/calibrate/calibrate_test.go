package calibrate

import (
	"context"
	"errors"
	"os"
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

// The same program without probes: the calls and the answers are as asked.
func TestChildCounts(t *testing.T) {
	c, err := startChild(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	defer c.stop()
	p, err := newProbes()
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	if err := p.attach(c, c.program.emulated); err != nil {
		t.Fatal(err)
	}
	for _, calls := range []uint32{1, 7, 100} {
		before, err := p.between()
		if err != nil {
			t.Fatal(err)
		}
		took, err := c.run(c.program.emulated[pair], calls)
		if err != nil || took <= 0 {
			t.Fatalf("%d calls took %v, %v", calls, took, err)
		}
		after, err := p.between()
		if err != nil {
			t.Fatal(err)
		}
		if got := len(after) - len(before); got != int(calls) {
			t.Errorf("%d calls, %d pairs of time stamps", calls, got)
		}
		for _, ns := range after {
			if ns <= 0 || ns > float64(time.Hour) {
				t.Errorf("%v ns between the stamps of a pair", ns)
			}
		}
	}
	// A function without probes is not counted.
	before, _ := p.between()
	if _, err := c.run(c.program.emulated[bare], 10); err != nil {
		t.Fatal(err)
	}
	if after, _ := p.between(); len(after) != len(before) {
		t.Errorf("the bare function has %d pairs", len(after)-len(before))
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
