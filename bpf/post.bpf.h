/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * ibv_post_send, ibv_post_recv, ibv_post_srq_recv: a linked list of WRs.
 * The records are written at the entry, since a completion may be polled
 * elsewhere before the function returns; the return says what was refused.
 */
#ifndef RDMATRACE_POST_BPF_H
#define RDMATRACE_POST_BPF_H

#define LIST_MAX 128	/* WRs of one call */
#define SGE_MAX 32	/* scatter entries of one WR; mlx5 takes 30 */

/* Result of sge_bytes: the sum in the low half, these above it. */
#define SGE_UNREADABLE	(1ULL << 32)
#define SGE_TRUNCATED	(1ULL << 33)

/* Sum of the lengths of num entries at list, which have their length at offset 8. A global function: verified once. */
__noinline __u64 sge_bytes(__u64 list, __u32 num)
{
	__u32 length = 0, sum = 0, i;

	for (i = 0; i < SGE_MAX && i < num; i++) {
		if (bpf_probe_read_user(&length, sizeof(length), (void *)(list + i * sizeof(struct verbs_sge) + 8)))
			return sum | SGE_UNREADABLE;
		sum += length;
	}
	return num > SGE_MAX ? sum | SGE_TRUNCATED : sum;
}

/* Which flag of a WR record a result of sge_bytes means; counts it. */
static __always_inline __u32 sge_flags(__u64 result)
{
	if (result & SGE_UNREADABLE) {
		count(COUNT_WR_UNREADABLE);
		return WR_UNREADABLE;
	}
	if (result & SGE_TRUNCATED) {
		count(COUNT_SGE_TRUNCATED);
		return WR_SGE_TRUNCATED;
	}
	return 0;
}

/* The part of ibv_qp that every record of a call needs. */
struct qp_head {
	__u32 qp_num;
	__u32 state;
	__u32 qp_type;
};

static __always_inline void qp_head_read(struct qp_head *head, __u64 qp)
{
	if (bpf_probe_read_user(head, sizeof(*head), (void *)(qp + __builtin_offsetof(struct verbs_qp, qp_num)))) {
		head->qp_num = 0;
		head->qp_type = 0;
		count(COUNT_QP_UNREADABLE);
	}
}

/* Begins a call that posts, none of whose WRs is written yet. */
static __always_inline void call_begin(struct pt_regs *ctx, struct thread *t, __u64 now, __u64 qp, __u32 flags)
{
	struct wr_record *rec = &t->chunk.head;

	rec->h.time = now;
	rec->h.flags = flags;
	rec->begin = now;
	rec->qp = qp;
	rec->stack = post_stack(ctx, t, now);
	rec->qp_num = 0;
	rec->call = ++t->calls;
	rec->first = 0;
}

/*
 * Writes a chunk with its first n WRs; the next begins behind them.  As it is
 * whole by then, nothing is reserved in the ring while user memory is read.
 */
static __always_inline void chunk_write(struct wr_chunk *c, __u32 n)
{
	struct out o;

	if (!n || n > WR_CHUNK)
		return;
	out_open(&o);
	header_fill(&c->head.h, &o, RECORD_WR, c->head.h.time, c->head.h.flags);
	c->head.count = n;
	barrier_var(n);
	if (!o.ring || bpf_ringbuf_output(o.ring, c, sizeof(c->head) + n * sizeof(c->wr[0]), o.wake))
		count_dropped_many(RECORD_WR, c->head.h.time, n);
	c->head.first += n;
}

/* The list goes on at next behind the n WRs that were read. */
static __always_inline void list_check(struct wr_chunk *c, __u32 n, __u64 next)
{
	if (c->head.first + n < LIST_MAX || !next)
		return;
	c->wr[WR_CHUNK - 1].flags |= WR_TRUNCATED;
	count(COUNT_LIST_TRUNCATED);
}

/*
 * The bodies of loops are global functions: the verifier walks each once, not
 * once for every round, which would take longer than all other programs.
 */

/* One WR of a send list; returns the address of the next. */
__noinline __u64 post_send_one(struct wr_entry *w, __u64 addr, bool ud)
{
	struct verbs_send_wr wr;
	__u64 sge = 0;

	if (!w)
		return 0;
	__builtin_memset(w, 0, sizeof(*w));
	if (bpf_probe_read_user(&wr, sizeof(wr), (void *)addr)) {
		count(COUNT_WR_UNREADABLE);
		w->flags = WR_UNREADABLE;
		return 0;
	}
	if (wr.opcode != VERBS_WR_LOCAL_INV && wr.opcode != VERBS_WR_BIND_MW && wr.num_sge > 0)
		sge = sge_bytes(wr.sg_list, wr.num_sge);
	w->flags = sge_flags(sge);
	w->wr_id = wr.wr_id;
	w->bytes = sge;
	w->send_flags = wr.send_flags;
	w->remote_qpn = ud ? wr.rkey_or_qpn : 0;
	w->num_sge = wr.num_sge;
	w->opcode = wr.opcode;
	return wr.next;
}

__noinline __u64 post_recv_one(struct wr_entry *w, __u64 addr)
{
	struct verbs_recv_wr wr;
	__u64 sge = 0;

	if (!w)
		return 0;
	__builtin_memset(w, 0, sizeof(*w));
	if (bpf_probe_read_user(&wr, sizeof(wr), (void *)addr)) {
		count(COUNT_WR_UNREADABLE);
		w->flags = WR_UNREADABLE;
		return 0;
	}
	if (wr.num_sge > 0)
		sge = sge_bytes(wr.sg_list, wr.num_sge);
	w->flags = sge_flags(sge);
	w->wr_id = wr.wr_id;
	w->bytes = sge;
	w->num_sge = wr.num_sge;
	return wr.next;
}

/*
 * The next WRs of a send list, as many as a chunk takes; returns the address of
 * the one that follows.  wqe is the index of the first one's, -1: unknown, as
 * that of all others is: how many basic blocks a WR takes is the library's secret.
 */
__noinline __u64 post_send_chunk(struct wr_chunk *c, __u64 addr, bool ud, __s32 wqe)
{
	__u32 i;

	if (!c)
		return 0;
	for (i = 0; i < WR_CHUNK && addr; i++)
		addr = post_send_one(&c->wr[i], addr, ud);
	if (wqe >= 0) {
		c->wr[0].wqe = wqe;
		c->wr[0].flags |= WR_WQE_VALID;
	}
	list_check(c, i, addr);
	chunk_write(c, i);
	return addr;
}

__noinline __u64 post_recv_chunk(struct wr_chunk *c, __u64 addr)
{
	__u32 i;

	if (!c)
		return 0;
	for (i = 0; i < WR_CHUNK && addr; i++)
		addr = post_recv_one(&c->wr[i], addr);
	list_check(c, i, addr);
	chunk_write(c, i);
	return addr;
}

/* Remembers the call; NULL: not ours to record. */
static __always_inline struct thread *post_begin(struct pt_regs *ctx, __u32 flags)
{
	struct thread *t = verbs_hit(ctx);
	__u64 now;

	if (!t)
		return NULL;
	now = bpf_ktime_get_ns();
	call_begin(ctx, t, now, PT_REGS_PARM1(ctx), flags);
	t->post.begin = now;
	t->post.qp = PT_REGS_PARM1(ctx);
	t->post.list = PT_REGS_PARM2(ctx);
	t->post.bad_wr = PT_REGS_PARM3(ctx);
	t->post.call = t->calls;
	return t;
}

SEC("uprobe")
int post_send_enter(struct pt_regs *ctx)
{
	struct thread *t = post_begin(ctx, 0);
	struct qp_head head = {};
	__u32 i, index = 0;
	__s32 wqe = -1;
	__u64 addr;

	if (!t)
		return 0;
	t->posted = t->post.begin;
	qp_head_read(&head, t->post.qp);
	t->chunk.head.qp_num = head.qp_num;
	if (only_poster(t->post.qp) && wqe_next(ctx, t->post.qp, &index))
		wqe = index & 0xffff;
	addr = t->post.list;
	for (i = 0; i < LIST_MAX / WR_CHUNK && addr; i++) {
		addr = post_send_chunk(&t->chunk, addr, head.qp_type == VERBS_QPT_UD, wqe);
		wqe = -1;
	}
	t->post.count = t->chunk.head.first;
	return 0;
}

/* The low byte of the cookie holds the WR_* flags: WR_RECEIVE, with WR_SRQ for post_srq_recv. */
SEC("uprobe")
int post_recv_enter(struct pt_regs *ctx)
{
	__u32 flags = bpf_get_attach_cookie(ctx) & 0xff;
	struct thread *t = post_begin(ctx, flags);
	__u64 addr;
	__u32 i;

	if (!t)
		return 0;
	if (!(flags & WR_SRQ)) {
		struct qp_head head = {};

		qp_head_read(&head, t->post.qp);
		t->chunk.head.qp_num = head.qp_num;
	}
	addr = t->post.list;
	for (i = 0; i < LIST_MAX / WR_CHUNK && addr; i++)
		addr = post_recv_chunk(&t->chunk, addr);
	t->post.count = t->chunk.head.first;
	return 0;
}

/* Place of the refused WR in the list, -1: unknown. Its next pointer is at 8 in both kinds of WR. */
static __always_inline __s32 post_bad_index(const struct post_state *p)
{
	__u64 bad = 0, addr = p->list;
	__s32 i;

	if (bpf_probe_read_user(&bad, sizeof(bad), (void *)p->bad_wr))
		return -1;
	for (i = 0; i < LIST_MAX && addr; i++) {
		if (addr == bad)
			return i;
		if (bpf_probe_read_user(&addr, sizeof(addr), (void *)(addr + 8)))
			return -1;
	}
	return -1;
}

/* Return of all three; the low byte of the cookie holds the WR_* flags. */
SEC("uretprobe")
int post_exit(struct pt_regs *ctx)
{
	struct post_end_record *rec;
	struct thread *t;
	struct out o;
	__u64 now;

	if (!open)
		return 0;
	t = thread_hit(ctx);
	if (!t || !t->post.begin)
		return 0;
	now = bpf_ktime_get_ns();
	out_open(&o);
	rec = out_reserve(&o, sizeof(*rec), RECORD_POST_END, now);
	if (rec) {
		header_fill(&rec->h, &o, RECORD_POST_END, now, bpf_get_attach_cookie(ctx) & 0xff);
		rec->qp = t->post.qp;
		rec->begin = t->post.begin;
		rec->call = t->post.call;
		rec->result = PT_REGS_RC(ctx);
		rec->count = t->post.count;
		rec->bad_index = rec->result ? post_bad_index(&t->post) : -1;
		rec->traps = 2;
		rec->pad = 0;
		out_submit(&o, rec);
	}
	t->post.begin = 0;
	return 0;
}

#endif
