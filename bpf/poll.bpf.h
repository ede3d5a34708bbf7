/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Completions: ibv_poll_cq, and ibv_start_poll .. ibv_end_poll of extended
 * CQs.  A poll that finds nothing only leaves its time with the CQ.
 */
#ifndef RDMATRACE_POLL_BPF_H
#define RDMATRACE_POLL_BPF_H

/* What came of a completion_emit. */
#define EMIT_UNFIT	0x1	/* there was no completion, or another one's CQE */
#define EMIT_TIMELESS	0x2	/* its CQE could not be read */

#include "entry.bpf.h"
#include "trial.bpf.h"

#define POLL_MAX 256	/* completions recorded of one poll */

/* What all completion records of one poll share. */
struct reap {
	__u64 time;
	__u64 begin;
	__u64 cq;
	__u64 last_empty;
	__u64 looked;	/* as last_empty, but true only if the CQE is where it must be; 0: unknown */
	__u32 last_empty_tid;
	__u32 empty_polls;
	__u32 flags;
	__u32 count;
	__u32 traps;
	__u16 entry;
	__u16 pad;
	__u64 entry_address;	/* of an entry that the kernel wrote; 0: unknown */
	struct cqe_window cqes;
};

/* The CQ was seen empty between begin and now, so what comes next is younger than begin. */
static __always_inline void cq_seen_empty(struct cq_state *s, __u64 begin)
{
	s->last_empty = begin;
	s->last_empty_tid = bpf_get_current_pid_tgid();
}

/* Takes what the CQ's state says of these completions, and starts anew. */
static __always_inline void reap_fill(struct reap *r, struct cq_state *s, struct pt_regs *ctx)
{
	if (!s) {
		r->flags |= COMPLETION_NO_EMPTY;
		return;
	}
	if (s->last_empty_tid) {
		r->last_empty = s->last_empty;
		r->last_empty_tid = s->last_empty_tid;
	} else {
		r->looked = s->last_empty; /* where another function's sites take from the CQ as well */
	}
	r->empty_polls = s->empty_polls;
	s->empty_polls = 0;
	s->followed = 0;
	/* Of an extended CQ nobody takes another one before ibv_end_poll. */
	if (r->flags & COMPLETION_EX)
		cqe_window_last(s, ctx, r->cq, &r->cqes);
	else
		cqe_window_of(s, ctx, r->cq, r->count, &r->cqes);
}

static __always_inline struct completion_record *completion_reserve(struct out *o, const struct reap *r, __u32 index)
{
	struct completion_record *rec = out_reserve(o, sizeof(*rec), RECORD_COMPLETION, r->time);

	if (!rec)
		return NULL;
	__builtin_memset(rec, 0, sizeof(*rec));
	header_fill(&rec->h, o, RECORD_COMPLETION, r->time, r->flags);
	rec->cq = r->cq;
	rec->begin = r->begin;
	rec->last_empty = r->last_empty;
	rec->last_empty_tid = r->last_empty_tid;
	rec->empty_polls = index ? 0 : r->empty_polls;
	rec->index = index;
	rec->count = r->count;
	rec->traps = r->traps;
	return rec;
}

/* What the CQE tells, and the look before it, which was at just this CQE. */
static __always_inline void cqe_time(struct completion_record *rec, const struct reap *r, const struct cqe_tail *tail)
{
	cqe_fill(rec, tail);
	if (r->looked) {
		rec->last_empty = r->looked;
		rec->h.flags &= ~COMPLETION_NO_EMPTY;
	}
}

/* One completion of a poll; returns EMIT_*. A global function, see post_send_one. */
__noinline int completion_emit(const struct reap *r, __u64 wc_addr, __u32 index)
{
	struct completion_record *rec;
	struct cqe_tail tail;
	struct verbs_wc wc;
	int came = 0;
	struct out o;

	if (!r)
		return 0;
	out_open(&o);
	rec = completion_reserve(&o, r, index);
	if (!rec)
		return 0;
	if (r->flags & COMPLETION_LOST) {
		/* nothing to read */
	} else if (bpf_probe_read_user(&wc, sizeof(wc), (void *)(wc_addr + index * sizeof(wc)))) {
		count(COUNT_WC_UNREADABLE);
		rec->h.flags |= COMPLETION_UNREADABLE;
		came = EMIT_UNFIT;
	} else {
		if (wc.status > VERBS_WC_STATUS_MAX)
			came = EMIT_UNFIT;
		rec->wr_id = wc.wr_id;
		rec->qp_num = wc.qp_num;
		rec->status = wc.status;
		rec->opcode = wc.opcode;
		rec->vendor_err = wc.vendor_err;
		rec->byte_len = wc.byte_len;
		rec->src_qp = wc.src_qp;
		rec->wc_flags = wc.wc_flags;
		if (r->entry_address) {
			came |= entry_check(r->entry_address, &wc);
			if (!came) {
				rec->entry = r->entry;
				rec->h.flags |= COMPLETION_ENTRY_VALID;
			}
		} else if (!cqe_read(&r->cqes, index, &tail)) {
			came |= EMIT_TIMELESS;
		} else if (cqe_qp_num(&tail) != wc.qp_num) {
			count(COUNT_CQE_UNFIT);
			came = EMIT_UNFIT;
		} else {
			cqe_time(rec, r, &tail);
		}
	}
	out_submit(&o, rec);
	return came;
}

SEC("uprobe")
int poll_enter(struct pt_regs *ctx)
{
	struct thread *t;

	t = verbs_hit(ctx);
	if (!t)
		return 0;
	t->poll.cq = PT_REGS_PARM1(ctx);
	t->poll.want = PT_REGS_PARM2(ctx);
	t->poll.wc = PT_REGS_PARM3(ctx);
	t->poll.sp = PT_REGS_SP(ctx);
	t->poll.ex = 0;
	poll_mode_of(ctx, &t->poll);
	t->poll.begin = bpf_ktime_get_ns();
	return 0;
}

/* The poll failed: what it may have taken from the CQ is gone. Only that is emitted. */
static __always_inline void poll_failed(struct reap *r, struct cq_state *s)
{
	count(COUNT_POLL_FAILED);
	if (s)
		s->synced = s->followed = 0;
	r->flags |= COMPLETION_LOST;
}

SEC("uretprobe")
int poll_exit(struct pt_regs *ctx)
{
	__s32 n = PT_REGS_RC(ctx);
	struct reap r = {};
	struct cq_state *s;
	struct thread *t;
	int came = 0;
	__u32 i;

	if (!open)
		return 0;
	t = thread_hit(ctx);
	if (!t || !t->poll.begin)
		return 0;
	if (t->poll.mode == POLL_SITE && n >= 0) {
		t->poll.begin = 0;
		return 0;
	}
	if (t->poll.trial)
		trial_poll(ctx, &t->poll, n);
	r.traps = 2;
	r.begin = t->poll.begin;
	r.cq = t->poll.cq;
	t->poll.begin = 0;
	r.time = bpf_ktime_get_ns();
	s = cq_state_of(r.cq);
	if (n) {
		r.count = n > 0 ? n : 1;
		reap_fill(&r, s, ctx);
		if (n < 0)
			poll_failed(&r, s);
		for (i = 0; i < POLL_MAX && i < r.count; i++)
			came |= completion_emit(&r, t->poll.wc, i);
		if (came && s)
			s->buf = 0; /* the queue may have been resized */
		if (n > POLL_MAX)
			count(COUNT_POLL_TRUNCATED);
	}
	if (!s)
		return 0;
	if (s->ring_at)
		poll_written(t->poll.slot);
	if (n == 0)
		__sync_fetch_and_add(&s->empty_polls, 1);
	if (n >= 0 && n < t->poll.want)
		cq_seen_empty(s, r.begin);
	s->last_poll = r.time;
	return 0;
}

/*
 * ibv_start_poll and ibv_next_poll of an extended CQ: 0 with one completion
 * current, ENOENT when there is none.  The public structure shows only its
 * status and wr_id.
 */
SEC("uprobe")
int poll_ex_enter(struct pt_regs *ctx)
{
	struct thread *t;

	t = verbs_hit(ctx);
	if (!t)
		return 0;
	t->poll.cq = PT_REGS_PARM1(ctx);
	t->poll.want = 1;
	t->poll.wc = 0;
	t->poll.sp = PT_REGS_SP(ctx);
	t->poll.ex = 1;
	poll_mode_of(ctx, &t->poll);
	t->poll.begin = bpf_ktime_get_ns();
	return 0;
}

/* The current completion of an extended CQ; returns EMIT_*. A global function, see post_send_one. */
__noinline int completion_ex_emit(const struct reap *r)
{
	struct verbs_cq_ex_status cur;
	struct completion_record *rec;
	struct cqe_tail tail;
	int came = 0;
	struct out o;

	if (!r)
		return 0;
	out_open(&o);
	rec = completion_reserve(&o, r, 0);
	if (!rec)
		return 0;
	if (r->flags & COMPLETION_LOST) {
		/* nothing to read */
	} else if (bpf_probe_read_user(&cur, sizeof(cur), (void *)(r->cq + VERBS_CQ_EX_STATUS))) {
		count(COUNT_WC_UNREADABLE);
		rec->h.flags |= COMPLETION_UNREADABLE;
		came = EMIT_UNFIT;
	} else {
		if (cur.status > VERBS_WC_STATUS_MAX)
			came = EMIT_UNFIT;
		rec->status = cur.status;
		rec->wr_id = verbs_cq_ex_wr_id(&cur);
		if (!cqe_read(&r->cqes, 0, &tail)) {
			came |= EMIT_TIMELESS;
		} else if (cqe_is_error(&tail) && !cur.status) {
			count(COUNT_CQE_UNFIT);
			came = EMIT_UNFIT;
		} else {
			rec->qp_num = cqe_qp_num(&tail);
			rec->opcode = cqe_wc_opcode(&tail);
			cqe_time(rec, r, &tail);
		}
	}
	out_submit(&o, rec);
	return came;
}

#define ENOENT 2

SEC("uretprobe")
int poll_ex_exit(struct pt_regs *ctx)
{
	__s32 err = PT_REGS_RC(ctx);
	struct reap r = {};
	struct cq_state *s;
	struct thread *t;

	if (!open)
		return 0;
	t = thread_hit(ctx);
	if (!t || !t->poll.begin)
		return 0;
	if (t->poll.mode == POLL_SITE && (!err || err == ENOENT)) {
		t->poll.begin = 0;
		return 0;
	}
	if (t->poll.trial)
		trial_poll(ctx, &t->poll, !err ? 1 : err == ENOENT ? 0 : -1);
	r.begin = t->poll.begin;
	r.cq = t->poll.cq;
	t->poll.begin = 0;
	r.time = bpf_ktime_get_ns();
	r.flags = COMPLETION_EX;
	r.traps = 2;
	s = cq_state_of(r.cq);
	if (err != ENOENT) {
		r.count = 1;
		reap_fill(&r, s, ctx);
		if (err)
			poll_failed(&r, s);
		if (completion_ex_emit(&r) && s)
			s->buf = 0; /* the queue may have been resized */
	}
	if (!s)
		return 0;
	if (err == ENOENT) {
		__sync_fetch_and_add(&s->empty_polls, 1);
		cq_seen_empty(s, r.begin);
	}
	s->last_poll = r.time;
	return 0;
}

/* The low byte of the cookie holds the ARM_* flags. */
SEC("uprobe")
int req_notify_enter(struct pt_regs *ctx)
{
	struct arm_record *rec;
	struct out o;
	__u64 now;

	if (!verbs_hit(ctx))
		return 0;
	now = bpf_ktime_get_ns();
	out_open(&o);
	rec = out_reserve(&o, sizeof(*rec), RECORD_ARM, now);
	if (!rec)
		return 0;
	header_fill(&rec->h, &o, RECORD_ARM, now, bpf_get_attach_cookie(ctx) & 0xff);
	rec->cq = PT_REGS_PARM1(ctx);
	rec->solicited_only = PT_REGS_PARM2(ctx);
	rec->pad = 0;
	out_submit(&o, rec);
	return 0;
}

#endif
