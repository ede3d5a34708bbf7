/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Looks at completion queues.  Where empty polls are not observed, nothing says
 * how long a completion was not there yet.  So whenever the kernel runs on top
 * of a thread of a target for a reason of its own, an interrupt or a switch, it
 * looks whether the next completion is there: a byte, read where the target is
 * not made to wait.  Few completions are bounded so, each within a part of a
 * timer period; that is what aligns the clock of the device, which stamps all.
 */
#ifndef RDMATRACE_LOOK_BPF_H
#define RDMATRACE_LOOK_BPF_H

/* The current thread takes completions from this queue, at a site of the poll function with this number. */
static __always_inline void look_from_now(struct thread *t, struct cq_state *s, __u64 cq, __u32 number)
{
	__u32 i;

	s->slot = number;
	for (i = 0; i < LOOKS; i++) {
		if (t->looks[i] == cq)
			return;
	}
	t->looks[t->looks_next++ & (LOOKS - 1)] = cq;
}

/*
 * As libmlx5 does: an entry is there when it was ever written and its owner bit
 * is that of this round.  If others were consumed since the state was written,
 * the entry looked at is an older one, which is there.
 */
static __always_inline void look_at(struct cq_state *s)
{
	__u32 index = s->consumed, cqes = s->cqes, size = s->cqe_size;
	__u64 now = bpf_ktime_get_ns(), buf = s->buf;
	__u8 op_own;

	if (!s->synced || !buf || !s->slot)
		return;
	__sync_fetch_and_add(&poll_looks[(s->slot - 1) & (POLL_SLOTS - 1)], 1);
	if (bpf_probe_read_user(&op_own, sizeof(op_own), (void *)(buf + (__u64)(index & (cqes - 1)) * size + size - 1)))
		return; /* it was paged out, or freed */
	if (op_own >> 4 != CQE_INVALID && (op_own & 1) == ((index & cqes) != 0))
		return;
	s->last_empty = now;
	s->last_empty_tid = 0;
}

/* Looks at all queues from which the current thread takes completions. A global function, see post_send_one. */
__noinline int look_around(void)
{
	struct object_key key = { .pid = current_tgid() };
	struct cq_state *s;
	struct thread *t;
	__u32 i;

	if (!is_target(key.pid))
		return 0;
	t = bpf_task_storage_get(&threads, bpf_get_current_task_btf(), NULL, 0);
	if (!t)
		return 0;
	for (i = 0; i < LOOKS; i++) {
		key.object = t->looks[i];
		if (!key.object)
			break;
		s = bpf_map_lookup_elem(&cqs, &key);
		if (s)
			look_at(s);
	}
	return 0;
}

#endif
