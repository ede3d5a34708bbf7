package e2e

import (
	"fmt"
	"strconv"
	"testing"
)

// trial is the runs of a case. What others of the machine do to a single run
// decides nothing: what a case claims of work requests has to hold of those of
// all runs together, and of amounts in most runs. A first run of which all
// holds is enough; else there are trialRuns, each with a device, a job and an
// injection of its own.
type trial struct {
	*testing.T
	claims map[string]*claim
	order  []string // of claims, as they came
}

const trialRuns = 3

// claim is something that a case demands.
type claim struct {
	want      float64 // share of the work requests that it has to hold of
	holds, of int
	least     int // so many of them there have to be, in all runs together
	within    int // runs in which an amount was right
	outside   int // and in which not
	examples  []string
}

func (t *trial) claim(what string) *claim {
	c := t.claims[what]
	if c == nil {
		c = &claim{}
		t.claims[what] = c
		t.order = append(t.order, what)
	}
	return c
}

func (c *claim) example(format string, args ...any) {
	if len(c.examples) < 3 {
		c.examples = append(c.examples, fmt.Sprintf(format, args...))
	}
}

// atLeast demands that something holds of a share of work requests.
func (t *trial) atLeast(want float64, wrs []measuredWR, what string, holds func(w *measuredWR) bool) {
	c := t.claim(what)
	c.want = want
	c.of += len(wrs)
	for i := range wrs {
		if holds(&wrs[i]) {
			c.holds++
		} else {
			c.example("such as %s", wrs[i].story())
		}
	}
}

// enough demands that there are so many work requests of a sort. It reports
// whether this run has any.
func (t *trial) enough(least, n int, what string) bool {
	c := t.claim("enough are " + what)
	c.least = least
	c.of += n
	c.example("%d in a run", n)
	return n > 0
}

// within demands that an amount is right, and reports whether it is. what is the
// claim; format and args say what was found.
func (t *trial) within(ok bool, what, format string, args ...any) bool {
	c := t.claim(what)
	if ok {
		c.within++
		return true
	}
	c.outside++
	c.example(format, args...)
	return false
}

// failed says why a claim does not hold; empty if it does.
func (c *claim) failed() string {
	switch {
	case c.of < c.least:
		return fmt.Sprintf("%d, expected %d", c.of, c.least)
	case float64(c.holds) < c.want*float64(c.of):
		return fmt.Sprintf("holds of %.2f %% of %d work requests, expected %.0f %%", 100*float64(c.holds)/float64(c.of), c.of, 100*c.want)
	case 2*c.outside > c.within+c.outside:
		return fmt.Sprintf("does not hold in %d of %d runs", c.outside, c.within+c.outside)
	}
	return ""
}

// failures of all claims so far.
func (t *trial) failures() (list []string) {
	for _, what := range t.order {
		c := t.claims[what]
		if why := c.failed(); why != "" {
			list = append(list, fmt.Sprintf("%s: %s; %q", what, why, c.examples))
		}
	}
	return list
}

// try runs a case until its claims hold, or it has had all its runs, and gives
// the matrix of all.
func try(t *testing.T, run func(t *trial, m matrix)) matrix {
	m := matrix{}
	tr := &trial{claims: map[string]*claim{}}
	for n := 1; n <= trialRuns; n++ {
		if ok := t.Run(strconv.Itoa(n), func(t *testing.T) {
			tr.T = t
			run(tr, m)
		}); !ok {
			return m
		}
		if n == 1 {
			list := tr.failures()
			if len(list) == 0 {
				return m
			}
			t.Logf("run again, as in the first run %s", list)
		}
	}
	for _, why := range tr.failures() {
		t.Error(why)
	}
	return m
}
