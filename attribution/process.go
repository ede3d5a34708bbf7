package attribution

import (
	"slices"

	"github.com/rdmatrace/rdmatrace/event"
)

// A process's queue pairs are gone with its last thread. Which threads it has is
// known of those that were found, seen to start, or seen to do anything: others
// may live on. So its end is only believed once its first thread has ended, too.

// process counts the threads of a target.
type process struct {
	living   int
	headless bool // its first thread has ended
}

// process of a number, new if it was not known.
func (tl *timelines) process(pid uint32) *process {
	p := tl.processes[pid]
	if p == nil {
		p = new(process)
		tl.processes[pid] = p
	}
	return p
}

// begins makes th a new thread of a process.
func (tl *timelines) begins(th *thread, pid, tid uint32) {
	tl.exits(th)
	*th = thread{pid: pid, tid: tid}
	tl.process(pid).living++
}

// exits takes that a thread is on its way out of the kernel, or gone. It is told
// of it early in do_exit, and may be preempted or sleep until the end of that.
func (tl *timelines) exits(th *thread) {
	if th.exiting || th.tid == 0 {
		return
	}
	th.exiting = true
	p := tl.process(th.pid)
	p.living--
	p.headless = p.headless || th.tid == th.pid
}

// hasEnded says whether all that is known of a process has ended, and forgets it.
func (tl *timelines) hasEnded(pid uint32) bool {
	p := tl.processes[pid]
	if p == nil || !p.headless || p.living > 0 {
		return false
	}
	delete(tl.processes, pid)
	return true
}

// processMayEnd with the exit of one of its threads at t.
func (e *Engine) processMayEnd(pid uint32, t uint64) {
	if e.threads.hasEnded(pid) {
		e.release(never)
		e.retireAll(pid, t)
	}
}

// replaced takes an exec: the process has the memory of another program, and of its
// threads only the one that called it, by the number of the first.
func (e *Engine) replaced(pid uint32, t uint64) {
	e.release(never)
	e.retireAll(pid, t)
	for _, th := range e.threads.threads {
		if th.pid == pid && th.tid != pid {
			e.threads.exits(th)
		}
	}
	e.threads.process(pid).headless = false
}

func (e *Engine) retireAll(pid uint32, t uint64) {
	for k, cq := range e.objects.cqs {
		if k.pid == pid {
			e.disarmed(cq)
		}
	}
	for _, qp := range slices.Clone(e.objects.live) {
		if qp.pid == pid {
			e.retire(qp, t)
		}
	}
}

// taskEvent follows the threads.
func (e *Engine) taskEvent(r *rareRecord) {
	what := r.object.Task.Event
	if what == event.TaskExec {
		e.replaced(r.pid, r.time)
		return
	}
	if th := e.threads.known(r.tid); th != nil && what == event.TaskStarted {
		e.abandon(th) // the number of a thread that ended inside a call
	}
	e.threads.task(r)
	if what == event.TaskExited {
		e.processMayEnd(r.pid, r.time)
	}
}
