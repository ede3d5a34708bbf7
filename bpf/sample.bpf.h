/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What threads that post or poll run, seen at regular times: what one does while
 * completions wait for it is in no other event, as long as it stays on its CPU.
 */
#ifndef RDMATRACE_SAMPLE_BPF_H
#define RDMATRACE_SAMPLE_BPF_H

/* The thread that runs here now, if it posts or polls. */
static __always_inline struct thread *sampled_thread(struct task_struct *task)
{
	struct thread *t;

	if (!open || !is_target(task->tgid))
		return NULL;
	t = bpf_task_storage_get(&threads, task, NULL, 0);
	if (!t)
		count(COUNT_STACKS_FULL);
	return t && t->uses_verbs ? t : NULL;
}

/* On a clock of each CPU. It comes as an interrupt, which keeps sched_switch out. */
SEC("perf_event")
int sample(struct bpf_perf_event_data *ctx)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct thread *t = sampled_thread(task);
	__u64 now, stack, period = ctx->sample_period;
	struct sample_record *rec;
	struct out o;

	if (!t)
		return 0;
	now = bpf_ktime_get_ns();
	stack = thread_stack(task, t, now);
	out_open(&o);
	rec = out_reserve(&o, sizeof(*rec), RECORD_SAMPLE, now);
	if (!rec)
		return 0;
	header_fill(&rec->h, &o, RECORD_SAMPLE, now, 0);
	rec->stack = stack;
	rec->period = period;
	out_submit(&o, rec);
	return 0;
}

#endif
