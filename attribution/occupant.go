package attribution

import "github.com/rdmatrace/rdmatrace/event"

// occupant is the task that ran on a CPU from begin until the next one.
type occupant struct {
	begin    uint64
	tid, pid uint32 // 0: idle
	cgroup   uint64
	comm     event.Comm
}

// occupy takes from a sched_switch who runs on its CPU.
func (tl *timelines) occupy(r *schedRecord) {
	for int(r.cpu) >= len(tl.cpus) {
		tl.cpus = append(tl.cpus, ring[occupant]{})
	}
	on := &tl.cpus[r.cpu]
	// Switches are recorded only while a thread of a target is concerned. If
	// another task left than the one that came last, it had come unseen: it
	// stands for the whole of that time. Of a switch that was inferred prev is not
	// known: whoever came last is still the best that can be said.
	inferred := r.flags&event.SwitchInferred != 0
	if !inferred && (on.len() == 0 || on.last().tid != r.PrevTID) {
		begin := tl.origin
		if on.len() > 0 {
			begin = on.last().begin
		}
		tl.pushOccupant(on, occupant{begin: begin, tid: r.PrevTID, pid: r.PrevPID, comm: r.PrevComm, cgroup: r.PrevCgroup})
	}
	tl.pushOccupant(on, occupant{
		begin: r.time, tid: r.NextTID, pid: r.NextPID, comm: r.NextComm, cgroup: r.NextCgroup,
	})
}

// unwatch takes that a thread has left the queue of a CPU whose switches are seen for
// its sake: who comes unseen from now on does not stand for the time before.
func (tl *timelines) unwatch(r *schedRecord) {
	if int(r.FromCPU) >= len(tl.cpus) || tl.cpus[r.FromCPU].len() == 0 {
		return
	}
	on := &tl.cpus[r.FromCPU]
	o := *on.last()
	o.begin = r.time
	tl.pushOccupant(on, o)
}

func (tl *timelines) pushOccupant(on *ring[occupant], o occupant) {
	makeRoom(on, func(i uint64) uint64 { return on.at(i + 1).begin }, tl.need)
	on.push(o)
}

// search gives the sequence number of the last item of a ring that began at or
// before t; ok is false if even the oldest began later. begin must not fall. What is
// asked about is recent: it goes back by doubling, then by bisection.
func search[T any](r *ring[T], t uint64, begin func(*T) uint64) (seq uint64, ok bool) {
	low, high := r.first, r.next // the answer is in [low-1, high)
	for back := uint64(1); high-low >= back; back *= 2 {
		if begin(r.at(high-back)) <= t {
			low = high - back + 1
			break
		}
		high -= back
	}
	for low < high {
		mid := low + (high-low)/2
		if begin(r.at(mid)) <= t {
			low = mid + 1
		} else {
			high = mid
		}
	}
	return low - 1, low > r.first
}

func (s *span) beganAt() uint64     { return s.begin }
func (o *occupant) beganAt() uint64 { return o.begin }
func (i *onTop) endedAt() uint64    { return i.end }

// instead calls visit for each stretch of [begin, end] with the task that ran
// on cpu meanwhile; nobody where the CPU idled or nothing is known.
func (tl *timelines) instead(th *thread, cpu int32, begin, end uint64, visit func(begin, end uint64, who *culprit)) {
	if cpu < 0 || int(cpu) >= len(tl.cpus) || tl.cpus[cpu].len() == 0 {
		visit(begin, end, nil)
		return
	}
	on := &tl.cpus[cpu]
	seq, ok := search(on, begin, (*occupant).beganAt)
	if !ok {
		first := min(on.at(on.first).begin, end)
		visit(begin, first, nil)
		begin, seq = first, on.first
	}
	for ; begin < end && seq != on.next; seq++ {
		until := end
		if seq+1 != on.next {
			until = min(end, on.at(seq+1).begin)
		}
		if until > begin {
			visit(begin, until, tl.culprits.keep(on.at(seq).culprit(th.tid)))
			begin = until
		}
	}
}

// handlesInterrupt says that it is the threaded handler of a line: irq/LINE-NAME, as
// the kernel calls them (setup_irq_thread of kernel/irq/manage.c). A device's
// interrupt is no competitor, whether its handler is forced into a thread or not.
func (c *culprit) handlesInterrupt() bool {
	digits := len("irq/")
	return c.kind == culpritTask && string(c.name[:digits]) == "irq/" && c.name[digits] >= '0' && c.name[digits] <= '9'
}

// culprit names an occupant; the idle task is never one, nor is the thread
// that waited.
func (o *occupant) culprit(waiter uint32) culprit {
	if o.tid == 0 || o.tid == waiter {
		return culprit{}
	}
	return culprit{kind: culpritTask, id: o.tid, pid: o.pid, cgroup: o.cgroup, name: [16]byte(o.comm)}
}
