package attribution

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rdmatrace/rdmatrace/event"
)

// Samples of one site: one that counts, and one for each cause and culprit.
func TestSamplesOfASite(t *testing.T) {
	a := newAggregates(Config{}, nil)
	qp := testQP(0x105)
	for i := range uint64(3) {
		m := measured{qp: qp, opcode: 4, bytes: 3000, chained: 1, postTID: 10, reapTID: 11, stack: 77, doneSource: DoneCQE, demand: Dependent,
			postBegin: i * 1000, postEnd: i*1000 + 100, done: i*1000 + 400, reap: i*1000 + 900}
		m.cut(m.postBegin, m.postEnd, Submit)
		m.cut(m.postEnd, m.done, WireUnsplit)
		m.cut(m.done, m.done+300, Preempted)
		m.cut(m.done+300, m.reap, Preempted)
		m.segments[2].who, m.segments[3].who = kept(task("hog", 5)), kept(task("cron", 6))
		a.add(&m)
	}
	ctx := &event.Context{Threads: []event.Thread{{TID: 10, Comm: "post"}, {TID: 11, Comm: "poll"}}}
	whole := Sample{Stack: 77, PID: 100, Labels: Labels{
		Op: "READ", Size: "4KiB", QP: "0x105", Peer: "lid 1", Device: "mlx5_0", Transport: "RC",
		PostThread: "post/10", ReapThread: "poll/11", DoneSource: DoneCQE, Demand: Dependent,
	}}
	leaf := func(cause Cause, who string, ns int64) Sample {
		s := whole
		s.Leaf, s.Cause, s.Who, s.NS = true, cause, who, ns
		return s
	}
	counted := whole
	counted.Count = 3
	want := []Sample{counted, leaf(Submit, "", 300), leaf(Preempted, "cron (pid 6)", 600), leaf(Preempted, "hog (pid 5)", 900), leaf(WireUnsplit, "", 900)}
	r := a.finish(ctx, nil)
	if diff := cmp.Diff(want, r.Samples); diff != "" {
		t.Error(diff)
	}
	keys := map[string]string{}
	for _, g := range r.Groups {
		keys[g.By] = g.Key
	}
	if diff := cmp.Diff(map[string]string{"op": "READ", "size": "3000", "op+size": "READ 3000", "qp": "mlx5_0 0x105", "peer": "lid 1",
		"device": "mlx5_0", "thread": "post/10"}, keys); diff != "" {
		t.Error(diff)
	}
}

// Where keys are many, labels go before stacks, and no time is lost.
func TestSitesLoseLabelsNotTime(t *testing.T) {
	a := newAggregates(Config{}, nil)
	qps := make([]*queuePair, 200)
	for i := range qps {
		qps[i] = testQP(uint32(i))
	}
	add := func(i, stack, ns uint64) {
		m := measured{qp: qps[i%200], bytes: 1, chained: 1, postTID: uint32(1 + i%7), reapTID: 1, stack: stack, postBegin: i, postEnd: i + ns, done: i + ns, reap: i + ns}
		m.cut(m.postBegin, m.postEnd, Submit)
		a.add(&m)
	}
	const wrs = 300_000
	for i := range uint64(wrs) {
		add(i, i/200%50, 100) // 10,000 pairs of queue pair and stack, 7 threads
		add(i, 999, 50)
	}
	r := a.finish(&event.Context{}, nil)
	stacks := map[uint64]int64{}
	full := int64(0)
	for _, s := range r.Samples {
		stacks[s.Stack] += s.NS
		if s.Labels.QP != other {
			full += s.NS
		}
	}
	if len(stacks) != 51 || stacks[999] != wrs*50 {
		t.Errorf("%d stacks, %d ns at one that has %d", len(stacks), stacks[999], wrs*50)
	}
	if n := len(a.sites.byKey); n > sitesMost {
		t.Errorf("%d sites", n)
	}
	if full == 0 {
		t.Error("no site kept its labels")
	}
}
