/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Completion events: ib_uverbs_comp_handler is what a driver calls for a CQ that
 * was armed, in its interrupt or in what that led to.  It puts the event into the
 * queue of the CQ's channel and wakes who sleeps there.  So its entry is a time by
 * which a completion was there, and what it wakes is woken for this CQ.
 */
#ifndef RDMATRACE_UVERBS_BPF_H
#define RDMATRACE_UVERBS_BPF_H

SEC("fentry/ib_uverbs_comp_handler")
int BPF_PROG(cq_event_entry, struct ib_cq *cq, void *channel)
{
	struct cq_event_record *rec;
	struct cpu_state *c;
	struct out o;
	__u64 now;
	__u32 pid;

	if (!open || !channel) /* without a channel there is nobody to tell */
		return 0;
	pid = cq_owner(cq);
	if (!is_target(pid))
		return 0;
	now = bpf_ktime_get_ns();
	out_open(&o);
	rec = out_reserve(&o, sizeof(*rec), RECORD_CQ_EVENT, now);
	if (!rec)
		return 0;
	header_fill(&rec->h, &o, RECORD_CQ_EVENT, now, 0);
	rec->h.pid = pid;
	rec->cq = cq_handle(cq);
	c = cpu_here();
	if (c) {
		c->telling.pid = pid;
		c->telling.depth = c->depth;
		c->telling.cq = rec->cq;
	}
	out_submit(&o, rec);
	return 0;
}

/*
 * An interrupt that tells another event in between, or a switch, ends it too early:
 * who is woken then is not known to be woken for the CQ, which is all.
 */
SEC("fexit/ib_uverbs_comp_handler")
int BPF_PROG(cq_event_exit, struct ib_cq *cq, void *channel)
{
	struct cpu_state *c = open ? cpu_here() : NULL;

	if (c)
		c->telling.cq = 0;
	return 0;
}

/* The CQ of a process whose event is being told here: who is woken is woken for it. 0: none. */
static __always_inline __u64 cq_told(__u32 pid)
{
	struct cpu_state *c = cpu_here();

	if (!c || c->telling.pid != pid || c->telling.depth != c->depth)
		return 0;
	return c->telling.cq;
}

#endif
