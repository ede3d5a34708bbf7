package attribution

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"testing"

	"github.com/rdmatrace/rdmatrace/event"
	"github.com/rdmatrace/rdmatrace/internal/testenv"
)

// bigJob makes the events of a large job, one at a time and without allocating:
// 16 threads with 512 queue pairs on 4 devices, 1,000 stacks, 15 sizes, 4
// operations, queues up to 16 deep, jitter and stalls, and 200 processes that
// take the threads' CPUs from them.
type bigJob struct {
	random *rand.Rand
	engine *Engine
	e      event.Event
	clock  uint64
	calls  [bigThreads]uint32
	qps    [bigQPs]bigQP
	wrs    int64
}

const (
	bigThreads = 16
	bigQPs     = 512
	bigDevices = 4
	bigDepth   = 16
	bigStacks  = 1000
	bigHogs    = 200
	bigThread  = 2000 // the first one's number
)

// bigQP holds what is in flight: WQE indices head to tail.
type bigQP struct {
	head, tail uint16
	done       [bigDepth]uint64
	last       uint64
}

func newBigJob(e *Engine) *bigJob {
	j := &bigJob{random: rand.New(rand.NewPCG(7, 11)), engine: e, clock: 1e12}
	for i := range uint64(bigDevices) {
		j.object(event.KindDeviceContext, event.ObjectFound, event.Object{Context: &event.DeviceContext{Addr: 1 + i, Device: fmt.Sprintf("mlx5_%d", i)}})
	}
	for i := range uint64(bigQPs) {
		j.object(event.KindQP, event.ObjectCreated, event.Object{QP: &event.QP{
			Addr: tapeQP + i*0x100, Num: uint32(0x100 + i), Context: 1 + i%bigDevices, SendCQ: tapeCQ + i%bigThreads, Type: 2, State: 3,
			MaxSendWR: 2 * bigDepth, Port: 1, DestNum: uint32(i), DLID: uint16(1 + i%5)}})
	}
	return j
}

func (j *bigJob) object(kind event.Kind, what event.ObjectEvent, o event.Object) {
	o.Event = what
	j.add(event.Event{Kind: kind, Object: &o})
}

func (j *bigJob) add(e event.Event) {
	e.Time, e.PID = j.clock, tapePID
	j.e = e
	j.engine.Add(&j.e)
}

// step posts one WR to a queue pair and reaps what of it is done.
func (j *bigJob) step() {
	i := j.random.IntN(bigQPs)
	thread := i % bigThreads
	tid, cpu := uint32(bigThread+thread), uint16(thread)
	q := &j.qps[i]
	if j.random.IntN(20) == 0 {
		j.preempt(tid, cpu)
	}
	j.clock += 2000 // half a million WRs a second: more than any tracer brings
	if q.tail-q.head < bigDepth {
		j.post(i, tid, cpu)
	}
	for q.head != q.tail && q.done[q.head%bigDepth] < j.clock {
		begin := j.clock
		j.clock += 150
		j.add(event.Event{TID: tid, CPU: cpu, Kind: event.KindCompletion, Flags: event.CompletionWQEValid | event.CompletionHWTime, Verb: event.Verb{
			CQ: tapeCQ + uint64(thread), QPNum: uint32(0x100 + i), WRID: 7, Begin: begin, HWTime: q.done[q.head%bigDepth], Count: 1, WQE: q.head}})
		q.head++
		j.wrs++
	}
}

func (j *bigJob) post(i int, tid uint32, cpu uint16) {
	q, thread := &j.qps[i], i%bigThreads
	j.calls[thread]++
	v := event.Verb{
		QP: tapeQP + uint64(i)*0x100, QPNum: uint32(0x100 + i), WRID: 7, Begin: j.clock, Call: j.calls[thread], Bytes: 64 << j.random.IntN(15),
		Stack: 1 + uint64(j.random.IntN(bigStacks)), SendFlags: sendSignaled, Opcode: []uint8{0, 1, 2, 4}[j.random.IntN(4)],
		WQE: q.tail, Count: 1, BadIndex: -1,
	}
	j.add(event.Event{TID: tid, CPU: cpu, Kind: event.KindWR, Flags: event.WRWQEValid, Verb: v})
	j.clock += 100 + uint64(j.random.IntN(200))
	j.add(event.Event{TID: tid, CPU: cpu, Kind: event.KindPostEnd, Verb: v})
	wire := 3000 + uint64(v.Bytes)/12 + uint64(j.random.ExpFloat64()*800)
	if j.random.IntN(1000) == 0 {
		wire += uint64(j.random.ExpFloat64() * 3e6)
	}
	q.last = max(j.clock+wire, q.last)
	q.done[q.tail%bigDepth] = q.last
	q.tail++
}

func (j *bigJob) preempt(tid uint32, cpu uint16) {
	hog := uint32(10_000 + j.random.IntN(bigHogs))
	j.add(event.Event{TID: tid, CPU: cpu, Kind: event.KindSample, Sample: event.Sample{Stack: 1 + uint64(j.wrs)%bigStacks, Period: 5_000_000}})
	s := event.Sched{PrevTID: tid, PrevPID: tapePID, NextTID: hog, NextPID: hog, Syscall: -1, NextComm: event.Comm{'h', 'o', 'g'}, NextCgroup: uint64(hog),
		PrevStack: 1 + uint64(j.wrs)%bigStacks}
	j.add(event.Event{TID: tid, CPU: cpu, Kind: event.KindSwitch, Flags: event.SwitchPrevTarget | event.SwitchPreempt, Sched: s})
	j.clock += 1000 + uint64(j.random.ExpFloat64()*20_000)
	s = event.Sched{PrevTID: hog, PrevPID: hog, NextTID: tid, NextPID: tapePID, Syscall: -1, PrevComm: event.Comm{'h', 'o', 'g'}, PrevCgroup: uint64(hog)}
	j.add(event.Event{TID: hog, CPU: cpu, Kind: event.KindSwitch, Flags: event.SwitchNextTarget, Sched: s})
}

// liveHeap is what is reachable, in bytes.
func liveHeap() uint64 {
	var now runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&now)
	return now.HeapAlloc
}

// From the first event to the report: 512 queue pairs and 1,000 stacks take less
// than 200 MB of heap, and once they have all been seen not more, however many
// WRs come. make soak has 10 million.
func TestMemoryOfAnalysis(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(50)) // as rdmatrace does
	wrs := int64(testenv.Soak(t, 600_000, 10_000_000))
	warm := max(wrs/3, 450_000) // by then all cells and sites are there
	before := liveHeap()
	engine := New(Config{Arch: "x86_64"})
	j := newBigJob(engine)
	var now runtime.MemStats
	var most, full uint64
	for j.wrs < wrs {
		until := min(j.wrs+100_000, wrs)
		for j.wrs < until {
			j.step()
		}
		runtime.ReadMemStats(&now)
		most = max(most, now.HeapAlloc)
		if full == 0 && j.wrs >= warm {
			full = liveHeap() - before
		}
	}
	end := liveHeap() - before
	ctx := &event.Context{Window: event.Window{Begin: 1e12, End: j.clock}}
	r := engine.Finish(ctx)
	runtime.ReadMemStats(&now)
	most = max(most, now.HeapAlloc)
	t.Logf("%d WRs: %d MB live, %d MB after %d of them, %d MB at most; %d queue pairs, %d samples, %d incidents",
		r.WRs.Completed, end>>20, full>>20, warm, most>>20, len(r.Queues), len(r.Samples), len(r.Incidents))
	if most > 200e6 {
		t.Errorf("%d bytes of heap", most)
	}
	if end > full+full/10 {
		t.Errorf("%d bytes live after %d WRs, %d at the end", full, warm, end)
	}
	if r.WRs.Completed < wrs || r.WRs.Excluded+r.WRs.Lost > 0 || len(r.Queues) != bigQPs || r.Latency.Count < wrs {
		t.Errorf("not all is measured: %+v, %d queue pairs, %d latencies; %q", r.WRs, len(r.Queues), r.Latency.Count, r.Doubts)
	}
}
