package attribution

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/rdmatrace/rdmatrace/event"
)

// simPath is a simulated NIC, wire and peer: the truth that the split of the
// wire is held against. A WR is transmitted when its queue pair's previous one
// and the port are free, and done a base later.
type simPath struct {
	base     uint64  // ns
	perByte  float64 // ns
	jitter   int     // done comes up to so many ns later
	tail     float64 // and so many ns on average, exponentially distributed
	portFree uint64
	random   *rand.Rand
}

func newSimPath(base uint64, perByte float64) *simPath {
	return &simPath{base: base, perByte: perByte, jitter: 1, random: rand.New(rand.NewPCG(1, 2))}
}

// simQueue is a program that keeps depth WRs in flight on one queue pair.
type simQueue struct {
	qp     *queuePair
	opcode uint8
	wrs    int
	depth  int
	batch  int // completions are taken, and posts made, so many at a time
	size   func(i int) uint64
	think  uint64             // ns from a completion to the post it allows
	signal int                // only one in so many is signalled
	stall  func(i int) uint64 // injected: ns that the wire is stuck
	late   func(i int) uint64 // injected: ns that it is done later, while the port goes on
	alter  func(m *measured)  // changes what is handed over
	posted []uint64
	done   []uint64
	sent   uint64 // when the last one left
	out    []simWR
}

// simWR is a WR with what really happened to it.
type simWR struct {
	m             measured
	queued, stuck uint64 // behind its own queue pair's WRs; stuck itself
	shared        uint64 // waited for the port while its queue pair could send
}

func fixed(size uint64) func(int) uint64 { return func(int) uint64 { return size } }

const simStart = 1_000_000_000

const simPost = 150 // ns in the posting call

// allowed is when WR i may be posted.
func (q *simQueue) allowed() (uint64, bool) {
	i := len(q.done)
	if i >= q.wrs {
		return 0, false
	}
	at := uint64(simStart)
	if i > 0 {
		at = q.posted[i-1] + simPost
	}
	if i >= q.depth {
		batch := max(q.batch, 1)
		last := (i-q.depth)/batch*batch + batch - 1
		at = max(at, q.done[min(last, i-1)]+q.think)
	}
	return at, true
}

func (p *simPath) step(q *simQueue, postBegin uint64) {
	i := len(q.done)
	size := q.size(i)
	postEnd := postBegin + simPost
	w := simWR{}
	free := max(postEnd, q.sent)
	if limit := int(q.qp.maxRDAtomic); isRead(q.opcode) && limit > 0 && i >= limit {
		free = max(free, q.done[i-limit])
	}
	w.queued = free - postEnd
	start := max(free, p.portFree)
	w.shared = start - free
	if q.stall != nil {
		w.stuck = q.stall(i)
	}
	q.sent = start + uint64(float64(size)*p.perByte) + w.stuck
	p.portFree = max(p.portFree, q.sent)
	done := q.sent + p.base + uint64(p.random.IntN(p.jitter)) + uint64(p.tail*p.random.ExpFloat64())
	if q.late != nil {
		done += q.late(i)
	}
	if i > 0 {
		done = max(done, q.done[i-1])
	}
	q.posted = append(q.posted, postBegin)
	q.done = append(q.done, done)
	w.m = measured{
		qp: q.qp, index: int64(i), opcode: q.opcode, bytes: size, chained: 1,
		postTID: 11, reapTID: 11,
		postBegin: postBegin, postEnd: postEnd, doneLow: done, doneHigh: done, done: done, reap: done + 100,
		doneSource: DoneCQE, demand: Waited,
		segments: []segment{
			{begin: postBegin, end: postEnd, cause: Submit, tid: 11},
			{begin: postEnd, end: done, cause: WireUnsplit, cpu: -1},
			{begin: done, end: done + 100, cause: Reap, tid: 11},
		},
	}
	if q.signal > 1 {
		if i%q.signal != q.signal-1 {
			return
		}
		w.m.retired, w.m.retBytes = int32(q.signal-1), uint64(q.signal-1)*size
	}
	if q.alter != nil {
		q.alter(&w.m)
	}
	q.out = append(q.out, w)
}

// run the programs together and give their WRs in the order of reaping.
func (p *simPath) run(queues ...*simQueue) []simWR {
	for {
		var next *simQueue
		var at uint64
		for _, q := range queues {
			if t, more := q.allowed(); more && (next == nil || t < at) {
				next, at = q, t
			}
		}
		if next == nil {
			break
		}
		p.step(next, at)
	}
	var all []simWR
	for _, q := range queues {
		all = append(all, q.out...)
	}
	slices.SortStableFunc(all, func(a, b simWR) int { return int(int64(a.m.reap - b.m.reap)) })
	return all
}

func testQP(num uint32) *queuePair {
	return &queuePair{pid: 100, num: num, qpType: 2, peer: "lid 1 qp 0x99", device: "mlx5_0", port: 1, state: stateReadyToSend, maxSendWR: 128}
}

// splitRun hands the WRs over and gives the sums of causes of the last part,
// when floors are known, beside what really happened.
type splitRun struct {
	agg            *aggregates
	report         *Report
	causes         [numCauses]uint64
	wire           uint64
	queued, shared uint64
	stuck          uint64
	wrs            []splitWR
}

type splitWR struct {
	simWR
	parts parts
}

func splitAll(t testing.TB, all []simWR) *splitRun {
	t.Helper()
	return splitWith(t, Config{}, all)
}

func splitWith(t testing.TB, cfg Config, all []simWR) *splitRun {
	t.Helper()
	r := &splitRun{}
	settled := 0
	cfg.Observe = func(wr *WR, segments []Segment) {
		m := &all[settled].m
		settled++
		if wr.Index != m.index || wr.QPNum != m.qp.num {
			t.Fatalf("WR %d of queue pair %d is settled, not %d of %d", wr.Index, wr.QPNum, m.index, m.qp.num)
		}
		r.wrs = append(r.wrs, splitWR{all[settled-1], checkPartition(t, m, segments)})
	}
	r.agg = newAggregates(cfg, nil)
	for i := range all {
		r.agg.add(fresh(&all[i].m))
	}
	r.report = r.agg.finish(&event.Context{}, nil)
	for _, w := range r.wrs {
		p := w.parts
		for c, ns := range p.causes {
			r.causes[c] += ns
		}
		r.wire += p.classes[Wire]
		r.queued += w.queued
		r.shared += w.shared
		r.stuck += w.stuck
	}
	return r
}

// checkPartition of the segments a WR is split into: they tile its latency, and
// no class has gained or lost.
func checkPartition(t testing.TB, m *measured, segments []Segment) (p parts) {
	t.Helper()
	var was parts
	was.sum(m.segments)
	for i, s := range segments {
		p.add(s.Cause, s.End-s.Begin)
		if s.Begin >= s.End || i > 0 && s.Begin != segments[i-1].End {
			t.Fatalf("WR %d: segments %+v", m.index, segments)
		}
	}
	if p.latency != m.latency() || was.classes != p.classes {
		t.Fatalf("WR %d of %d ns in %v became %d ns in %v", m.index, m.latency(), was.classes, p.latency, p.classes)
	}
	return p
}

// share of the wire time, in percent.
func (r *splitRun) share(causes ...Cause) float64 {
	var ns uint64
	for _, c := range causes {
		ns += r.causes[c]
	}
	return 100 * float64(ns) / float64(r.wire)
}

func (r *splitRun) blame(t testing.TB) {
	t.Helper()
	for c, ns := range r.causes {
		if ns > 0 && Cause(c).Class() == Wire {
			t.Logf("%-18s %6.2f %%", Cause(c), 100*float64(ns)/float64(r.wire))
		}
	}
	t.Logf("truth: queued %.2f %%, shared %.2f %%, stuck %.2f %%", 100*float64(r.queued)/float64(r.wire),
		100*float64(r.shared)/float64(r.wire), 100*float64(r.stuck)/float64(r.wire))
	for _, f := range r.agg.lines {
		t.Logf("floor %+v: %+v of %d WRs, %d idle", f.key, f.fit, f.count, f.idle)
	}
}
