/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The ibv_wr_* builders: wr_start, then for each WR one wr_<op> and its
 * setters, then wr_complete, which posts them all or none, or wr_abort.
 * Sizes come after the WR is begun, so the WRs are kept until wr_complete.
 * Where libmlx5's send queue can be read, that tells them: see wqe.bpf.h.
 */
#ifndef RDMATRACE_BUILD_BPF_H
#define RDMATRACE_BUILD_BPF_H

#include "wqe.bpf.h"

/* Cookie of build_data: which setter. */
enum build_setter {
	SET_SGE = 1,		/* (qp, lkey, addr, length) */
	SET_SGE_LIST,		/* (qp, n, ibv_sge *) */
	SET_INLINE,		/* (qp, addr, length) */
	SET_INLINE_LIST,	/* (qp, n, ibv_data_buf *) */
};

/* The thread, if it is inside a bracket; counts calls that belong to none. */
static __always_inline struct thread *build_hit(struct pt_regs *ctx)
{
	struct thread *t;

	if (!open)
		return NULL;
	t = thread_hit(ctx);
	if (!t)
		return NULL;
	if (!t->build.begin) {
		if (t->build.started) /* else its wr_start came before the gate opened */
			count(COUNT_BUILD_STRAY);
		return NULL;
	}
	t->build.traps++;
	return t;
}

/* The WR begun last, NULL past BUILD_MAX. */
static __always_inline struct wr_entry *build_last(struct build_state *b)
{
	__u32 i = b->count - 1;

	if (i >= BUILD_MAX)
		return NULL;
	/* Else the compiler forms the address before the test, which the verifier rejects. */
	barrier_var(i);
	return &b->wr[i & (BUILD_MAX - 1)];
}

SEC("uprobe")
int build_start(struct pt_regs *ctx)
{
	struct thread *t;

	t = verbs_hit(ctx);
	if (!t)
		return 0;
	t->build.begin = bpf_ktime_get_ns();
	t->posted = t->build.begin;
	t->build.qp = PT_REGS_PARM1(ctx);
	t->build.count = 0;
	t->build.traps = 1;
	t->build.call = 0;
	t->build.started = 1;
	build_mode_of(ctx, &t->build);
	return 0;
}

/*
 * Any wr_<op>; the low byte of the cookie is its enum ibv_wr_opcode.  The
 * library holds the QP's lock from wr_start on, and the WR before was finished
 * by its last setter, so the index of the WQE is certain.
 */
SEC("uprobe")
int build_wr(struct pt_regs *ctx)
{
	struct thread *t = build_hit(ctx);
	struct verbs_qp_ex_wr wr;
	struct build_state *b;
	struct wr_entry *w;
	__u32 index = 0;

	if (!t)
		return 0;
	b = &t->build;
	if (b->mode == BUILD_READ) {
		umr_note(b, bpf_get_attach_cookie(ctx) & 0xff);
		return 0;
	}
	b->count++;
	w = build_last(b);
	if (!w) {
		count(COUNT_BUILD_OVERFLOW);
		return 0;
	}
	w->bytes = 0;
	w->remote_qpn = 0;
	w->num_sge = 0;
	w->flags = WR_BUILDER;
	w->opcode = bpf_get_attach_cookie(ctx);
	if (wqe_next(ctx, b->qp, &index))
		w->flags |= WR_WQE_VALID;
	w->wqe = index;
	if (b->count == 1)
		b->first = index;
	umr_note(b, w->opcode);
	if (bpf_probe_read_user(&wr, sizeof(wr), (void *)(b->qp + VERBS_QP_EX_WR))) {
		count(COUNT_WR_UNREADABLE);
		wr.wr_id = 0;
		wr.wr_flags = 0;
		w->flags |= WR_UNREADABLE;
	}
	w->wr_id = wr.wr_id;
	w->send_flags = wr.wr_flags;
	return 0;
}

/* Any setter of data; the low byte of the cookie is its enum build_setter. */
SEC("uprobe")
int build_data(struct pt_regs *ctx)
{
	struct thread *t = build_hit(ctx);
	struct wr_entry *w;
	__u64 sge;

	if (!t || t->build.mode == BUILD_READ)
		return 0;
	w = build_last(&t->build);
	if (!w)
		return 0;
	switch (bpf_get_attach_cookie(ctx) & 0xff) {
	case SET_SGE:
		w->bytes = PT_REGS_PARM4(ctx);
		w->num_sge = 1;
		break;
	case SET_INLINE:
		w->bytes = PT_REGS_PARM3(ctx);
		w->num_sge = 1;
		break;
	default:
		/* ibv_sge and ibv_data_buf: 16 bytes, length at 8, of which the low half is all that counts. */
		w->num_sge = PT_REGS_PARM2(ctx);
		sge = sge_bytes(PT_REGS_PARM3(ctx), w->num_sge);
		w->bytes = sge;
		w->flags |= sge_flags(sge);
	}
	return 0;
}

SEC("uprobe")
int build_ud_addr(struct pt_regs *ctx)
{
	struct thread *t = build_hit(ctx);
	struct wr_entry *w;

	if (!t || t->build.mode == BUILD_READ)
		return 0;
	w = build_last(&t->build);
	if (w)
		w->remote_qpn = PT_REGS_PARM3(ctx);
	return 0;
}

/* The next WRs of the thread's bracket, as many as a chunk takes. A global function, see post_send_one. */
__noinline int build_chunk(struct thread *t)
{
	__u32 i, at;

	if (!t)
		return 0;
	for (i = 0; i < WR_CHUNK; i++) {
		at = t->chunk.head.first + i;
		if (at >= BUILD_MAX || at >= t->build.count)
			break;
		barrier_var(at);
		t->chunk.wr[i] = t->build.wr[at & (BUILD_MAX - 1)];
	}
	if (t->chunk.head.first == BUILD_MAX - WR_CHUNK && t->build.count > BUILD_MAX)
		t->chunk.wr[WR_CHUNK - 1].flags |= WR_TRUNCATED;
	chunk_write(&t->chunk, i);
	return 0;
}

/*
 * The WRs are written before wr_complete runs, as for lists: a completion may
 * be polled before it returns. Its result is in the post_end record.
 */
SEC("uprobe")
int build_complete_enter(struct pt_regs *ctx)
{
	struct qp_head head = {};
	struct build_state *b;
	struct thread *t;
	__u32 i;

	t = build_hit(ctx);
	if (!t)
		return 0;
	b = &t->build;
	call_begin(ctx, t, bpf_ktime_get_ns(), b->qp, WR_BUILDER);
	t->chunk.head.begin = b->begin;
	qp_head_read(&head, b->qp);
	t->chunk.head.qp_num = head.qp_num;
	b->call = t->calls;
	build_consult(ctx, b);
	for (i = 0; i < BUILD_MAX && i < b->count; i += WR_CHUNK)
		build_chunk(t);
	return 0;
}

SEC("uretprobe")
int build_complete_exit(struct pt_regs *ctx)
{
	struct post_end_record *rec;
	struct build_state *b;
	struct thread *t;
	struct out o;
	__u64 now;

	if (!open)
		return 0;
	t = thread_hit(ctx);
	if (!t || !t->build.begin || !t->build.call)
		return 0;
	b = &t->build;
	if (!PT_REGS_RC(ctx))
		build_judge(b);
	now = bpf_ktime_get_ns();
	out_open(&o);
	rec = out_reserve(&o, sizeof(*rec), RECORD_POST_END, now);
	if (rec) {
		header_fill(&rec->h, &o, RECORD_POST_END, now, WR_BUILDER);
		rec->qp = b->qp;
		rec->begin = b->begin;
		rec->call = b->call;
		rec->result = PT_REGS_RC(ctx);
		rec->count = b->count;
		rec->bad_index = rec->result ? 0 : -1; /* all or nothing */
		rec->traps = b->traps + 1;
		rec->pad = 0;
		out_submit(&o, rec);
	}
	b->begin = 0;
	b->call = 0;
	return 0;
}

SEC("uprobe")
int build_abort(struct pt_regs *ctx)
{
	struct thread *t = build_hit(ctx);

	if (t)
		t->build.begin = 0;
	return 0;
}

#endif
