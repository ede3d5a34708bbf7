package guest

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rdmatrace/rdmatrace/event"
	"github.com/rdmatrace/rdmatrace/testbed/witness"
)

// TestIndependentTruth has the kernel's own tracer record the same run: what
// rdmatrace charges to run queues and to handlers is what follows from that, with
// a competitor and a flood of interrupts on the client's CPU and without.
func TestIndependentTruth(t *testing.T) {
	inGuest(t)
	const events, polling = "ibv_rc_pingpong -e -g 0 -n 50", "ib_send_lat -x 0 -F -n 30"
	t.Run("events", func(t *testing.T) { judged(t, events, nil) })
	t.Run("events, competitor", func(t *testing.T) { competitor(t, events) })
	t.Run("polling", func(t *testing.T) { judged(t, polling, nil) })
	t.Run("polling, flood", func(t *testing.T) {
		takeInterrupts(t, "eth1", busyCPU)
		judged(t, polling, func() { datagrams(t, "4000") }) // what its rings hold
	})
}

// busyCPU is the client's, and of what disturbs it; freeCPU has the rest.
const freeCPU, busyCPU = 0, 1

// judgement is a trace of a client, and what the kernel's tracer says.
type judgement struct {
	*traced
	parts []stretch
	truth witnesses
}

// judged traces a client from before its first work request to its end, beside
// the kernel's tracer, and compares what they say.
func judged(t *testing.T, argv string, disturb func()) *judgement {
	t.Helper()
	p := startPair(t, argv)
	client := p.client.Process.Pid
	bind(t, client, busyCPU)
	bind(t, p.server.Process.Pid, freeCPU)
	kernel := watch(t, client)
	tr := startTrace(t, "-p", strconv.Itoa(client))
	kernel.record(t, client)
	if disturb != nil {
		disturb()
	}
	p.relay.release()
	p.client.wait(t)
	p.server.wait(t)
	j := &judgement{traced: tr.result(t), truth: kernel.result(t)}
	j.sound(t)
	j.parts = stretches(t, j.traced)
	j.runQueues().within(t)
	j.handlers().within(t)
	_, name, _ := strings.Cut(t.Name(), "/")
	if !t.Failed() {
		feature("the kernel's own tracer, "+strings.ReplaceAll(name, "_", " "), "agrees on run queues and handlers")
	}
	return j
}

func bind(t *testing.T, pid, cpu int) {
	t.Helper()
	var one unix.CPUSet
	one.Set(cpu)
	if err := unix.SchedSetaffinity(pid, &one); err != nil {
		t.Fatal(err)
	}
}

// stretch is a part of a work request's latency that the host is charged for:
// in its posting call, or from done to reap.
type stretch struct {
	tid        int
	begin, end uint64
	posting    bool
}

// stretches of all work requests of a trace in which every send is signalled
// and every completion was seen written by the kernel.
func stretches(t *testing.T, got *traced) (out []stretch) {
	t.Helper()
	type call struct{ tid, n uint32 }
	sends, ended := map[call][]*event.Event{}, map[uint32][]uint64{}
	for i := range got.events {
		if e := &got.events[i]; e.Kind == event.KindWR && e.Flags&event.WRReceive == 0 {
			sends[call{e.TID, e.Verb.Call}] = append(sends[call{e.TID, e.Verb.Call}], e)
		}
	}
	for i := range got.events {
		e := &got.events[i]
		if e.Kind != event.KindPostEnd {
			continue
		}
		for _, wr := range sends[call{e.TID, e.Verb.Call}] {
			out = append(out, stretch{int(e.TID), e.Verb.Begin, e.Time, true})
			ended[wr.Verb.QPNum] = append(ended[wr.Verb.QPNum], e.Time)
		}
	}
	entries, reaped := byQueue(got.events, event.KindCQE), byQueue(got.events, event.KindCompletion)
	for cq, reaps := range reaped {
		for i, r := range reaps {
			if len(entries[cq]) <= i {
				t.Fatalf("%d completions, %d entries were written", len(reaps), len(entries[cq]))
			}
			s := stretch{tid: int(r.TID), begin: entries[cq][i].Time, end: r.Time}
			if r.Verb.Opcode&128 == 0 { // sends of a queue pair complete in order
				posts := ended[r.Verb.QPNum]
				s.begin, ended[r.Verb.QPNum] = max(s.begin, posts[0]), posts[1:]
			}
			out = append(out, s)
		}
	}
	return out
}

// charged is what a report charges, and what the kernel's tracer says to it.
type charged struct {
	what    string
	mine    int64
	kernels float64
	own     float64 // of which may be the recorders' own time, ns
}

// recorderNS is by how much an interval may seem longer to one recorder than to
// another: they take their times one after the other, in what may be cold caches at
// its begin and not at its end. Up to 14 us were seen in an emulated guest, where
// handlers of the local timer take 140 us, and a woken thread waits for 500 us.
const recorderNS = 20_000

// runQueues compares the time in which threads waited for a CPU.
func (j *judgement) runQueues() charged {
	c := charged{what: "run queues", mine: j.Classes.Scheduling.TotalNS + j.Received.Classes.Scheduling.TotalNS}
	c.kernels = j.truth.between(func(r *witness.Recording) (ns uint64) {
		for _, s := range j.parts {
			for _, w := range r.Waits(s.tid, s.begin, s.end) {
				ns += w.End - w.Begin
				c.own += recorderNS / float64(len(j.truth))
			}
		}
		return ns
	})
	return c
}

// handlers compares the time in which they ran on top of a thread or led to its
// wakeup.
func (j *judgement) handlers() charged {
	onTop, _ := j.both("interrupt.irq-on-top")
	woke, _ := j.both("interrupt.handler")
	c := charged{what: "handlers", mine: onTop + woke}
	c.kernels = j.truth.between(func(r *witness.Recording) (ns uint64) {
		for _, s := range j.parts {
			top, n := r.OnTop(s.tid, s.begin, s.end)
			ns += top
			if !s.posting {
				led, wakes := r.Handled(s.tid, s.begin, s.end)
				ns, n = ns+led, n+wakes
			}
			c.own += recorderNS * float64(n) / float64(len(j.truth))
		}
		return ns
	})
	return c
}

// within requires that both agree to 2 %, but for the recorders' own time.
func (c charged) within(t *testing.T) {
	t.Helper()
	off := float64(c.mine) - c.kernels
	said := fmt.Sprintf("%s: %d ns, %.0f ns by the kernel's tracer, %+.2f %%", c.what, c.mine, c.kernels, 100*off/c.kernels)
	t.Log(said)
	if c.kernels == 0 || math.Abs(off) > 0.02*c.kernels+c.own {
		t.Error("they disagree: " + said)
	}
}
