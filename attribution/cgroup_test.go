package attribution

import (
	"fmt"
	"strings"
	"testing"

	"github.com/rdmatrace/rdmatrace/event"
)

// grouped is a task in a cgroup.
func grouped(name string, pid uint32, cgroup uint64) culprit {
	c := task(name, pid)
	c.cgroup = cgroup
	return c
}

func TestCgroupName(t *testing.T) {
	ctx := &event.Context{
		Targets: []event.Target{{CgroupID: 20}, {CgroupID: 0}, {CgroupID: 21}},
		Cgroups: []event.Cgroup{{ID: 1, Path: "/"}, {ID: 20, Path: "/job"}, {ID: 21, Path: "/job/rank1"}, {ID: 30, Path: "/batch\xff"}, {ID: 40}},
	}
	n := newNaming(ctx)
	for id, want := range map[uint64]Cgroup{
		0:  {},
		1:  {Name: "/"},
		20: {Name: "/job"},
		21: {Name: "/job/rank1"},
		30: {Name: "/batch\uFFFD", Apart: true},
		40: {Name: "(removed, id 40)", Apart: true},
		99: {},
	} {
		if got := n.cgroup(id); got != want {
			t.Errorf("%d: %+v, want %+v", id, got, want)
		}
	}
	ctx.Targets = nil
	if got := newNaming(ctx).cgroup(30); got.Apart {
		t.Errorf("apart from targets of which nothing is known: %+v", got)
	}
}

// A culprit has its cgroup wherever it is named; its key does not.
func TestCulpritsCgroup(t *testing.T) {
	r := newIncidentRun()
	part := seg(Submit, 100, culprit{}, 7)
	r.wr(1, 0, Waited, part, seg(Preempted, 50_000, grouped("hog", 1, 30), 7))
	r.wr(1, 100_000, Waited, part, seg(Preempted, 50_000, grouped("hog", 1, 0), 7))    // not seen to come
	r.wr(1, 200_000, Waited, part, seg(Preempted, 50_000, grouped("mover", 2, 30), 7)) // is moved
	r.wr(1, 300_000, Waited, part, seg(Preempted, 50_000, grouped("mover", 2, 40), 7))
	r.wr(1, 400_000, Waited, part, seg(IRQOnTop, 50_000, culprit{kind: culpritTimer}, 7))
	got := r.agg.finish(&event.Context{
		Targets: []event.Target{{CgroupID: 20}},
		Cgroups: []event.Cgroup{{ID: 20, Path: "/job"}, {ID: 30, Path: "/batch"}, {ID: 40}},
	}, nil)
	if keys := len(r.agg.sends.who.sums); keys != 3 {
		t.Errorf("%d keys of 3 culprits", keys)
	}
	batch, removed := Cgroup{"/batch", true}, Cgroup{"(removed, id 40)", true}
	want := map[string]Cgroup{"hog (pid 1)": batch, "mover (pid 2)": removed, "local timer": {}}
	seen := map[string]int{}
	check := func(where, who string, got Cgroup) {
		t.Helper()
		seen[where+" "+who]++
		if got != want[who] {
			t.Errorf("%s: %s is in %+v, want %+v", where, who, got, want[who])
		}
	}
	for _, c := range got.Causes {
		for _, w := range c.Who {
			check("causes", w.Name, w.Cgroup)
		}
	}
	for _, s := range got.Samples {
		if s.Who != "" {
			check("samples", s.Who, s.Cgroup)
		}
	}
	for who := range want {
		if seen["causes "+who] != 1 || seen["samples "+who] != 1 {
			t.Errorf("%s is named %v times", who, seen)
		}
	}
	// Incidents and their parts say where it was then.
	then := map[uint64]Cgroup{0: batch, 100_000: {}, 200_000: batch, 300_000: removed, 400_000: {}}
	if len(got.Incidents) != len(then) {
		t.Fatalf("%d incidents", len(got.Incidents))
	}
	for _, in := range got.Incidents {
		if c := then[in.Worst.PostBegin]; in.Cgroup != c || in.Timeline[1].Cgroup != c || in.Timeline[0].Cgroup != (Cgroup{}) {
			t.Errorf("%s at %d is in %+v, its parts in %+v", in.Who, in.Begin, in.Cgroup, in.Timeline)
		}
	}
}

// From the switches on: of who ran instead, and of who came unseen too.
func TestOccupantsCgroup(t *testing.T) {
	tp := created()
	tp.sw(100, 0, worker, hog, event.Sched{Syscall: -1, NextCgroup: 30}, event.SwitchPreempt)
	tp.sw(200, 0, hog, third, event.Sched{PrevCgroup: 30, NextCgroup: 20}, 0)
	tp.sw(300, 0, otherHog, worker, event.Sched{PrevCgroup: 40, NextCgroup: 20}, 0) // the switch to it was not recorded
	e, _ := tp.play(t, Config{})
	var got []string
	e.threads.instead(e.threads.known(worker), 0, 100, 300, func(begin, end uint64, who *culprit) {
		got = append(got, fmt.Sprintf("%d-%d %s %d", begin, end, commText(who.name[:]), who.cgroup))
	})
	if s := strings.Join(got, ", "); s != "100-200 hog 30, 200-300 hog2 40" {
		t.Error(s)
	}
}
