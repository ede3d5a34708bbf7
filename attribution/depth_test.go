package attribution

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rdmatrace/rdmatrace/event"
)

// scripted is a timeline that repeats: 30 ns running, 20 runnable, 50 asleep in read.
type scripted struct{ asked []interval }

func (s *scripted) walk(tid uint32, begin, end uint64, span func(threadState, uint64, uint64, int32)) {
	s.asked = append(s.asked, interval{begin, end})
	for at := begin; at < end; {
		stage, stop := at%100, at-at%100
		state, syscall := stateRunning, int32(-1)
		switch {
		case stage < 30:
			stop += 30
		case stage < 50:
			state, stop = stateRunnable, stop+50
		default:
			state, syscall, stop = stateAsleep, 0, stop+100
		}
		span(state, at, min(stop, end), syscall)
		at = min(stop, end)
	}
}

func TestQueueIsDescribed(t *testing.T) {
	threads := &scripted{}
	a := newAggregates(Config{}, threads)
	qp := testQP(5)
	// Two WRs from 1000, done at 2000 and 3000; idle until 4000; one WR that is
	// done at 4500; idle until the end at 5000.
	a.posted(qp, 1000, 7, 0, 4096, 0)
	a.posted(qp, 1100, 7, 4, 64, 1)
	a.retired(qp, 2000, 1, 4096, 1)
	a.retired(qp, 3000, 1, 64, 0)
	a.posted(qp, 4000, 7, 0, 4096, 0)
	a.retired(qp, 4500, 1, 4096, 0)
	ctx := &event.Context{Window: event.Window{Begin: 0, End: 5000}}
	r := a.finish(ctx, []*queuePair{qp, testQP(6)})
	seconds := float64(ctx.Window.End) / 1e9
	want := []Queue{{
		PID: 100, QPNum: 5, Device: "mlx5_0", Peer: "lid 1 qp 0x99", QueueSize: 128, Backlog: Backlog{
			Posted: 3, DepthMean: 1.0 / 3, DepthMax: 1, DepthKnown: 3,
			// Before the first post nobody was asked.
			IdleNS: 1000 + 1000 + 500, WindowNS: 5000, IdleRunning: 450, IdleRunnable: 300, IdleAsleep: 750, IdleUnknown: 1000,
			IdleSyscalls: []Culprit{{Name: "read", TotalNS: 750, Count: 15}},
			BytesPerSec:  8256 / seconds, WRsPerSec: 3 / seconds,
		},
	}, {
		PID: 100, QPNum: 6, Device: "mlx5_0", Peer: "lid 1 qp 0x99", QueueSize: 128,
		Backlog: Backlog{IdleNS: 5000, WindowNS: 5000, IdleUnknown: 5000},
	}}
	if diff := cmp.Diff(want, r.Queues); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]interval{{3000, 4000}, {4500, 5000}, {4500, 5000}}, threads.asked, cmp.AllowUnexported(interval{})); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(want[0].Backlog, r.Ports[0].Backlog); diff != "" {
		t.Error("the port of one queue pair: " + diff)
	}
	if p := r.Ports[0]; p.TracedSent != 8192 || p.TracedRecv != 64 || p.PortSent != -1 || p.PortRecv != -1 {
		t.Errorf("port %+v", p)
	}
}

// Until it is proven what was in flight when tracing began, neither depth nor idle time are known.
func TestDepthIsNotKnownAtFirst(t *testing.T) {
	a := newAggregates(Config{}, nil)
	qp := testQP(5)
	a.posted(qp, 1000, 7, 0, 64, depthUnknown)
	a.retired(qp, 1500, 1, 64, depthUnknown)
	a.posted(qp, 2000, 7, 0, 64, depthUnknown)
	a.retired(qp, 2500, 1, 64, 0)
	a.posted(qp, 3000, 7, 0, 64, 0)
	a.posted(qp, 3001, 7, 0, 64, 1)
	q := a.finish(&event.Context{Window: event.Window{Begin: 0, End: 5000}}, []*queuePair{qp}).Queues[0]
	if q.Posted != 4 || q.DepthKnown != 2 || q.DepthMax != 1 || q.DepthMean != 0.5 || q.IdleNS != 500 {
		t.Errorf("%+v", q)
	}
}

// A completion without WQE index waits, where several threads may poll, and those
// behind it only as long as it does. What is in flight meanwhile is not known.
func TestDepthWhileCompletionsWait(t *testing.T) {
	const apart = 80_000
	tp := newTape()
	tp.found(4)
	for i := range uint64(1000) {
		at := 1_000_000 + i*apart
		tp.post(worker, at, at+1000, wr{id: i, wqe: 100 + int(i)})
		v, flags := event.Verb{WRID: i, WQE: uint16(100 + i)}, uint32(event.CompletionWQEValid)
		if i == 0 {
			v.WQE, flags = 0, 0
		}
		tp.reap(helper, at+39_000, at+40_000, v, flags)
	}
	e := New(Config{})
	for i := range tp.events {
		e.Add(&tp.events[i])
	}
	q := e.Finish(&event.Context{Window: event.Window{Begin: 1, End: 1_000_000 + 1000*apart}}).Queues[0]
	if q.DepthMax != 0 || q.DepthKnown < 1000-overlapNS/apart-10 || q.DepthKnown == 1000 {
		t.Errorf("depth is %.1f, %d at most, known of %d of 1000", q.DepthMean, q.DepthMax, q.DepthKnown)
	}
}

// Where it waits, it is measured later, when more was posted: that the queue was full
// then says nothing.
func TestDemandWhileCompletionsWait(t *testing.T) {
	const apart = 80_000
	for _, room := range []uint32{4, 64} {
		tp := newTape()
		tp.found(room)
		for i := range uint64(1000) {
			at := 1_000_000 + i*apart
			tp.post(worker, at, at+1000, wr{id: i, wqe: 100 + int(i)})
			reaper := uint32(helper)
			if i%2 == 1 {
				reaper = third
			}
			tp.reap(reaper, at+39_000, at+40_000, event.Verb{WRID: i}, 0)
		}
		_, rec := tp.play(t, Config{})
		for _, m := range rec.wrs {
			if m.demand == Dependent {
				t.Fatalf("room %d: WR %d was needed by the next post", room, m.index)
			}
		}
	}
}

// A queue pair is idle only as long as it is there: until it is destroyed, or until
// the last thread of its process ends.
func TestIdleUntilTheEnd(t *testing.T) {
	const window, end = 1_000_000, 600_000
	exits := func(tp *tape, at uint64, tid uint32) {
		tp.add(event.Event{Time: at, TID: tid, Kind: event.KindTask, Object: &event.Object{Task: &event.Task{Event: event.TaskExited}}})
	}
	for _, c := range []struct {
		name string
		ends func(tp *tape)
		want int64
	}{
		{"it stays", func(*tape) {}, window},
		{"destroyed", func(tp *tape) { tp.qp(end, event.ObjectDestroyed, nil) }, end},
		{"its process ends", func(tp *tape) { exits(tp, end-100, worker); exits(tp, end, helper) }, end},
		{"its process ends, a thread is preempted on its way", func(tp *tape) {
			exits(tp, end-300, worker)
			tp.sw(end-200, 0, worker, hog, event.Sched{}, event.SwitchPreempt)
			exits(tp, end-100, helper)
			tp.sw(end, 0, helper, hog, event.Sched{PrevState: 16}, event.SwitchPrevExited)
			tp.sw(end, 1, worker, hog, event.Sched{PrevState: 16}, event.SwitchPrevExited)
		}, end - 100},
		{"its process ends, the first thread last", func(tp *tape) { exits(tp, end-100, helper); exits(tp, end, worker) }, end},
		{"another thread ends", func(tp *tape) { exits(tp, end, helper) }, window},
		{"the first thread ends", func(tp *tape) { exits(tp, end, worker) }, window},
	} {
		tp := newTape()
		tp.made()
		tp.post(worker, 10_000, 11_000, wr{id: 1, wqe: 100})
		tp.reap(helper, 19_000, 20_000, event.Verb{WRID: 1, WQE: 100}, event.CompletionWQEValid)
		c.ends(tp)
		e := New(Config{})
		for i := range tp.events {
			e.Add(&tp.events[i])
		}
		q := e.Finish(&event.Context{Window: event.Window{Begin: 1, End: 1 + window}}).Queues[0]
		if q.WindowNS < c.want-1 || q.WindowNS > c.want || q.IdleNS < q.WindowNS-10_100 || q.IdleNS > q.WindowNS {
			t.Errorf("%s: idle for %d of %d ns, want %d", c.name, q.IdleNS, q.WindowNS, c.want)
		}
	}
}

// Records of two threads may overlap: time is counted once.
func TestGapsDoNotOverlap(t *testing.T) {
	a := newAggregates(Config{}, nil)
	qp := testQP(5)
	a.posted(qp, 1000, 7, 0, 64, 0)
	a.retired(qp, 2000, 1, 64, 0)
	a.posted(qp, 4000, 7, 0, 64, 0)
	a.retired(qp, 3000, 1, 64, 0)
	a.posted(qp, 4500, 7, 0, 64, 0)
	q := a.finish(&event.Context{Window: event.Window{Begin: 1000, End: 5000}}, []*queuePair{qp}).Queues[0]
	if q.IdleNS != 2500 {
		t.Errorf("%+v", q)
	}
}

func TestQueueMadeInTheWindow(t *testing.T) {
	a := newAggregates(Config{}, nil)
	qp := testQP(5)
	qp.created = 3000
	a.posted(qp, 3500, 7, 0, 64, 0)
	q := a.finish(&event.Context{Window: event.Window{Begin: 1000, End: 5000}}, []*queuePair{qp}).Queues[0]
	if q.WindowNS != 2000 || q.IdleNS != 500 || q.IdleUnknown != 500 {
		t.Errorf("%+v", q)
	}
}

func TestPortCounters(t *testing.T) {
	a := newAggregates(Config{}, nil)
	qp := testQP(5)
	qp.port = 0 // not known: the device has one
	for i := range int32(1000) {
		a.posted(qp, 10, 1, 0, 4096, i)
	}
	ctx := portContext("mlx5_0", moved("port_xmit_data", 1_100_000), moved("port_rcv_data", 20_000))
	p := a.finish(ctx, nil).Ports
	want := []PortReport{{Device: "mlx5_0", Port: 1, RateBPS: 100e9, TracedBPS: 4_096_000 * 8 / 10.0, TracedSent: 4_096_000, PortSent: 4_400_000, PortRecv: 80_000,
		Backlog: Backlog{Posted: 1000, DepthMean: 499.5, DepthMax: 999, DepthKnown: 1000, IdleNS: 10, IdleUnknown: 10, WindowNS: 10e9,
			WRsPerSec: 100, BytesPerSec: 409_600}}}
	if diff := cmp.Diff(want, p); diff != "" {
		t.Error(diff)
	}
}

func TestBypass(t *testing.T) {
	ucx := []event.Mapping{{PID: 100, Path: "/usr/lib/x86_64-linux-gnu/ucx/libuct_ib.so.0.0.0"}}
	busy := []event.PortCounter{moved("port_xmit_data", 5_000_000), moved("port_rcv_data", 5_000_000)}
	for _, c := range []struct {
		name     string
		mappings []event.Mapping
		counters []event.PortCounter
		posts    int
		state    uint32
		bypass   bool
		says     string
	}{
		{"UCX rc_mlx5", ucx, busy, 0, stateReadyToSend, true, "bypasses the verbs library (UCX rc_mlx5"},
		{"UCX rc_verbs posts on one of its queue pairs", ucx, busy, 9, stateReadyToSend, false, ""},
		{"UCX, idle", ucx, []event.PortCounter{moved("port_xmit_data", 100), moved("port_rcv_data", 100)}, 0, stateReadyToSend, false, ""},
		{"UCX, port without counters", ucx, nil, 0, stateReadyToSend, true, "may bypass the verbs library"},
		{"queue pair not ready to send", ucx, busy, 0, 1, false, ""},
		{"passive side of ib_write_bw", nil, busy, 0, stateReadyToSend, false, "the passive side"},
		{"nothing known", nil, nil, 0, stateReadyToSend, false, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			a := newAggregates(Config{}, nil)
			first, second := testQP(5), testQP(6)
			first.state, second.state = c.state, c.state
			for range c.posts {
				a.posted(second, 10, 1, 2, 64, 0)
			}
			ctx := portContext("mlx5_0", c.counters...)
			ctx.Mappings = c.mappings
			r := a.finish(ctx, []*queuePair{first, second})
			for _, q := range r.Queues {
				if q.Bypass != c.bypass {
					t.Errorf("queue pair %d: bypass is %t", q.QPNum, q.Bypass)
				}
			}
			said := strings.Join(r.Doubts, "; ")
			if c.says == "" && strings.Contains(said, "posted") || !strings.Contains(said, c.says) {
				t.Errorf("said %q, want %q", said, c.says)
			}
		})
	}
}

// What is in flight on a port may be in flight still, however many pauses and losses
// come before it is proven anew; what was empty is doubted once.
func TestPortForgets(t *testing.T) {
	p := &portBacklog{}
	var busy, empty flow
	p.holds(&busy, 3)
	p.holds(&empty, 0)
	for epoch := range 4 {
		p.forget()
		if !p.doubtful() || p.at(&busy) != flowUnknown {
			t.Errorf("after %d times that were not seen, the busy one is forgotten", epoch+1)
		}
		want := flowUnseen
		if epoch == 0 {
			want = flowUnknown
		}
		if got := p.at(&empty); got != want {
			t.Errorf("after %d times that were not seen, the empty one is %d, want %d", epoch+1, got, want)
		}
	}
	p.holds(&busy, 0)
	if p.doubtful() || p.empty != 1 || p.busy != 0 || p.inFlight != 0 {
		t.Errorf("proven empty: %+v", p)
	}
	p.holds(&empty, 2)
	p.holds(&busy, depthUnknown)
	p.set(&busy, flowUnseen, 0)
	if p.doubtful() || p.empty != 0 || p.busy != 1 || p.inFlight != 2 {
		t.Errorf("one is busy, the other gone: %+v", p)
	}
}
