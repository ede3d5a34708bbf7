package attribution

import (
	"slices"
	"testing"

	"github.com/rdmatrace/rdmatrace/event"
)

// The cuts below are of one WR with done known exactly: what the engine makes
// of the evidence for done is tested elsewhere. Times are in us.
type cut struct {
	name                           string
	tape                           func(t *tape)
	postBegin, postEnd, done, reap uint64
	pollBegin                      uint64
	reaper                         uint32 // 0: worker
	otherPoller                    uint32
	pollAt                         uint64 // when it polled
	armedBefore                    uint64
	traps, pollTraps               uint16
	inPost, trap, stepped          float64 // their costs
	want                           string
}

var cuts = []cut{
	{
		name:      "the worked example of the design",
		postBegin: 80, postEnd: 90, done: 100, reap: 111, pollBegin: 110,
		tape: func(t *tape) {
			t.sleeps(103, 0, worker, amd64Read, tapeFD)
			t.wakes(106, 0, worker, event.InterruptDevice, 27, 105)
			t.runs(110, 0, worker, hog)
		},
		want: "submit 80-90, unsplit 90-100, late-poll 100-103, delivery 103-105, handler 105-106 irq 27, " +
			"runqueue 106-110 hog (pid 900), reap 110-111",
	},
	{
		name:      "a line raised the softirq that woke the thread: the handler is both",
		postBegin: 80, postEnd: 90, done: 100, reap: 120, pollBegin: 119,
		tape: func(t *tape) {
			t.sleeps(101, 0, worker, amd64Read, tapeFD)
			t.wakes(110, 0, worker, event.InterruptSoftirq, 6, 108)
			t.led(103*us, lineLink(27), softirqLink(3))
			t.runs(111, 0, worker, hog)
		},
		want: "submit 80-90, unsplit 90-100, late-poll 100-101, delivery 101-103, " +
			"handler 103-110 irq 27 > NET_RX softirq > TASKLET softirq, runqueue 110-111 hog (pid 900), late-poll 111-119, reap 119-120",
	},
	{
		name:      "the CPU that takes the interrupt is idle meanwhile",
		postBegin: 80, postEnd: 90, done: 100, reap: 120, pollBegin: 119,
		tape: func(t *tape) {
			t.sleeps(101, 0, worker, amd64Read, tapeFD)
			t.wakes(110, 0, worker, event.InterruptDevice, 27, 108)
			t.idledSince(104 * us)
			t.runs(111, 0, worker, hog)
		},
		want: "submit 80-90, unsplit 90-100, late-poll 100-101, delivery 101-104, delivery 104-108 idle CPU, handler 108-110 irq 27, " +
			"runqueue 110-111 hog (pid 900), late-poll 111-119, reap 119-120",
	},
	{
		name:      "a workqueue's thread woke it: delivery, and who led to that",
		postBegin: 80, postEnd: 90, done: 100, reap: 120, pollBegin: 119,
		tape: func(t *tape) {
			t.sleeps(101, 0, worker, amd64Read, tapeFD)
			t.wakes(110, hog, worker, event.InterruptNone, 0, 0)
			t.led(0, lineLink(27), softirqLink(3), event.Link{Name: commOf(third)})
			t.runs(111, 0, worker, hog)
		},
		want: "submit 80-90, unsplit 90-100, late-poll 100-101, " +
			"delivery 101-110 irq 27 > NET_RX softirq > third > hog (pid 900), runqueue 110-111 hog (pid 900), late-poll 111-119, reap 119-120",
	},
	{
		name:      "nothing disturbs",
		postBegin: 10, postEnd: 12, done: 20, reap: 25, pollBegin: 24,
		want: "submit 10-12, unsplit 12-20, late-poll 20-24, reap 24-25",
	},
	{
		name:      "host activity while the packet is in flight costs nothing",
		postBegin: 10, postEnd: 12, done: 20, reap: 25, pollBegin: 24,
		tape: func(t *tape) {
			t.preempted(13, 0, worker, hog)
			t.runs(17, 0, worker, hog)
			t.interrupt(18, 19, worker, event.InterruptTimer, 236)
		},
		want: "submit 10-12, unsplit 12-20, late-poll 20-24, reap 24-25",
	},
	{
		name:      "done inside the posting call",
		postBegin: 10, postEnd: 30, done: 20, reap: 35, pollBegin: 33,
		want: "submit 10-30, late-poll 30-33, reap 33-35",
	},
	{
		name:      "interrupted inside the posting call after done",
		postBegin: 10, postEnd: 30, done: 20, reap: 35, pollBegin: 33,
		tape: func(t *tape) { t.interrupt(22, 25, worker, event.InterruptTimer, 236) },
		want: "submit 10-22, irq-on-top 22-25 local timer, submit 25-30, late-poll 30-33, reap 33-35",
	},
	{
		name:      "done inside the posting call, reaped by another thread before it returned",
		postBegin: 10, postEnd: 60, done: 20, reap: 35, pollBegin: 33, reaper: helper,
		want: "submit 10-20, late-poll 20-33, reap 33-35",
	},
	{
		name:      "preempted and interrupted while posting",
		postBegin: 10, postEnd: 40, done: 50, reap: 51, pollBegin: 51,
		tape: func(t *tape) {
			t.interrupt(12, 14, worker, event.InterruptSoftirq, 3)
			t.preempted(20, 0, worker, hog)
			t.sw(25, 0, hog, otherHog, event.Sched{Syscall: -1}, 0)
			t.runs(30, 0, worker, otherHog)
		},
		want: "submit 10-12, irq-on-top 12-14 NET_RX softirq, submit 14-20, preempted 20-25 hog (pid 900), " +
			"preempted 25-30 hog2 (pid 902), submit 30-40, unsplit 40-50, late-poll 50-51",
	},
	{
		name:      "asleep in the posting call",
		postBegin: 10, postEnd: 40, done: 50, reap: 51, pollBegin: 50,
		tape: func(t *tape) {
			t.sleeps(15, 0, worker, amd64Futex, 0)
			t.wakes(20, helper, worker, 0, 0, 0)
			t.runs(22, 0, worker, 0)
		},
		want: "submit 10-15, own-sleep 15-20 futex, runqueue 20-22, submit 22-40, unsplit 40-50, reap 50-51",
	},
	{
		name:      "preempted by a hog before the poll",
		postBegin: 10, postEnd: 12, done: 20, reap: 4025, pollBegin: 4024,
		tape: func(t *tape) {
			t.preempted(22, 3, worker, hog)
			t.runs(4022, 3, worker, hog)
		},
		want: "submit 10-12, unsplit 12-20, late-poll 20-22, preempted 22-4022 hog (pid 900), late-poll 4022-4024, reap 4024-4025",
	},
	{
		name:      "yielded to another, and for nobody",
		postBegin: 10, postEnd: 12, done: 20, reap: 50, pollBegin: 50,
		tape: func(t *tape) {
			t.yields(22, 0, worker, hog)
			t.sw(30, 0, hog, 0, event.Sched{PrevState: 1, Syscall: -1}, 0)
			t.runs(40, 0, worker, 0)
		},
		want: "submit 10-12, unsplit 12-20, late-poll 20-22, yielded 22-30 hog (pid 900), runqueue 30-40, late-poll 40-50",
	},
	{
		name:      "throttled by its quota is nobody's fault",
		postBegin: 10, postEnd: 12, done: 20, reap: 90, pollBegin: 90,
		tape: func(t *tape) {
			t.throttled(22, 0, worker, hog)
			t.runs(80, 0, worker, hog)
		},
		want: "submit 10-12, unsplit 12-20, late-poll 20-22, throttled 22-80, late-poll 80-90",
	},
	{
		name:      "woken while the quota is used up, and queued again when it is not",
		postBegin: 10, postEnd: 12, done: 20, reap: 100, pollBegin: 99,
		tape: func(t *tape) {
			t.sleeps(21, 0, worker, amd64Read, tapeFD)
			t.wakes(30, 0, worker, event.InterruptDevice, 27, 25)
			t.quota(31, 0, worker, event.QuotaBegin)
			t.sw(60, 0, hog, otherHog, event.Sched{Syscall: -1}, 0)
			t.quota(60, 0, worker, event.QuotaEnd)
			t.runs(90, 0, worker, otherHog)
		},
		want: "submit 10-12, unsplit 12-20, late-poll 20-21, delivery 21-25, handler 25-30 irq 27, runqueue 30-31 hog (pid 900), " +
			"throttled 31-60, runqueue 60-90 hog2 (pid 902), late-poll 90-99, reap 99-100",
	},
	{
		name:      "another of its group uses the quota up while it waits",
		postBegin: 10, postEnd: 12, done: 20, reap: 100, pollBegin: 99,
		tape: func(t *tape) {
			t.preempted(22, 0, worker, hog)
			t.sw(40, 0, hog, otherHog, event.Sched{Syscall: -1}, event.SwitchThrottled)
			t.quota(40, 0, worker, event.QuotaBegin)
			t.moved(50, worker, 0, 1)
			t.runs(90, 1, worker, third)
		},
		want: "submit 10-12, unsplit 12-20, late-poll 20-22, preempted 22-40 hog (pid 900), throttled 40-90, late-poll 90-99, reap 99-100",
	},
	{
		name:      "moved to another CPU while it waits, twice",
		postBegin: 10, postEnd: 12, done: 20, reap: 100, pollBegin: 99,
		tape: func(t *tape) {
			t.preempted(22, 0, worker, hog)
			t.moved(40, worker, 0, 1)
			t.sw(60, 1, otherHog, third, event.Sched{Syscall: -1}, 0)
			t.moved(70, worker, 1, 0)
			t.runs(90, 0, worker, irqThread)
		},
		want: "submit 10-12, unsplit 12-20, late-poll 20-22, preempted 22-40 hog (pid 900), preempted 40-60 hog2 (pid 902), " +
			"preempted 60-70 third (pid 100), irq-on-top 70-90 irq/34-virtio4- (pid 903), late-poll 90-99, reap 99-100",
	},
	{
		name:      "woken, and moved to another CPU before it ran",
		postBegin: 10, postEnd: 12, done: 20, reap: 100, pollBegin: 99,
		tape: func(t *tape) {
			t.sleeps(21, 0, worker, amd64Sleep, 0)
			t.sw(30, 0, 0, hog, event.Sched{Syscall: -1}, 0)
			t.wakes(40, hog, worker, 0, 0, 0)
			t.moved(45, worker, 0, 1)
			t.runs(60, 1, worker, otherHog)
		},
		want: "submit 10-12, unsplit 12-20, late-poll 20-21, own-sleep 21-40 clock_nanosleep, runqueue 40-45 hog (pid 900), " +
			"runqueue 45-60 hog2 (pid 902), late-poll 60-99, reap 99-100",
	},
	{
		name:      "its quota is used up, and it is moved meanwhile",
		postBegin: 10, postEnd: 12, done: 20, reap: 100, pollBegin: 99,
		tape: func(t *tape) {
			t.throttled(22, 0, worker, hog)
			t.moved(40, worker, 0, 1)
			t.runs(90, 1, worker, otherHog)
		},
		want: "submit 10-12, unsplit 12-20, late-poll 20-22, throttled 22-90, late-poll 90-99, reap 99-100",
	},
	{
		name:      "asleep for a reason of its own",
		postBegin: 10, postEnd: 12, done: 20, reap: 1100, pollBegin: 1099,
		tape: func(t *tape) {
			t.sleeps(21, 0, worker, amd64Sleep, 0)
			t.wakes(1090, 0, worker, event.InterruptTimer, 236, 1089)
			t.runs(1095, 0, worker, 0)
		},
		want: "submit 10-12, unsplit 12-20, late-poll 20-21, own-sleep 21-1090 clock_nanosleep, runqueue 1090-1095, " +
			"late-poll 1095-1099, reap 1099-1100",
	},
	{
		name:      "asleep on another descriptor",
		postBegin: 10, postEnd: 12, done: 20, reap: 50, pollBegin: 49,
		tape: func(t *tape) {
			t.sleeps(15, 0, worker, amd64Read, tapeFD+1)
			t.wakes(40, hog, worker, 0, 0, 0)
			t.runs(45, 0, worker, 0)
		},
		want: "submit 10-12, unsplit 12-20, own-sleep 20-40 read, runqueue 40-45, late-poll 45-49, reap 49-50",
	},
	{
		name:      "epoll while the CQ is armed, woken by a task",
		postBegin: 10, postEnd: 12, done: 20, reap: 50, pollBegin: 49, armedBefore: 5,
		tape: func(t *tape) {
			t.sleeps(15, 0, worker, amd64Epoll, 4)
			t.wakes(40, nicDaemon, worker, 0, 0, 0)
			t.runs(45, 0, worker, 0)
		},
		want: "submit 10-12, unsplit 12-20, delivery 20-40 softmlx5d (pid 901), runqueue 40-45, late-poll 45-49, reap 49-50",
	},
	{
		name:      "epoll while the CQ is not armed",
		postBegin: 10, postEnd: 12, done: 20, reap: 50, pollBegin: 49,
		tape: func(t *tape) {
			t.sleeps(15, 0, worker, amd64Epoll, 4)
			t.wakes(40, nicDaemon, worker, 0, 0, 0)
			t.runs(45, 0, worker, 0)
		},
		want: "submit 10-12, unsplit 12-20, own-sleep 20-40 epoll_wait, runqueue 40-45, late-poll 45-49, reap 49-50",
	},
	{
		name:      "the handler began before done was known",
		postBegin: 10, postEnd: 12, done: 30, reap: 50, pollBegin: 49,
		tape: func(t *tape) {
			t.sleeps(15, 0, worker, amd64Read, tapeFD)
			t.wakes(40, 0, worker, event.InterruptDevice, 27, 25)
			t.runs(45, 0, worker, 0)
		},
		want: "submit 10-12, unsplit 12-30, handler 30-40 irq 27, runqueue 40-45, late-poll 45-49, reap 49-50",
	},
	{
		name:      "woken while it was falling asleep",
		postBegin: 10, postEnd: 12, done: 14, reap: 50, pollBegin: 49,
		tape: func(t *tape) {
			t.wakes(15, nicDaemon, worker, 0, 0, 0)
			t.sleeps(16, 0, worker, amd64Read, tapeFD)
			t.runs(45, 0, worker, hog)
		},
		want: "submit 10-12, unsplit 12-14, late-poll 14-16, runqueue 16-45 hog (pid 900), late-poll 45-49, reap 49-50",
	},
	{
		name:      "a dispatcher is woken and wakes the reaper",
		postBegin: 10, postEnd: 12, done: 20, reap: 80, pollBegin: 78,
		tape: func(t *tape) {
			t.sleeps(13, 0, worker, amd64Futex, 0)
			t.sleeps(14, 1, helper, amd64Read, tapeFD)
			t.wakes(32, 0, helper, event.InterruptDevice, 27, 30)
			t.runs(40, 1, helper, hog)
			t.wakes(55, helper, worker, 0, 0, 0)
			t.runs(70, 0, worker, hog)
		},
		want: "submit 10-12, unsplit 12-20, delivery 20-30, handler 30-32 irq 27, runqueue 32-40 hog (pid 900), " +
			"handoff 40-55, runqueue 55-70 hog (pid 900), late-poll 70-78, reap 78-80",
	},
	{
		name:      "a dispatcher found its event waiting and computed before it woke the reaper",
		postBegin: 60, postEnd: 62, done: 70, reap: 120, pollBegin: 118,
		tape: func(t *tape) {
			t.sleeps(13, 0, worker, amd64Futex, 0)
			t.sleeps(14, 1, helper, amd64Read, tapeFD)
			t.wakes(32, 0, helper, event.InterruptDevice, 27, 30)
			t.runs(40, 1, helper, 0)
			t.wakes(55, helper, worker, 0, 0, 0)
			t.runs(58, 0, worker, 0)
			t.sleeps(65, 0, worker, amd64Futex, 0)
			t.preempted(80, 1, helper, hog)
			t.runs(90, 1, helper, hog)
			t.wakes(110, helper, worker, 0, 0, 0)
			t.runs(115, 0, worker, 0)
		},
		want: "submit 60-62, unsplit 62-70, handoff 70-80, preempted 80-90 hog (pid 900), handoff 90-110, runqueue 110-115, " +
			"late-poll 115-118, reap 118-120",
	},
	{
		name:      "a dispatcher that arms the CQ and is not seen to sleep",
		postBegin: 10, postEnd: 12, done: 20, reap: 80, pollBegin: 78,
		tape: func(t *tape) {
			t.arm(helper, 9)
			t.sleeps(13, 0, worker, amd64Futex, 0)
			t.wakes(55, helper, worker, 0, 0, 0)
			t.runs(70, 0, worker, 0)
		},
		want: "submit 10-12, unsplit 12-20, handoff 20-55, runqueue 55-70, late-poll 70-78, reap 78-80",
	},
	{
		name:      "a dispatcher that waited for the CQ long ago is not one any more",
		postBegin: 20010, postEnd: 20012, done: 20020, reap: 20080, pollBegin: 20078,
		tape: func(t *tape) {
			t.sleeps(14, 1, helper, amd64Read, tapeFD)
			t.wakes(32, 0, helper, event.InterruptDevice, 27, 30)
			t.runs(40, 1, helper, 0)
			t.sleeps(20013, 0, worker, amd64Futex, 0)
			t.wakes(20055, helper, worker, 0, 0, 0)
			t.runs(20070, 0, worker, 0)
		},
		want: "submit 20010-20012, unsplit 20012-20020, own-sleep 20020-20055 futex, runqueue 20055-20070, late-poll 20070-20078, reap 20078-20080",
	},
	{
		name:      "woken by a thread that did not wait for the CQ",
		postBegin: 10, postEnd: 12, done: 20, reap: 80, pollBegin: 78,
		tape: func(t *tape) {
			t.sleeps(13, 0, worker, amd64Futex, 0)
			t.wakes(55, helper, worker, 0, 0, 0)
			t.runs(70, 0, worker, hog)
		},
		want: "submit 10-12, unsplit 12-20, own-sleep 20-55 futex, runqueue 55-70 hog (pid 900), late-poll 70-78, reap 78-80",
	},
	{
		name:      "nested interrupts count once, the inner one first",
		postBegin: 10, postEnd: 12, done: 20, reap: 60, pollBegin: 60,
		tape: func(t *tape) {
			t.interrupt(34, 36, worker, event.InterruptDevice, 9)
			t.interrupt(32, 40, worker, event.InterruptSoftirq, 3)
			t.interrupt(30, 50, worker, event.InterruptTimer, 236)
		},
		want: "submit 10-12, unsplit 12-20, late-poll 20-30, irq-on-top 30-32 local timer, irq-on-top 32-34 NET_RX softirq, " +
			"irq-on-top 34-36 irq 9, irq-on-top 36-40 NET_RX softirq, irq-on-top 40-50 local timer, late-poll 50-60",
	},
	{
		name:      "two pollers: the more available one counts",
		postBegin: 10, postEnd: 12, done: 20, reap: 100, pollBegin: 99, otherPoller: helper, pollAt: 19,
		tape: func(t *tape) {
			t.preempted(22, 0, worker, hog) // the reaper
			t.runs(90, 0, worker, hog)
			t.sleeps(40, 1, helper, amd64Futex, 0)
		},
		want: "submit 10-12, unsplit 12-20, late-poll 20-22, late-poll 22-40, preempted 40-90 hog (pid 900), late-poll 90-99, reap 99-100",
	},
	{
		name:      "another thread polled long ago and does not count",
		postBegin: 20010, postEnd: 20012, done: 20020, reap: 20100, pollBegin: 20099, otherPoller: helper, pollAt: 10019,
		tape: func(t *tape) {
			t.preempted(20022, 0, worker, hog)
			t.runs(20090, 0, worker, hog)
		},
		want: "submit 20010-20012, unsplit 20012-20020, late-poll 20020-20022, preempted 20022-20090 hog (pid 900), " +
			"late-poll 20090-20099, reap 20099-20100",
	},
	{
		name:      "records of the scheduler are missing",
		postBegin: 10, postEnd: 12, done: 20, reap: 60, pollBegin: 58,
		tape: func(t *tape) { t.loss(30, 40, event.KindSwitch, 3) },
		want: "submit 10-12, unsplit 12-20, late-poll 20-30, wire-or-late-poll 30-40, late-poll 40-58, reap 58-60",
	},
	{
		name:      "probes are taken out of what they ran in",
		postBegin: 10, postEnd: 20, done: 30, reap: 60, pollBegin: 50,
		traps: 4, pollTraps: 2, inPost: 1000, trap: 2000,
		want: "submit 10-15, probe 15-20, unsplit 20-30, late-poll 30-50, reap 50-56, probe 56-60",
	},
	{
		name:      "probes take no more than there is",
		postBegin: 10, postEnd: 20, done: 30, reap: 60, pollBegin: 59,
		traps: 2, pollTraps: 9, inPost: 50000, trap: 2000,
		want: "probe 10-20, unsplit 20-30, late-poll 30-59, probe 59-60",
	},
}

func TestCut(t *testing.T) {
	for _, test := range slices.Concat(cuts, trapCuts) {
		t.Run(test.name, func(t *testing.T) {
			tp := newTape()
			tp.cq(0, tapeFD)
			tp.qp(0, event.ObjectCreated, nil)
			for _, tid := range []uint32{worker, helper} { // both run from the beginning
				cpu := uint16(tid - worker)
				tp.add(event.Event{Time: 1, TID: tid, CPU: cpu, Kind: event.KindArm, Verb: event.Verb{CQ: 0x9999}})
			}
			if test.armedBefore != 0 {
				tp.arm(worker, test.armedBefore)
			}
			if test.tape != nil {
				test.tape(tp)
			}
			for i := range tp.events {
				ev := &tp.events[i]
				ev.Time *= us
				ev.IRQ.Begin *= us
				ev.Loss.Begin *= us
				ev.Sched.InterruptBegin *= us
			}
			e, _ := tp.play(t, Config{Cost: event.Cost{InPost: test.inPost, TrapNS: test.trap, SteppedTrapNS: test.stepped}})
			reaper := uint32(worker)
			if test.reaper != 0 {
				reaper = test.reaper
			}
			cq := e.objects.cq(tapePID, tapeCQ)
			if test.otherPoller != 0 {
				cq.polled(test.otherPoller, test.pollAt*us)
			}
			m := &measured{
				postBegin: test.postBegin * us, postEnd: test.postEnd * us, reap: test.reap * us,
				doneLow: test.done * us, done: test.done * us, doneHigh: test.done * us,
				postTID: worker, reapTID: reaper,
			}
			p := &pending{postBegin: m.postBegin, postEnd: m.postEnd, tid: worker, traps: test.traps}
			p.submit = e.cutAfterwards(worker, m.postBegin, min(m.postEnd, m.reap))
			c := &verbRecord{stamp: stamp{time: m.reap, pid: tapePID, tid: reaper}}
			c.Begin, c.Traps = test.pollBegin*us, test.pollTraps
			e.cut(m, p, c, cq)
			e.chargeProbes(m, p, c)
			checkCut(t, m)
			if got := describe(m.segments, 0, us); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
			if m.uncertain {
				t.Error("uncertain")
			}
		})
	}
}

// cutAfterwards cuts a posting call when its thread has long gone on.
func (e *Engine) cutAfterwards(tid uint32, begin, end uint64) int32 {
	number := e.submits.cut(&e.walker, e.threads.known(tid), begin, end)
	e.submits.use(number, 1)
	return number
}
