package guest

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/rdmatrace/rdmatrace/attribution"
	"github.com/rdmatrace/rdmatrace/event"
)

// TestNotices traces a program that sleeps until the kernel tells of a completion. The
// kernel's own entries are the truth: what it told of was done by then, which is known
// without the entries too. Where a notice finds the queue empty, as its completion was
// reaped with the one before, the next notice is for the first one reaped after.
func TestNotices(t *testing.T) {
	inGuest(t)
	c := program{name: "notices", argv: "ibv_rc_pingpong -e -g 0 -n 300", sends: 300, receives: 300}
	p := startPair(t, c.argv)
	got := p.traced(t)
	c.iterated(t, p.client.output.String())
	written(t, got)
	judge(t, &c, got)
	noticed(t, got)
	wokenFor(t, got)
}

// noticed checks that nothing is less known with the notices, and says of how many more
// is: in this program of the few whose notice comes after a queue that was found empty.
func noticed(t *testing.T, got *traced) {
	t.Helper()
	with := withoutEntries(got)
	blind := *got
	blind.events = slices.DeleteFunc(slices.Clone(got.events), func(e event.Event) bool { return e.Kind == event.KindCQEvent })
	without := withoutEntries(&blind)
	all, narrowed := 0, 0
	var saved []uint64
	for reap, wrs := range with {
		for i := range min(len(wrs), len(without[reap])) {
			all++
			by, high := width(&wrs[i]), width(&without[reap][i])
			if by > high {
				t.Errorf("work request %d of QP %#x: done is known to %d ns with notices, to %d without", wrs[i].Index, wrs[i].QPNum, by, high)
			}
			if by < high {
				narrowed++
				saved = append(saved, high-by)
			}
		}
	}
	saves := ""
	if slices.Sort(saved); narrowed > 0 {
		saves = fmt.Sprintf(", by %.1f us in the median", float64(saved[narrowed/2])/1e3)
	}
	feature("done bounded by the kernel's notice", "%d of %d%s", narrowed, all, saves)
}

func width(w *attribution.WR) uint64 { return w.DoneHigh - w.DoneLow }

// wokenFor checks that who was woken for a queue was woken by what told that queue's
// channel just before, on the same CPU, and that the report names it.
func wokenFor(t *testing.T, got *traced) {
	t.Helper()
	told := byQueue(got.events, event.KindCQEvent)
	woken := 0
	for i := range got.events {
		e := &got.events[i]
		if e.Kind != event.KindWaking || e.Sched.CQ == 0 {
			continue
		}
		woken++
		if !slices.ContainsFunc(told[e.Sched.CQ], func(n *event.Event) bool {
			return n.CPU == e.CPU && n.TID == e.TID && n.Time <= e.Time && n.PID == e.Sched.NextPID
		}) {
			t.Errorf("woken for queue %#x, whose channel nothing told: %+v", e.Sched.CQ, e.Sched)
		}
	}
	who := got.culprits("interrupt.")
	if woken == 0 || !slices.ContainsFunc(who, func(name string) bool { return strings.HasSuffix(name, " > CQ event") }) {
		t.Errorf("%d wakings for a queue; interrupts are called %q", woken, who)
	}
	n := 0
	for _, list := range told {
		n += len(list)
	}
	feature("completion events", "%d told, %d wakeups for their queue", n, woken)
}
