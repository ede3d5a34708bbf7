package attribution

import (
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/rdmatrace/rdmatrace/event"
	"github.com/rdmatrace/rdmatrace/internal/testenv"
)

// load makes synthetic WRs of a large job without allocating: 512 queue pairs,
// 1,000 stacks, 30 sizes, 4 operations, 16 threads, 200 culprits, deep queues,
// jitter and stalls.
type load struct {
	random   *rand.Rand
	qps      []*queuePair
	clock    uint64
	done     [512]uint64
	index    [512]int64
	culprits culpritSet
	m        measured
	narrow   bool // one queue pair, operation, size and stack
}

func newLoad() *load {
	l := &load{random: rand.New(rand.NewPCG(3, 5)), clock: 1e12}
	for i := range 512 {
		qp := testQP(uint32(0x100 + i))
		qp.device = []string{"mlx5_0", "mlx5_1", "mlx5_2", "mlx5_3"}[i%4]
		qp.peer = []string{"lid 1 qp 0x1", "lid 2 qp 0x2", "lid 3 qp 0x3", "lid 4 qp 0x4", "lid 5 qp 0x5"}[i%5]
		l.qps = append(l.qps, qp)
	}
	l.m.segments = make([]segment, 0, 16)
	return l
}

func (l *load) next() *measured {
	l.clock += uint64(l.random.IntN(1000))
	i := l.random.IntN(512)
	m := &l.m
	segments := m.segments[:0]
	thread := uint32(1000 + i%16)
	*m = measured{
		qp: l.qps[i], index: l.index[i], opcode: uint8([]int{0, 1, 2, 4}[l.random.IntN(4)]), bytes: 64 << l.random.IntN(15), chained: 1,
		postTID: thread, reapTID: thread, stack: uint64(l.random.IntN(1000)), doneSource: DoneCQE, demand: Demand(l.random.IntN(3)),
		postBegin: l.clock, postEnd: l.clock + 300 + uint64(l.random.IntN(200)),
	}
	if l.narrow {
		i, m.qp, m.opcode, m.bytes, m.stack, m.demand = 0, l.qps[0], 0, 4096, 1, Waited
	}
	l.index[i]++
	wire := 3000 + m.bytes/12 + uint64(l.random.ExpFloat64()*800)
	if l.random.IntN(1000) == 0 {
		wire += uint64(l.random.ExpFloat64() * 3e6)
	}
	m.done = max(m.postEnd+wire, l.done[i])
	l.done[i] = m.done
	m.doneLow, m.doneHigh = m.done, m.done+50
	cut := func(ns uint64, cause Cause, who culprit) {
		begin := m.postBegin
		if n := len(segments); n > 0 {
			begin = segments[n-1].end
		}
		tid := thread
		if cause == WireUnsplit {
			tid = 0
		}
		segments = append(segments, segment{begin: begin, end: begin + ns, cause: cause, who: l.culprits.keep(who), tid: tid, cpu: 1})
	}
	cut(m.postEnd-m.postBegin, Submit, culprit{})
	cut(m.done-m.postEnd, WireUnsplit, culprit{})
	cut(1+uint64(l.random.IntN(900)), LatePoll, culprit{})
	switch l.random.IntN(20) {
	case 0:
		cut(1000+uint64(l.random.IntN(9000)), IRQOnTop, culprit{kind: culpritTimer})
	case 1:
		who := culprit{kind: culpritTask, id: uint32(l.random.IntN(200)), name: [16]byte{'h', 'o', 'g'}}
		who.pid = who.id
		cut(uint64(1+l.random.ExpFloat64()*300_000), Preempted, who)
	}
	cut(100+uint64(l.random.IntN(100)), Reap, culprit{})
	m.segments = segments
	m.reap = segments[len(segments)-1].end
	return m
}

// The documented bound: 512 queue pairs and 1,000 stacks in less than 200 MB of
// heap, however many WRs. All that is kept is full after the first million; it
// must not grow after that. make soak has 10 million.
func TestMemoryIsBounded(t *testing.T) {
	const first = 1_000_000
	wrs := testenv.Soak(t, 2*first, 10*first)
	var now runtime.MemStats
	a, l := newAggregates(Config{}, nil), newLoad()
	most, full := uint64(0), uint64(0)
	live := func() uint64 {
		runtime.GC()
		runtime.ReadMemStats(&now)
		return now.HeapAlloc
	}
	before := live()
	for i := range wrs {
		m := l.next()
		a.posted(m.qp, m.postBegin, m.postTID, m.opcode, m.bytes, 3)
		a.add(m)
		a.retired(m.qp, m.reap, 1, m.bytes, int32(i%4))
		if i%250_000 == 0 {
			runtime.ReadMemStats(&now)
			most = max(most, now.HeapAlloc)
		}
		if i+1 == first {
			full = live() - before
		}
	}
	end := live() - before
	r := a.finish(&event.Context{}, l.qps)
	runtime.ReadMemStats(&now)
	most = max(most, now.HeapAlloc)
	t.Logf("%d WRs: %d MB live, %d MB after the first million, %d MB at most; %d groups, %d samples, %d incidents",
		wrs, end>>20, full>>20, most>>20, len(r.Groups), len(r.Samples), len(r.Incidents))
	if most > 200e6 {
		t.Errorf("%d bytes of heap", most)
	}
	if end > full+full/5 { // rare latencies open buckets
		t.Errorf("%d bytes live after the first million WRs, %d at the end", full, end)
	}
	if r.Latency.Count != int64(wrs) || len(r.Incidents) != incidentsKept {
		t.Errorf("%d WRs, %d incidents", r.Latency.Count, len(r.Incidents))
	}
}

// A WR costs no allocation once the run has shown what there is.
func TestAddAllocatesNothing(t *testing.T) {
	a, l := newAggregates(Config{}, nil), newLoad()
	add := func() {
		m := l.next()
		a.posted(m.qp, m.postBegin, m.postTID, m.opcode, m.bytes, 3)
		a.add(m)
		a.retired(m.qp, m.reap, 1, m.bytes, 1)
	}
	l.random = rand.New(rand.NewPCG(3, 5))
	for range 600_000 {
		add()
	}
	// New extremes still open a bucket now and then: less than one allocation in
	// a hundred WRs.
	if n := testing.AllocsPerRun(100_000, add); n > 0.01 {
		t.Errorf("%v allocations a WR", n)
	}
}

// BenchmarkAdd: a large job, and one queue pair with one size as perftest has it.
func BenchmarkAdd(b *testing.B) {
	for _, c := range []struct {
		name   string
		narrow bool
	}{{"512 queue pairs", false}, {"one queue pair", true}} {
		b.Run(c.name, func(b *testing.B) {
			a, l := newAggregates(Config{}, nil), newLoad()
			l.narrow = c.narrow
			for range 500_000 {
				a.add(l.next())
			}
			b.ReportAllocs()
			for b.Loop() {
				a.add(l.next())
			}
		})
	}
}

// BenchmarkLoad is what of BenchmarkAdd is the load itself.
func BenchmarkLoad(b *testing.B) {
	l := newLoad()
	for b.Loop() {
		l.next()
	}
}
