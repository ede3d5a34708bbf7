/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Threads of targets that wait for a CPU, and the current thread. */
#ifndef RDMATRACE_WAIT_BPF_H
#define RDMATRACE_WAIT_BPF_H

static __always_inline void wait_end(struct thread *t)
{
	struct cpu_state *c;

	if (!t->waiting)
		return;
	c = cpu_state_of(t->waiting - 1);
	t->waiting = 0;
	if (!c)
		return;
	__sync_fetch_and_add(&c->waiters, -1);
	waiter_remove(c, t);
}

/*
 * throttled: whether that was told of the thread where the wait begins. One that waits
 * already waits on, and what was told of it holds: it was moved to another CPU, or woken
 * after it was preempted on its way to sleep.
 */
static __always_inline void wait_begin(struct thread *t, struct task_struct *task, __u32 cpu, bool throttled)
{
	struct cpu_state *c;

	if (t->waiting)
		wait_end(t);
	else
		t->throttled = throttled;
	c = cpu_state_of(cpu);
	if (!c)
		return;
	t->waiting = cpu + 1;
	__sync_fetch_and_add(&c->waiters, 1);
	waiter_add(c, t, task);
}

/*
 * A thread that hits a probe runs, so if it is booked as waiting its switch-in
 * was not seen: a recursion miss, or a switch that the kernel doesn't trace.
 * Without this it would seem to be off its CPU until it is seen to leave again.
 */
static __noinline void running_again(struct thread *t)
{
	__u64 id = bpf_get_current_pid_tgid();
	struct switch_record *rec;
	struct out o;
	__u64 now;

	wait_end(t);
	count(COUNT_SWITCH_INFERRED);
	if (!open)
		return;
	now = bpf_ktime_get_ns();
	out_open(&o);
	rec = out_reserve(&o, sizeof(*rec), RECORD_SWITCH, now);
	if (!rec)
		return;
	__builtin_memset(rec, 0, sizeof(*rec));
	rec->h.time = now;
	rec->h.kind = RECORD_SWITCH;
	rec->h.cpu = o.cpu;
	rec->h.flags = SWITCH_NEXT_TARGET | SWITCH_INFERRED;
	rec->next_tid = id;
	rec->next_pid = id >> 32;
	rec->syscall = -1;
	bpf_get_current_comm(rec->next_comm, sizeof(rec->next_comm));
	out_submit(&o, rec);
}

/*
 * The current thread, if it is one of a target.  Only for programs that run in
 * the thread's own context: they may allocate.
 */
static __always_inline struct thread *thread_self(void)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct thread *t = bpf_task_storage_get(&threads, task, NULL, 0);

	if (t) {
		if (t->waiting)
			running_again(t);
		return t;
	}
	if (!is_target(current_tgid()))
		return NULL;
	t = bpf_task_storage_get(&threads, task, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!t)
		count(COUNT_NO_STORAGE);
	return t;
}

/* Hits of each probe while the gate is open; a probe's cookie has its number above SITE_SHIFT. */
#define SITE_SHIFT	32
#define SITES_MAX	4096

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, SITES_MAX);
	__type(key, __u32);
	__type(value, __u64);
} site_hits SEC(".maps");

/* Counts the hit of a probe, and gives the thread that took it. */
static __always_inline struct thread *thread_hit(struct pt_regs *ctx)
{
	__u32 site = bpf_get_attach_cookie(ctx) >> SITE_SHIFT;
	__u64 *hits = bpf_map_lookup_elem(&site_hits, &site);

	if (hits)
		__sync_fetch_and_add(hits, 1);
	return thread_self();
}

/* The same where the thread posts or polls, once the gate is open. */
static __always_inline struct thread *verbs_hit(struct pt_regs *ctx)
{
	struct thread *t = open ? thread_hit(ctx) : NULL;

	if (t)
		t->uses_verbs = 1;
	return t;
}

#endif
