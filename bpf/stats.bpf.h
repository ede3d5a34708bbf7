/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Every lossy step has a counter here. */
#ifndef RDMATRACE_STATS_BPF_H
#define RDMATRACE_STATS_BPF_H

enum counter {
	COUNT_NO_STORAGE,	/* no task storage for a thread of a target: its verbs were missed */
	COUNT_SWITCH_INFERRED,	/* a thread ran whose switch-in was not seen */
	COUNT_SCHED_UNTRACKED,	/* a thread's wait could not be followed in the scheduler */
	COUNT_LIST_TRUNCATED,	/* a posted list went on past LIST_MAX */
	COUNT_SGE_TRUNCATED,	/* a WR had more than SGE_MAX scatter entries: bytes are too few */
	COUNT_WR_UNREADABLE,	/* user memory of a WR faulted */
	COUNT_QP_UNREADABLE,	/* user memory of an object faulted */
	COUNT_WC_UNREADABLE,	/* user memory of completions faulted */
	COUNT_POLL_TRUNCATED,	/* completions past POLL_MAX of one poll */
	COUNT_POLL_FAILED,	/* polls that returned an error */
	COUNT_SITE_UNFIT,	/* hits on a learned path whose completion was none */
	COUNT_SITE_MISSED,	/* completions that passed no site of a learned path */
	COUNT_CQE_UNFIT,	/* CQEs that did not fit their completion: no time stamp, no index */
	COUNT_BUILD_OVERFLOW,	/* WRs past BUILD_MAX of one builder bracket */
	COUNT_BUILD_STRAY,	/* builder calls outside a bracket */
	COUNT_WQE_UNFIT,	/* brackets whose WQEs were not where they had been learned to be */
	COUNT_CQ_STATE,		/* no state for a CQ: its empty polls are unknown */
	COUNT_INTERRUPT_DEPTH,	/* interrupts nested too deep */
	COUNT_SOFTIRQS_OUT,	/* softirqs whose thread was switched out, too many to follow */
	COUNT_INTERRUPT_STRAY,	/* interrupt ends without their begin, after the gate */
	COUNT_STACK_CUT,	/* stack snapshots that could not be read */
	COUNT_SITES_FULL,	/* calls from sites whose stack was not taken: there are too many */
	COUNT_WAYS_FULL,	/* stacks not taken: too many ways lead to where they are */
	COUNT_STACKS_FULL,	/* switches and samples whose stack was not taken: too many in a short time */
	COUNT_TARGETS_FULL,	/* child processes that could not be followed */
	COUNT_NO_RING,		/* records of a CPU without a ring */
	COUNTERS,
};

/*
 * The order is that in which user space reads: a drop that is counted has told of its
 * times before, and while count is less than begun, some are on their way.
 */
struct loss {
	__u64 count;
	__u64 begun;
	__u64 last;	/* the greatest of their times */
	__u64 lag;	/* the most that the time of one was before its drop */
};

struct stats {
	__u64 counter[COUNTERS];
	struct loss dropped[RECORD_KINDS];	/* ring full, by kind of record */
	__u64 woken;	/* when this CPU last woke the reader for a full ring */
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct stats);
} stats SEC(".maps");

static __always_inline struct stats *stats_here(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&stats, &zero);
}

/* Atomic although per CPU: uprobe programs can be preempted. */
static __always_inline void count_many(enum counter which, __u32 n)
{
	struct stats *s = stats_here();

	if (s)
		__sync_fetch_and_add(&s->counter[which], n);
}

static __always_inline void count(enum counter which)
{
	count_many(which, 1);
}

#define KEEP_TRIES 8	/* each fails only where another drop of this CPU comes in between */

static __always_inline void keep_most(__u64 *most, __u64 value)
{
	__u64 was;
	__u32 i;

	for (i = 0; i < KEEP_TRIES; i++) {
		was = *(volatile __u64 *)most;
		if (value <= was || __sync_val_compare_and_swap(most, was, value) == was)
			return;
	}
}

/*
 * n: what they would have told of, which of WRs are more than records.  A program takes
 * the time of its record first: it may be preempted before it finds the ring full, and
 * here, and others drop records meanwhile.
 */
static __noinline void count_dropped_many(enum record_kind kind, __u64 time, __u32 n)
{
	struct stats *s = stats_here();
	struct loss *l;

	if (!s || kind >= RECORD_KINDS)
		return;
	l = &s->dropped[kind];
	__sync_fetch_and_add(&l->begun, n);
	keep_most(&l->last, time);
	keep_most(&l->lag, bpf_ktime_get_ns() - time);
	__sync_fetch_and_add(&l->count, n);
}

static __always_inline void count_dropped(enum record_kind kind, __u64 time)
{
	count_dropped_many(kind, time, 1);
}

#endif
