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

/* Some thread has a queue to look at: never where empty polls are observed. */
__u32 looking;

/* The current thread takes completions from this queue, at a site of the poll function with this number. */
static __always_inline void look_from_now(struct thread *t, struct cq_state *s, __u64 cq, __u32 number)
{
	__u32 i;

	s->slot = number;
	t->look_latest = cq;
	if (!looking)
		looking = 1;
	for (i = 0; i < LOOKS; i++) {
		if (t->looks[i] == cq)
			return;
	}
	t->looks[t->looks_next++ & (LOOKS - 1)] = cq;
}

/*
 * As libmlx5 does: an entry is there when it was ever written and its owner bit
 * is that of this round.  If others were consumed since the state was written,
 * the entry looked at is an older one, which is there.  Returns whether the
 * queue is empty.
 */
static __always_inline bool look_at(struct cq_state *s)
{
	__u32 index = s->consumed, cqes = s->cqes, size = s->cqe_size;
	__u64 now = bpf_ktime_get_ns(), buf = s->buf;
	__u8 op_own;

	if (!s->synced || !buf || !s->slot)
		return false;
	if (bpf_probe_read_user(&op_own, sizeof(op_own), (void *)(buf + (__u64)(index & (cqes - 1)) * size + size - 1)))
		return false; /* it was paged out, or freed */
	if (op_own >> 4 != CQE_INVALID && (op_own & 1) == ((index & cqes) != 0))
		return false;
	s->last_empty = now;
	s->last_empty_tid = 0;
	return true;
}

/*
 * Counts a look that sees the consumer's index of a queue beyond what has passed a
 * site: by one it is while a poll is on its way there.
 */
static __always_inline void look_behind(struct cq_state *s, __u32 slot)
{
	__u32 i = (slot - 1) & (POLL_SLOTS - 1), round = cq_round, index;
	__u64 at = s->index_at;

	if (!round || s->followed != round || !at || !poll_slots[i].alone)
		return;
	if (bpf_probe_read_user(&index, sizeof(index), (void *)at))
		return; /* it was paged out, or freed */
	if ((__s32)(index - s->consumed) > 1 && !cq_cleaned(s))
		__sync_fetch_and_add(&poll_behind[i], 1);
}

/* The current thread, if it is one of a target and may have queues to look at. */
static __always_inline struct thread *looking_thread(__u32 pid)
{
	if (!looking || !is_target(pid))
		return NULL;
	return bpf_task_storage_get(&threads, bpf_get_current_task_btf(), NULL, 0);
}

/* Looks at all queues from which the current thread takes completions.  A global function, see post_send_one. */
__noinline int look_around(void)
{
	__u32 pid = current_tgid(), i;
	struct thread *t = looking_thread(pid);
	struct cq_state *s;

	if (!t)
		return 0;
	for (i = 0; i < LOOKS && t->looks[i]; i++) {
		s = cq_state_in(t->looks[i], pid);
		if (!s)
			continue;
		if (s->slot) {
			__sync_fetch_and_add(&poll_looks[(s->slot - 1) & (POLL_SLOTS - 1)], 1);
			look_behind(s, s->slot);
		}
		look_at(s);
	}
	return 0;
}

/*
 * Looks on while the queue is empty that the current thread took a completion
 * from in the latest 10 ms, for one to come meanwhile: it is bounded to some 50
 * ns.  A thread that polls busily has nothing better to do, and it is not done
 * more often than the timer interrupts it.  2 or 3 us see one of short flights
 * soon; where none was seen in the latest 30 ms, about what user space takes for
 * the clock of the device to run evenly, it goes on for 10 to 12 us, 250 times a
 * second at most: of a timer of 1000 Hz that would be a hundredth of all time.
 */
#define LOOK_TIMES 64
#define LOOK_LONGER 256
#define LOOK_RECENT 10000000
#define LOOK_EVERY 30000000
#define LOOK_LONGER_EVERY 3500000

__noinline int look_on(void)
{
	__u32 pid = current_tgid(), times = LOOK_TIMES, i;
	struct thread *t = looking_thread(pid);
	struct cq_state *s;
	__u64 now;

	if (!t || !t->look_latest)
		return 0;
	now = bpf_ktime_get_ns();
	s = cq_state_in(t->look_latest, pid);
	if (!s || now - s->last_poll > LOOK_RECENT)
		return 0;
	if (now - t->look_came > LOOK_EVERY && now - t->look_longer > LOOK_LONGER_EVERY) {
		t->look_longer = now;
		times = LOOK_LONGER;
	}
	for (i = 0; i < LOOK_LONGER; i++) {
		if (i >= times)
			break;
		if (look_at(s))
			continue;
		if (i)
			t->look_came = now;
		break;
	}
	return 0;
}

#endif
