package e2e

import (
	"slices"
	"strings"
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

// TestCallers: two functions with frames of the same size call the one that posts, in
// turn. From when the second is known, each work request is of the one that posted it.
func TestCallers(t *testing.T) {
	d := startDevice(t, "LAT_NS=4000")
	p := d.job(t, "oracle-callers")
	got := traceFor(t, p.Process.Pid, 10000)
	p.running(t)
	stacks := got.stacks()
	var callers []string
	for i := range got.events {
		e := &got.events[i]
		if e.Kind != event.KindWR {
			continue
		}
		at := slices.IndexFunc(stacks[e.Verb.Stack], func(name string) bool { return strings.HasPrefix(name, "caller_") })
		if at < 0 {
			t.Fatalf("the work request at %d was posted by %q", e.Time, stacks[e.Verb.Stack])
		}
		callers = append(callers, stacks[e.Verb.Stack][at])
	}
	second := slices.IndexFunc(callers, func(name string) bool { return name != callers[0] })
	if second < 0 {
		t.Fatalf("all %d work requests are of %s", len(callers), callers[0])
	}
	wrong := 0
	for i := second + 1; i < len(callers); i++ {
		if callers[i] == callers[i-1] {
			wrong++
		}
	}
	t.Logf("%d work requests, the second caller is known from %d on, %d wrong", len(callers), second, wrong)
	if wrong > 0 || second > len(callers)/2 {
		t.Errorf("of %d work requests from the one at %d on %d are of the same caller as the one before", len(callers), second, wrong)
	}
}
