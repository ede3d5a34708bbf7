/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Threads that cannot run since their cgroup has used up its quota (cpu.max), while they
 * wait for a CPU: others of the group have used it up, or had before the thread was
 * woken.  Before 6.18 a CPU's run queue of the group is taken off as a whole, in a
 * switch there, and put back by a timer, which leads to a switch there if nothing of
 * higher priority runs.  So it is looked at in those switches, and at wakeups.
 */
#ifndef RDMATRACE_QUOTA_BPF_H
#define RDMATRACE_QUOTA_BPF_H

#define MAX_RT_PRIO 100

/*
 * The quota is one of the fair classes: who has a priority of those of SCHED_FIFO, SCHED_RR
 * or SCHED_DEADLINE, its own or lent to it by who waits for its lock, runs whatever is
 * left of it (kernel/sched/fair.c), though its entity stays tied to its group's run queue.
 *
 * Since 6.18 a task is throttled by itself, on its way to user mode, and says
 * so; before, its group's run queue was taken off as a whole.
 */
static __always_inline bool task_throttled(struct task_struct *task)
{
	struct cfs_rq *rq = NULL;

	if (READ_INT(task, prio) < MAX_RT_PRIO)
		return false;
	if (bpf_core_field_exists(task->throttled))
		return READ_INT(task, throttled);
	if (!bpf_core_field_exists(rq->throttle_count)) /* no CONFIG_CFS_BANDWIDTH */
		return false;
	rq = BPF_CORE_READ(task, se.cfs_rq);
	return READ_INT(rq, throttle_count) > 0;
}

static __always_inline struct waiter *waiter_slot(struct cpu_state *c, __u32 i)
{
	barrier_var(i);
	return &c->waiting[i & (WAITERS - 1)];
}

/* The run queue's lock is held, mostly: what gets lost otherwise is a detail of a wait. */
static __always_inline void waiter_add(struct cpu_state *c, struct thread *t, struct task_struct *task)
{
	struct waiter *w = waiter_slot(c, t->waiter_slot);
	__u32 i;

	/* The end of its wait before may have been preempted in the program of a probe. */
	if (t->waiter && w->task == t->waiter)
		w->task = 0;
	for (i = 0; i < WAITERS; i++) {
		w = waiter_slot(c, i);
		if (w->task)
			continue;
		w->pid = task->tgid;
		w->tid = task->pid;
		w->throttled = t->throttled;
		w->task = (__u64)task;
		t->waiter = (__u64)task;
		t->waiter_slot = i;
		return;
	}
}

static __always_inline void waiter_remove(struct cpu_state *c, struct thread *t)
{
	struct waiter *w = waiter_slot(c, t->waiter_slot);

	if (!t->waiter)
		return; /* without a place: what was told of it holds */
	t->throttled = 0;
	if (w->task == t->waiter) {
		t->throttled = w->throttled; /* it may wait on, for another CPU */
		w->task = 0;
	}
	t->waiter = 0;
}

/* Tells that a waiting thread is held up by its quota from now on, or not any more. */
static __noinline void quota_emit(struct waiter *w, __u32 cpu, __u64 now)
{
	struct quota_record *rec;
	struct out o;

	out_open(&o);
	rec = out_reserve(&o, sizeof(*rec), RECORD_QUOTA, now);
	if (!rec)
		return;
	rec->h.time = now;
	rec->h.pid = w->pid;
	rec->h.tid = w->tid;
	rec->h.kind = RECORD_QUOTA;
	rec->h.cpu = cpu;
	rec->h.flags = w->throttled ? QUOTA_BEGIN : QUOTA_END;
	out_submit(&o, rec);
}

static __always_inline void waiter_look(struct waiter *w, __u32 cpu, __u64 now)
{
	__u32 throttled;

	if (!w->task)
		return;
	throttled = task_throttled((struct task_struct *)w->task);
	if (throttled == w->throttled)
		return;
	w->throttled = throttled;
	quota_emit(w, cpu, now);
}

/* Those that wait for this CPU. */
static __always_inline void quotas_look(struct cpu_state *c, __u64 now)
{
	__u32 i, cpu = bpf_get_smp_processor_id();

	for (i = 0; i < WAITERS; i++)
		waiter_look(waiter_slot(c, i), cpu, now);
}

/* A thread that begins to wait, of any CPU. */
static __always_inline void quota_look(struct thread *t, __u64 now)
{
	struct cpu_state *c = t->waiting ? cpu_state_of(t->waiting - 1) : NULL;

	if (c && t->waiter)
		waiter_look(waiter_slot(c, t->waiter_slot), t->waiting - 1, now);
}

#endif
