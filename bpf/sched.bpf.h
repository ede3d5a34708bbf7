/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The scheduler.  Switches are recorded when they involve a thread of a
 * target, and all those of a CPU while such a thread waits there for its turn:
 * they say who ran instead.
 */
#ifndef RDMATRACE_SCHED_BPF_H
#define RDMATRACE_SCHED_BPF_H

#define TASK_DEAD 0x80

static __always_inline struct thread *thread_of(struct task_struct *task)
{
	struct thread *t = bpf_task_storage_get(&threads, task, NULL, 0);

	/* Its storage is made by the iterator or at fork: allocating under the run queue's lock may deadlock. */
	if (!t)
		count(COUNT_SCHED_UNTRACKED);
	return t;
}

static __always_inline __u32 task_cpu(struct task_struct *task)
{
	struct task_struct___old *old = (void *)task;

	if (bpf_core_field_exists(task->thread_info.cpu))
		return READ_INT(task, thread_info.cpu);
	return READ_INT(old, cpu);
}

static __always_inline __u32 task_state(struct task_struct *task)
{
	struct task_struct___old *old = (void *)task;

	if (bpf_core_field_exists(task->__state))
		return READ_INT(task, __state);
	return READ_INT(old, state);
}

static __always_inline __u64 task_cgroup(struct task_struct *task)
{
	return BPF_CORE_READ(task, cgroups, dfl_cgrp, kn, id);
}

/*
 * The system call a user thread is in, from the registers it entered the
 * kernel with: -1 when an interrupt or a fault brought it here.
 */
static __always_inline __s32 task_syscall(struct task_struct *task, __u64 *arg)
{
	struct pt_regs *regs = (struct pt_regs *)bpf_task_pt_regs(task);

#if defined(__TARGET_ARCH_x86)
	*arg = BPF_CORE_READ(regs, di);
	return BPF_CORE_READ(regs, orig_ax);
#else
	*arg = BPF_CORE_READ(regs, orig_x0);
	return BPF_CORE_READ(regs, syscallno);
#endif
}

static __always_inline void switch_emit(struct task_struct *prev, struct task_struct *next, __u64 now, __u32 flags,
					__u32 state, __u64 stack)
{
	struct switch_record *rec;
	struct out o;

	out_open(&o);
	rec = out_reserve(&o, sizeof(*rec), RECORD_SWITCH, now);
	if (!rec)
		return;
	rec->h.time = now;
	rec->h.pid = prev->tgid;
	rec->h.tid = prev->pid;
	rec->h.kind = RECORD_SWITCH;
	rec->h.cpu = o.cpu;
	rec->h.flags = flags;
	rec->prev_tid = prev->pid;
	rec->prev_pid = prev->tgid;
	rec->next_tid = next->pid;
	rec->next_pid = next->tgid;
	rec->prev_state = state;
	rec->syscall = -1;
	rec->syscall_arg = 0;
	if (flags & SWITCH_PREV_TARGET)
		rec->syscall = task_syscall(prev, &rec->syscall_arg);
	bpf_probe_read_kernel(rec->prev_comm, sizeof(rec->prev_comm), prev->comm);
	bpf_probe_read_kernel(rec->next_comm, sizeof(rec->next_comm), next->comm);
	rec->next_cgroup = task_cgroup(next);
	rec->prev_cgroup = task_cgroup(prev);
	rec->prev_stack = stack;
	out_submit(&o, rec);
}

static __always_inline void on_switch(bool preempt, struct task_struct *prev, struct task_struct *next, __u32 state)
{
	struct cpu_state *c;
	struct thread *t;
	__u64 now, stack = 0;
	__u32 flags = 0;
	bool waited;

	if (!open)
		return;
	c = cpu_here();
	if (!c)
		return;
	now = bpf_ktime_get_ns();
	c->since = now;
	c->telling.cq = 0; /* what told it is gone, if it comes back then elsewhere */
	interrupts_switch(c, prev, next, now);
	waited = c->waiters > 0;
	if (preempt) {
		flags |= SWITCH_PREEMPT;
		state = 0; /* it was on its way to sleep, and still has to run for that */
	}
	if (state & TASK_DEAD)
		flags |= SWITCH_PREV_EXITED;
	if (is_target(prev->tgid)) {
		flags |= SWITCH_PREV_TARGET;
		if (task_throttled(prev))
			flags |= SWITCH_THROTTLED;
		look_around();
		t = thread_of(prev);
		if (t)
			wait_end(t); /* if it is booked as waiting still, its switch-in was not seen */
		if (t && !(state & TASK_DEAD))
			stack = thread_stack(prev, t, now);
		if (t && !state)
			wait_begin(t, prev, bpf_get_smp_processor_id(), flags & SWITCH_THROTTLED);
	}
	if (is_target(next->tgid)) {
		flags |= SWITCH_NEXT_TARGET;
		t = thread_of(next);
		if (t)
			wait_end(t);
	}
	if (waited || flags & (SWITCH_PREV_TARGET | SWITCH_NEXT_TARGET))
		switch_emit(prev, next, now, flags, state, stack);
	if (c->waiters > 0)
		quotas_look(c, now);
}

SEC("tp_btf/sched_switch")
int sched_switch(u64 *ctx)
{
	struct task_struct *prev = (struct task_struct *)ctx[1];
	struct task_struct *next = (struct task_struct *)ctx[2];

	/* Before 5.18 prev's state had to be read, and might change meanwhile. */
	on_switch(ctx[0], prev, next, switch_has_state ? (__u32)ctx[3] : task_state(prev));
	return 0;
}

/*
 * The waker, which is the last link of the chain, and what led to it.  An
 * interrupt has borrowed the task that it runs on.
 */
static __always_inline void waking_context(struct waking_record *rec, struct chain *chain)
{
	__u32 n = chain->n - 1;
	struct waker_link *waker;

	if (n >= WAKERS_MOST)
		return;
	barrier_var(n);
	waker = &chain->link[n & (WAKERS_MOST - 1)];
	rec->interrupt = waker->kind;
	rec->interrupt_begin = waker->begin;
	if (waker->kind != INTERRUPT_NONE)
		rec->vec = waker->vec;
	if (waker->kind == INTERRUPT_NONE || waker->kind == INTERRUPT_THREAD)
		__builtin_memcpy(rec->waker_comm, waker->name, sizeof(rec->waker_comm));
	else
		bpf_get_current_comm(rec->waker_comm, sizeof(rec->waker_comm));
	rec->links = n;
	rec->idle_since = chain->idle_since;
	__builtin_memcpy(rec->before, chain->link, sizeof(rec->before));
}

SEC("tp_btf/sched_waking")
int BPF_PROG(sched_waking, struct task_struct *task)
{
	struct waking_record *rec;
	struct chain *chain;
	bool target;
	struct out o;
	__u64 now;

	if (!open)
		return 0;
	now = bpf_ktime_get_ns();
	target = is_target(task->tgid);
	chain = chain_wakes(task, target);
	if (!target || !chain)
		return 0;
	out_open(&o);
	rec = out_reserve(&o, sizeof(*rec), RECORD_WAKING, now);
	if (!rec)
		return 0;
	__builtin_memset(rec, 0, sizeof(*rec));
	header_fill(&rec->h, &o, RECORD_WAKING, now, 0);
	rec->wakee_tid = task->pid;
	rec->wakee_pid = task->tgid;
	rec->wakee_cpu = task_cpu(task);
	waking_context(rec, chain);
	rec->cq = cq_told(task->tgid);
	out_submit(&o, rec);
	return 0;
}

/* The wakee is on a run queue now, whose lock is held. It may be running still, when it had not slept yet. */
static __always_inline void on_wakeup(struct task_struct *task)
{
	struct thread *t;

	if (!open || !is_target(task->tgid))
		return;
	if (bpf_core_field_exists(task->on_cpu) && READ_INT(task, on_cpu))
		return;
	t = thread_of(task);
	if (!t)
		return;
	wait_begin(t, task, task_cpu(task), false);
	quota_look(t, bpf_ktime_get_ns());
}

SEC("tp_btf/sched_wakeup")
int BPF_PROG(sched_wakeup, struct task_struct *task)
{
	on_wakeup(task);
	return 0;
}

SEC("tp_btf/sched_wakeup_new")
int BPF_PROG(sched_wakeup_new, struct task_struct *task)
{
	on_wakeup(task);
	return 0;
}

/* A thread that waits for a CPU waits for another one from now on: who runs there is what keeps it. */
static __always_inline void migrate_emit(struct task_struct *task, __u32 from, __u32 to)
{
	__u64 now = bpf_ktime_get_ns();
	struct migration_record *rec;
	struct out o;

	out_open(&o);
	rec = out_reserve(&o, sizeof(*rec), RECORD_MIGRATION, now);
	if (!rec)
		return;
	rec->h.time = now;
	rec->h.pid = task->tgid;
	rec->h.tid = task->pid;
	rec->h.kind = RECORD_MIGRATION;
	rec->h.cpu = to;
	rec->h.flags = 0;
	rec->from_cpu = from;
	rec->pad = 0;
	out_submit(&o, rec);
}

/* Of a thread that is being woken it comes before sched_wakeup, when it does not wait yet. */
SEC("tp_btf/sched_migrate_task")
int BPF_PROG(sched_migrate_task, struct task_struct *task, int dest_cpu)
{
	struct thread *t;
	__u32 from;

	if (!open || !is_target(task->tgid))
		return 0;
	t = thread_of(task);
	if (!t || !t->waiting || t->waiting == (__u32)dest_cpu + 1)
		return 0;
	from = t->waiting - 1;
	wait_begin(t, task, dest_cpu, false);
	migrate_emit(task, from, dest_cpu);
	return 0;
}

#endif
