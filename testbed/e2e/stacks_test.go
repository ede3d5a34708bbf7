package e2e

import (
	"slices"
	"testing"

	"github.com/rdmatrace/rdmatrace/event"
)

// stacks are the names of the functions of each stack in the context, innermost first.
func (got *traced) stacks() map[uint64][]string {
	out := map[uint64][]string{}
	for _, s := range got.ctx.Stacks {
		var names []string
		for _, f := range s.Frames {
			names = append(names, f.Func)
		}
		out[s.ID] = names
	}
	return out
}

// within counts the events that which gives a stack for, and those of them in a function.
func (got *traced) within(function string, which func(*event.Event) (stack uint64, ok bool)) (in, all int) {
	stacks := got.stacks()
	for i := range got.events {
		stack, ok := which(&got.events[i])
		if !ok {
			continue
		}
		all++
		if slices.Contains(stacks[stack], function) {
			in++
		}
	}
	return in, all
}

// TestSamples: what a thread computes while completions wait for it is sampled.
func TestSamples(t *testing.T) {
	d := startDevice(t, "LAT_NS=4000")
	p := d.job(t, "oracle-poller between=compute ns=50000")
	got := traceFor(t, p.Process.Pid, 10000)
	tid := uint32(p.Process.Pid)
	in, all := got.within("spin", func(e *event.Event) (uint64, bool) {
		return e.Sample.Stack, e.Kind == event.KindSample && e.TID == tid
	})
	t.Logf("%d of %d samples in spin, %d stacks", in, all, len(got.ctx.Stacks))
	if all < 20 || 2*in < all {
		t.Errorf("%d of %d samples are in spin", in, all)
	}
}

// TestWhereItSlept: a thread that sleeps between its posts and polls is seen to leave
// its CPU where it does so.
func TestWhereItSlept(t *testing.T) {
	d := startDevice(t, "LAT_NS=4000")
	p := d.job(t, "oracle-poller between=sleep ns=1000000 every=10")
	got := traceFor(t, p.Process.Pid, 10000)
	tid := uint32(p.Process.Pid)
	in, all := got.within("sleep_ns", func(e *event.Event) (uint64, bool) {
		return e.Sched.PrevStack, e.Kind == event.KindSwitch && e.Sched.PrevTID == tid && e.Sched.PrevState != 0
	})
	t.Logf("%d of %d switches in sleep_ns, %d stacks", in, all, len(got.ctx.Stacks))
	if all < 100 || in < all*9/10 {
		t.Errorf("%d of %d switches to sleep are in sleep_ns", in, all)
	}
}
