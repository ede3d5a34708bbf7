package guest

import (
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rdmatrace/rdmatrace/event"
	"github.com/rdmatrace/rdmatrace/testbed/outcome"
)

// chain checks a trace in event mode: what delayed its work requests between
// the NIC and the thread is there, and each link of the chain has its name.
func chain(t *testing.T, got *traced) {
	t.Helper()
	if got.Classes.Interrupt.TotalNS+got.Received.Classes.Interrupt.TotalNS == 0 {
		t.Error("no interrupt time")
	}
	if got.Classes.Scheduling.TotalNS+got.Received.Classes.Scheduling.TotalNS == 0 {
		t.Error("no scheduling time")
	}
	who := got.culprits("")
	for _, name := range []string{`virtio\d+-input\.0 \(irq \d+\)`, "NET_RX softirq"} {
		if !slices.ContainsFunc(who, named(t, name).MatchString) {
			t.Errorf("%s is not named: %q", name, who)
		}
	}
	waker := got.waker(t)
	// All of the way from the line to the thread.
	whole := regexp.MustCompile(`^virtio\d+-input\.0 \(irq \d+\) > NET_RX softirq > `)
	in := got.culprits("interrupt.")
	chain := slices.IndexFunc(in, func(name string) bool {
		return whole.MatchString(name) && strings.HasSuffix(general(name), " > "+waker+" > CQ event")
	})
	if chain < 0 {
		t.Errorf("the thread is woken by %s, which no chain from a line to a queue's event ends in: %q", waker, in)
		return
	}
	feature("interrupt chain", "%s", general(in[chain]))
}

// named is how an interrupt is named in any case: as what ran on top of a target's
// thread; but with PREEMPT_RT the most of it runs in threads, and may be only what led to
// a wakeup.
func named(t *testing.T, name string) *regexp.Regexp {
	t.Helper()
	version, err := os.ReadFile("/proc/version") // ends with "#1 SMP PREEMPT_RT ..."
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(version), " PREEMPT_RT ") {
		return regexp.MustCompile(`(^|> )` + name)
	}
	return regexp.MustCompile(`^` + name + `$`)
}

// onTopOnly checks a trace of a program that polls: no interrupt brings its
// completions, they only run on top of it.
func onTopOnly(t *testing.T, got *traced) {
	t.Helper()
	for name := range got.Causes {
		if strings.HasPrefix(name, "interrupt.") && name != "interrupt.irq-on-top" {
			t.Errorf("a polling program has %s: %+v", name, got.Causes[name])
		}
	}
	for name := range got.Received.Causes {
		if strings.HasPrefix(name, "interrupt.") && name != "interrupt.irq-on-top" {
			t.Errorf("receives of a polling program have %s: %+v", name, got.Received.Causes[name])
		}
	}
}

// culprits are the names behind the causes that begin with a prefix.
func (r *report) culprits(prefix string) []string {
	names := map[string]bool{}
	for _, causes := range []map[string]outcome.Cause{r.Causes, r.Received.Causes} {
		for name, c := range causes {
			for _, w := range c.Who {
				if strings.HasPrefix(name, prefix) {
					names[w.Name] = true
				}
			}
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// waker is what woke the target's threads most often, as the kernel's
// tracepoint had it: in general words.
func (got *traced) waker(t *testing.T) string {
	t.Helper()
	counts := map[string]int{}
	for i := range got.events {
		e := &got.events[i]
		if e.Kind != event.KindWaking || e.Sched.NextPID != got.ctx.Targets[0].PID {
			continue
		}
		name := strings.TrimRight(string(e.Sched.PrevComm[:]), "\x00")
		if e.Sched.Interrupt == event.InterruptSoftirq {
			name = softirqs[e.Sched.Vec] + " softirq"
		}
		counts[general(name)]++
	}
	best := ""
	for name, n := range counts {
		if n > counts[best] || n == counts[best] && name < best {
			best = name
		}
	}
	if best == "" {
		t.Fatal("nobody woke the target")
	}
	return best
}

// softirqs in the order of include/linux/interrupt.h.
var softirqs = [...]string{"HI", "TIMER", "NET_TX", "NET_RX", "BLOCK", "IRQ_POLL", "TASKLET", "SCHED", "HRTIMER", "RCU"}

var numbers = regexp.MustCompile(` \((pid|irq) \d+\)|/u?\d+:\d+.*$`)

// general is a culprit's name without what differs from boot to boot.
func general(name string) string { return numbers.ReplaceAllString(name, "") }
