package guest

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rdmatrace/rdmatrace/attribution"
	"github.com/rdmatrace/rdmatrace/event"
	"github.com/rdmatrace/rdmatrace/testbed/outcome"
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
		judged(t, polling, func() *process { return datagrams(t, rdmaWire, "10", "4000") }) // what its rings hold
	})
}

// busyCPU is the client's, and of what disturbs it; freeCPU has the rest.
const freeCPU, busyCPU = 0, 1

// judgement is a trace of a client, and what the kernel's tracer says.
type judgement struct {
	*traced
	parts []stretch
	truth []*witness.Recording // by place
}

// judged traces a client from before its first work request to its end, beside
// the kernel's tracer, and compares what they say. The kernel's tracer watches other
// threads, too.
func judged(t *testing.T, argv string, disturb func() *process, others ...int) *judgement {
	t.Helper()
	p := startPair(t, argv)
	client := p.client.Process.Pid
	bind(t, client, busyCPU)
	bind(t, p.server.Process.Pid, freeCPU)
	watched := append(others, client)
	kernel := watch(t, watched...)
	tr := startTrace(t, "-p", strconv.Itoa(client))
	kernel.record(t, watched...)
	var disturbance *process
	if disturb != nil {
		disturbance = disturb()
	}
	p.relay.release()
	p.client.wait(t)
	p.server.wait(t)
	kernel.stop(t)
	if disturbance != nil {
		_ = disturbance.Process.Signal(unix.SIGTERM) // what was recorded takes long to read
		disturbance.wait(t)
	}
	j := &judgement{traced: tr.result(t), truth: kernel.result(t)}
	j.sound(t)
	j.parts = stretches(t, j.traced)
	j.runQueues().within(t)
	j.handlers().within(t)
	j.running().within(t)
	if _, name, ok := strings.Cut(t.Name(), "/"); ok && !t.Failed() {
		feature("the kernel's own tracer, "+strings.ReplaceAll(name, "_", " "), "agrees on run queues, handlers and running")
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

// stretches of all work requests of a trace in which every send is signalled. They
// begin when the kernel was seen to write the completion; for the few whose entry it
// says it missed, where rdmatrace begins to charge the host.
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
	done := doneAt(t, got)
	for _, reaps := range byQueue(got.events, event.KindCompletion) {
		for _, r := range reaps {
			receive := r.Verb.Opcode&128 != 0
			at := reaping{r.Verb.QPNum, r.Time, receive}
			s := stretch{tid: int(r.TID), begin: done[at][0], end: r.Time}
			done[at] = done[at][1:]
			if !receive { // sends of a queue pair complete in order
				posts := ended[r.Verb.QPNum]
				s.begin, ended[r.Verb.QPNum] = max(s.begin, posts[0]), posts[1:]
			}
			out = append(out, s)
		}
	}
	return out
}

// endOfDoubt is where the host begins to be charged for a completion: behind the first
// stretch of wire, and of what may be. 0: there is none.
func endOfDoubt(segments []attribution.Segment) (end uint64) {
	for _, s := range segments {
		if c := s.Cause.Class(); c == attribution.Wire || c == attribution.Undecided {
			end = s.End
		} else if end > 0 {
			break
		}
	}
	return end
}

// doneAt is when the completions of each poll were written.
func doneAt(t *testing.T, got *traced) map[reaping][]uint64 {
	t.Helper()
	own := map[reaping][]uint64{}
	outcome.Observe(got.events, got.ctx, func(w *attribution.WR, segments []attribution.Segment) {
		r := reaping{w.QPNum, w.Reap, strings.HasPrefix(w.Op, "RECV")}
		own[r] = append(own[r], max(w.Done, endOfDoubt(segments)))
	})
	out := map[reaping][]uint64{}
	missed := unseenEntries(got)
	for r, entries := range entriesOf(got) {
		for i, e := range entries {
			switch {
			case e != nil:
				out[r] = append(out[r], e.Time)
			case missed > 0 && i < len(own[r]):
				missed--
				out[r] = append(out[r], own[r][i])
			default:
				t.Fatalf("the entry of a completion reaped at %d of QP %#x was not written, %d missed", r.at, r.qp, missed)
			}
		}
	}
	return out
}

// charged is what a report charges, and what the kernel's tracer says to it.
type charged struct {
	what    string
	mine    int64
	kernels float64
	stood   float64 // of which the host may have taken, see here
}

// compare what is charged with what the kernel's tracer says of each stretch.
func (j *judgement) compare(what string, mine int64, says func(*witness.Recording, *stretch) uint64) charged {
	c := charged{what: what, mine: mine}
	c.kernels, c.stood = j.here(says)
	return c
}

// runQueues compares the time in which threads waited for a CPU.
func (j *judgement) runQueues() charged {
	mine := j.Classes.Scheduling.TotalNS + j.Received.Classes.Scheduling.TotalNS + j.threaded()
	return j.compare("run queues", mine, func(r *witness.Recording, s *stretch) (ns uint64) {
		for _, w := range r.Waits(s.tid, s.begin, s.end) {
			ns += w.End - w.Begin
		}
		return ns
	})
}

// handlers compares the time in which they ran on top of a thread or led to its
// wakeup.
func (j *judgement) handlers() charged {
	mine := j.sum("interrupt.irq-on-top", "interrupt.handler") - j.threaded()
	return j.compare("handlers", mine, func(r *witness.Recording, s *stretch) uint64 {
		ns := r.OnTop(s.tid, s.begin, s.end)
		if !s.posting {
			ns += r.Handled(s.tid, s.begin, s.end)
		}
		return ns
	})
}

// running compares the time in which a thread had its CPU for itself: no handler's is
// taken for that.
func (j *judgement) running() charged {
	mine := j.sum("software.submit", "software.late-poll", "software.reap", "software.handoff", "software.probe")
	return j.compare("running", mine, func(r *witness.Recording, s *stretch) (ns uint64) {
		for _, on := range r.Runs(s.tid, s.begin, s.end) {
			ns += on.End - on.Begin
		}
		return ns - r.OnTop(s.tid, s.begin, s.end)
	})
}

// threaded is what lines' threads took from the client while it waited: an interrupt
// to rdmatrace, to the kernel's tracer a task.
func (r *report) threaded() (ns int64) {
	for _, causes := range []map[string]outcome.Cause{r.Causes, r.Received.Causes} {
		for _, w := range causes["interrupt.irq-on-top"].Who {
			if strings.HasPrefix(w.Name, "irq/") {
				ns += w.TotalNS
			}
		}
	}
	return ns
}

// sum of causes.
func (r *report) sum(causes ...string) (ns int64) {
	for _, cause := range causes {
		of, _ := r.both(cause)
		ns += of
	}
	return ns
}

// within requires that both agree to 2 %, but for what the host took.
func (c charged) within(t *testing.T) {
	t.Helper()
	off := float64(c.mine) - c.kernels
	said := fmt.Sprintf("%s: %d ns, %.0f ns by the kernel's tracer, %+.2f %%", c.what, c.mine, c.kernels, 100*off/c.kernels)
	if c.stood > 0 {
		said += fmt.Sprintf("; the host stood between recorders for %.0f ns", c.stood)
	}
	t.Log(said)
	if c.kernels == 0 || math.Abs(off) > 0.02*c.kernels+c.stood {
		t.Error("they disagree: " + said)
	}
}
