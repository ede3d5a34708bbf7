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

/* What all WR records of one call share. */
struct wr_common {
	__u64 time;
	__u64 begin;
	__u64 qp;
	__u64 stack;
	__u32 qp_num;
	__u32 call;
	__u16 wqe;		/* of the call's first WR */
	__u16 wqe_valid;
	__u32 pad;
};

/* Fills all that doesn't depend on the WR itself. */
static __always_inline struct wr_record *wr_reserve(struct out *o, const struct wr_common *c, __u32 index)
{
	struct wr_record *rec = out_reserve(o, sizeof(*rec), RECORD_WR, c->time);

	if (!rec)
		return NULL;
	__builtin_memset(rec, 0, sizeof(*rec));
	header_fill(&rec->h, o, RECORD_WR, c->time, 0);
	rec->begin = c->begin;
	rec->qp = c->qp;
	rec->stack = c->stack;
	rec->qp_num = c->qp_num;
	rec->call = c->call;
	rec->index = index;
	/* How many basic blocks a WR takes is the library's secret, so only the first one's index is known. */
	if (!index && c->wqe_valid) {
		rec->wqe = c->wqe;
		rec->h.flags = WR_WQE_VALID;
	}
	return rec;
}

/*
 * The bodies of loops are global functions: the verifier walks each once, not
 * once for every round, which would take longer than all other programs.
 *
 * A reservation is tested once, right where it is made: the verifier of 6.1
 * takes a second test for one that may fail, with the record still reserved.
 */

/* One WR of a send list; returns the address of the next. */
__noinline __u64 post_send_one(const struct wr_common *c, __u64 addr, __u32 index, bool ud)
{
	struct verbs_send_wr wr;
	struct wr_record *rec;
	__u64 sge = 0;
	struct out o;

	if (!c)
		return 0;
	out_open(&o);
	if (bpf_probe_read_user(&wr, sizeof(wr), (void *)addr)) {
		count(COUNT_WR_UNREADABLE);
		rec = wr_reserve(&o, c, index);
		if (rec) {
			rec->h.flags |= WR_UNREADABLE;
			out_submit(&o, rec);
		}
		return 0;
	}
	rec = wr_reserve(&o, c, index);
	if (!rec)
		return wr.next;
	if (wr.opcode != VERBS_WR_LOCAL_INV && wr.opcode != VERBS_WR_BIND_MW && wr.num_sge > 0)
		sge = sge_bytes(wr.sg_list, wr.num_sge);
	rec->h.flags |= sge_flags(sge);
	rec->wr_id = wr.wr_id;
	rec->bytes = sge;
	rec->send_flags = wr.send_flags;
	rec->remote_qpn = ud ? wr.rkey_or_qpn : 0;
	rec->num_sge = wr.num_sge;
	rec->opcode = wr.opcode;
	if (index == LIST_MAX - 1 && wr.next) {
		rec->h.flags |= WR_TRUNCATED;
		count(COUNT_LIST_TRUNCATED);
	}
	out_submit(&o, rec);
	return wr.next;
}

__noinline __u64 post_recv_one(const struct wr_common *c, __u64 addr, __u32 index, __u32 flags)
{
	struct verbs_recv_wr wr;
	struct wr_record *rec;
	__u64 sge = 0;
	struct out o;

	if (!c)
		return 0;
	out_open(&o);
	if (bpf_probe_read_user(&wr, sizeof(wr), (void *)addr)) {
		count(COUNT_WR_UNREADABLE);
		rec = wr_reserve(&o, c, index);
		if (rec) {
			rec->h.flags |= flags | WR_UNREADABLE;
			out_submit(&o, rec);
		}
		return 0;
	}
	rec = wr_reserve(&o, c, index);
	if (!rec)
		return wr.next;
	if (wr.num_sge > 0)
		sge = sge_bytes(wr.sg_list, wr.num_sge);
	rec->h.flags |= flags | sge_flags(sge);
	rec->wr_id = wr.wr_id;
	rec->bytes = sge;
	rec->num_sge = wr.num_sge;
	if (index == LIST_MAX - 1 && wr.next) {
		rec->h.flags |= WR_TRUNCATED;
		count(COUNT_LIST_TRUNCATED);
	}
	out_submit(&o, rec);
	return wr.next;
}

/* Remembers the call and fills what its records share; false: not ours to record. */
static __always_inline bool post_begin(struct pt_regs *ctx, struct thread **thread, struct wr_common *c)
{
	struct thread *t;

	t = verbs_hit(ctx);
	if (!t)
		return false;
	c->time = bpf_ktime_get_ns();
	c->begin = c->time;
	c->qp = PT_REGS_PARM1(ctx);
	c->call = ++t->calls;
	c->stack = post_stack(ctx, t, c->time);
	t->post.begin = c->begin;
	t->post.qp = c->qp;
	t->post.list = PT_REGS_PARM2(ctx);
	t->post.bad_wr = PT_REGS_PARM3(ctx);
	t->post.call = c->call;
	*thread = t;
	return true;
}

SEC("uprobe")
int post_send_enter(struct pt_regs *ctx)
{
	struct wr_common c = {};
	struct qp_head head = {};
	struct thread *t;
	__u32 i, wqe = 0;
	__u64 addr;

	if (!post_begin(ctx, &t, &c))
		return 0;
	t->posted = c.begin;
	qp_head_read(&head, c.qp);
	c.qp_num = head.qp_num;
	c.wqe_valid = only_poster(c.qp) && wqe_next(ctx, c.qp, &wqe);
	c.wqe = wqe;
	addr = t->post.list;
	for (i = 0; i < LIST_MAX && addr; i++)
		addr = post_send_one(&c, addr, i, head.qp_type == VERBS_QPT_UD);
	t->post.count = i;
	return 0;
}

/* The low byte of the cookie holds the WR_* flags: WR_RECEIVE, with WR_SRQ for post_srq_recv. */
SEC("uprobe")
int post_recv_enter(struct pt_regs *ctx)
{
	__u32 flags = bpf_get_attach_cookie(ctx) & 0xff;
	struct wr_common c = {};
	struct thread *t;
	__u64 addr;
	__u32 i;

	if (!post_begin(ctx, &t, &c))
		return 0;
	if (!(flags & WR_SRQ)) {
		struct qp_head head = {};

		qp_head_read(&head, c.qp);
		c.qp_num = head.qp_num;
	}
	addr = t->post.list;
	for (i = 0; i < LIST_MAX && addr; i++)
		addr = post_recv_one(&c, addr, i, flags);
	t->post.count = i;
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
