/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Per CPU: which interrupts are being handled, and how many threads of targets wait there. */
#ifndef RDMATRACE_CPU_BPF_H
#define RDMATRACE_CPU_BPF_H

#define INTERRUPT_NEST 8

struct interrupt_state {
	__u64 begin;
	__u64 nested;	/* kept 0 while the slot is free */
	__u32 kind;
	__u32 vec;
};

/* What led to something, the first thing first. */
struct chain {
	__u32 n;
	__u32 pad;
	__u64 idle_since;	/* see waking_record */
	struct waker_link link[WAKERS_MOST];
};

#define SOFTIRQS 10	/* NR_SOFTIRQS */

/* A softirq whose thread was switched out inside it, see softirq_leaves. */
struct switched_out {
	__u32 tid;	/* 0: a free slot */
	__u32 pad;
	__u64 since;
	struct interrupt_state interrupt;
	struct chain led;
};

#define SWITCHED_OUT 4	/* one for each CPU, but since 6.18 their lock can be left out (PREEMPT_RT_NEEDS_BH_LOCK) */

/* A CQ's event that is being told to its channel, see uverbs.bpf.h. */
struct cq_telling {
	__u64 cq;	/* struct ibv_cq * in its owner; 0: none */
	__u32 pid;	/* of the owner */
	__u32 depth;	/* of interrupts where it is told */
};

/* A thread of a target that waits for this CPU, see quota.bpf.h. */
struct waiter {
	__u64 task;	/* its task_struct, to be read only; 0: a free slot */
	__u32 pid;
	__u32 tid;
	__u32 throttled;	/* as it was told last */
	__u32 pad;
};

#define WAITERS 4	/* more are not asked for their quota, a power of two */

struct cpu_state {
	__u64 since;	/* the latest switch */
	__u32 depth;	/* of interrupts */
	__u32 waiters;	/* runnable threads of targets that do not run; other CPUs write it too */
	__u32 begun;	/* bits of enum interrupt_kind: handlers that were seen to begin here */
	__u32 pad;
	struct interrupt_state interrupt[INTERRUPT_NEST];
	__u64 threaded_begin;	/* the handler that asked for its thread, which is woken now; 0: none */
	__u32 threaded_line;
	__u32 pad2;
	struct chain led[INTERRUPT_NEST];	/* to each of them; 0 links to a free slot */
	struct chain raised[SOFTIRQS];		/* what raised a pending softirq first */
	struct switched_out switched_out[SWITCHED_OUT];
	__u64 stacks_window;	/* see thread_stack_due */
	__u32 stacks_taken;	/* in it */
	__u32 pad3;
	struct cq_telling telling;
	struct waiter waiting[WAITERS];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);	/* user space sets it to the number of CPUs */
	__type(key, __u32);
	__type(value, struct cpu_state);
} cpus SEC(".maps");

static __always_inline struct cpu_state *cpu_state_of(__u32 cpu)
{
	return bpf_map_lookup_elem(&cpus, &cpu);
}

/* The mask shows the verifier the bound, whatever the compiler makes of i. */
static __always_inline struct interrupt_state *interrupt_slot(struct cpu_state *c, __u32 i)
{
	barrier_var(i);
	return &c->interrupt[i & (INTERRUPT_NEST - 1)];
}

static __always_inline struct switched_out *switched_out_slot(struct cpu_state *c, __u32 i)
{
	barrier_var(i);
	return &c->switched_out[i & (SWITCHED_OUT - 1)];
}

static __always_inline struct cpu_state *cpu_here(void)
{
	return cpu_state_of(bpf_get_smp_processor_id());
}

#endif
