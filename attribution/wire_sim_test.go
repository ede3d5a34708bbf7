package attribution

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// simPath is a simulated NIC, wire and peer: the truth that the split of the
// wire is held against. A WR is transmitted when its queue pair's previous one
// and the port are free, and done a base later.
type simPath struct {
	base     uint64  // ns
	perByte  float64 // ns
	jitter   int     // done comes up to so many ns later
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
	done := q.sent + p.base + uint64(p.random.IntN(p.jitter))
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
	if len(all) > delayedWRs {
		t.Fatalf("%d WRs: the first ones would leave the delay line", len(all))
	}
	r := &splitRun{agg: newAggregates(cfg, nil)}
	for i := range all {
		r.agg.add(&all[i].m)
	}
	for _, f := range r.agg.lines {
		f.fitLine(&r.agg.fits, r.agg.port(portName{f.key.device, f.key.port}).link)
	}
	for i := range all {
		d := r.agg.line.take()
		r.agg.settle(d)
		p := r.agg.parts
		checkPartition(t, &all[i].m, p, r.agg.wires.segments)
		w := splitWR{all[i], p}
		r.wrs = append(r.wrs, w)
		if all[i].m.receive {
			continue
		}
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

func checkPartition(t testing.TB, m *measured, p parts, segments []segment) {
	t.Helper()
	if p.latency != m.latency() {
		t.Fatalf("parts of WR %d add up to %d, latency is %d", m.index, p.latency, m.latency())
	}
	var was parts
	was.sum(m.segments)
	if was.classes != p.classes {
		t.Fatalf("classes of WR %d were %v and are %v", m.index, was.classes, p.classes)
	}
	for i := range segments {
		if segments[i].begin >= segments[i].end {
			t.Fatalf("segment %+v of WR %d", segments[i], m.index)
		}
		if i > 0 && segments[i].begin != segments[i-1].end && was.latency > 0 {
			t.Fatalf("WR %d: %+v does not follow %+v", m.index, segments[i], segments[i-1])
		}
	}
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
