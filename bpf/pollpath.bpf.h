/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Completions, one by one, on the path on which a poll function consumes them. */
#ifndef RDMATRACE_POLLPATH_BPF_H
#define RDMATRACE_POLLPATH_BPF_H

static __always_inline void site_unfit(__u32 number)
{
	count(COUNT_SITE_UNFIT);
	__sync_fetch_and_add(&poll_unfit[(number - 1) & (POLL_SLOTS - 1)], 1);
}

/*
 * When the completion was seen not to be there, if that says more than the time
 * of the post and of the completion before; 0: it doesn't.
 */
static __always_inline __u64 site_looked(struct cq_state *s, struct thread *t)
{
	__u64 looked = s->last_empty;

	return looked > s->last_poll && looked > t->posted ? looked : 0;
}

/* Where a queue was at the hit before. */
struct cq_at {
	__u64 buf;
	__u32 consumed;
	__u32 followed;
};

/*
 * Every completion passes a site, so the consumer's index is one further at each:
 * what more it moved passed none.  The lock that polls of a queue take is held.
 */
static __always_inline void site_follow(struct cq_state *s, __u32 number, volatile struct poll_slot *slot,
					const struct cq_at *before, __u32 mask)
{
	__u32 moved = (s->consumed - before->consumed) & mask;

	if (!slot->alone || !s->followed || s->followed != before->followed || !moved || moved > mask >> 1)
		return;
	if (moved == 1 || cq_cleaned(s))
		return;
	count_many(COUNT_SITE_MISSED, moved - 1);
	__sync_fetch_and_add(&poll_missed[(number - 1) & (POLL_SLOTS - 1)], moved - 1);
}

/*
 * Notes that the current thread consumed a completion, of which *s gets the queue.
 * When its poll began is not known.  false: the queue was not found.
 */
static __always_inline bool site_reap(struct pt_regs *ctx, struct thread *t, __u32 number, volatile struct poll_slot *slot,
				      struct reap *r, struct cq_state **queue)
{
	struct cq_at before;
	struct cq_state *s;

	r->time = bpf_ktime_get_ns();
	r->flags |= COMPLETION_NO_EMPTY;
	r->count = 1;
	r->traps = 1;
	if (!word_at(ctx, slot->cq_at, &r->cq)) {
		site_unfit(number);
		return false;
	}
	r->cq += slot->cq_offset;
	*queue = s = cq_state_of(r->cq);
	if (!s)
		return true;
	before.consumed = s->consumed;
	before.followed = s->followed;
	before.buf = s->buf;
	if (!entry_last(s, &r->entry_address, &r->entry)) {
		r->looked = site_looked(s, t);
		look_from_now(t, s, r->cq, number);
		cqe_window_last(s, ctx, r->cq, &r->cqes);
		site_follow(s, number, slot, &before, ~0);
	} else if (s->buf == before.buf) { /* else entries that were not read have moved there */
		site_follow(s, number, slot, &before, s->cqes - 1);
	}
	s->last_poll = r->time;
	return true;
}

/* Counts a completion with what came of it. */
static __always_inline void site_came(__u32 number, struct cq_state *s, int came)
{
	__u32 i = (number - 1) & (POLL_SLOTS - 1);

	__sync_fetch_and_add(&poll_taken[i], 1);
	if (!came)
		return;
	if (s)
		s->buf = 0; /* the queue may have been resized */
	if (came & EMIT_UNFIT)
		site_unfit(number);
	else
		__sync_fetch_and_add(&poll_timeless[i], 1);
}

static __always_inline void site_completion(struct pt_regs *ctx, struct thread *t, __u32 number,
					    volatile struct poll_slot *slot)
{
	struct cq_state *s = NULL;
	struct reap r = {};
	__u64 wc = 0;

	if (!site_reap(ctx, t, number, slot, &r, &s))
		return;
	if (!word_at(ctx, slot->wc_at, &wc)) {
		site_unfit(number);
		return;
	}
	site_came(number, s, completion_emit(&r, wc + slot->wc_offset, 0));
}

static __always_inline void site_completion_ex(struct pt_regs *ctx, struct thread *t, __u32 number,
					       volatile struct poll_slot *slot)
{
	struct reap r = { .flags = COMPLETION_EX };
	struct cq_state *s = NULL;

	if (site_reap(ctx, t, number, slot, &r, &s))
		site_came(number, s, completion_ex_emit(&r));
}

static __always_inline int site_hit(struct pt_regs *ctx, bool ex)
{
	volatile struct poll_slot *slot;
	struct thread *t;
	__u32 number, mode;

	number = slot_of(ctx);
	slot = slot_at(number);
	t = slot ? verbs_hit(ctx) : NULL;
	if (!t)
		return 0;
	/* What its entry decided, where that was seen, is true for all of a poll. */
	mode = t->poll.begin ? t->poll.mode : slot->mode;
	if (mode != POLL_SITE && mode != POLL_LEAVE) {
		if (t->poll.begin && t->poll.trial && t->poll.slot == number)
			trial_hit(ctx, &t->poll);
	} else if (ex) {
		site_completion_ex(ctx, t, number, slot);
	} else {
		site_completion(ctx, t, number, slot);
	}
	return 0;
}

SEC("uprobe")
int poll_site(struct pt_regs *ctx)
{
	return site_hit(ctx, false);
}

/* ibv_start_poll and ibv_next_poll. */
SEC("uprobe")
int poll_ex_site(struct pt_regs *ctx)
{
	return site_hit(ctx, true);
}

#endif
