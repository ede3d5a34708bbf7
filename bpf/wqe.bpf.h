/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What was built between wr_start and wr_complete, read from the send queue
 * when wr_complete begins, so that no probe is needed on the operations and
 * their setters.  The library holds the QP's lock then.  Where it keeps the
 * index at which the bracket began, and the number of its WRs, is learned:
 * setters are probed, and the words in front of the send queue that were
 * something else are struck out.  Then what is read is compared with what the
 * setters were told, and only if it always agrees is it relied on.  Each use is
 * checked: all WQEs are the QP's with their own index, they end where the queue
 * goes on, there are as many as the library counted, and the last wr_id is the
 * ibv_qp_ex's.
 */
#ifndef RDMATRACE_WQE_BPF_H
#define RDMATRACE_WQE_BPF_H

#define BUILD_SLOTS 128	/* libraries with builders, each of one process */
#define BUILD_WORDS 32	/* u32 in front of the send queue's address */
#define BUILD_COUNT_AT 2	/* the number of WRs is so many words before the begin, in every release */

enum build_mode {
	BUILD_SETTERS,	/* the setters tell */
	BUILD_LEARN,	/* they do, and the words are looked for */
	BUILD_COMPARE,	/* they do, and the WQEs are compared */
	BUILD_READ,	/* the WQEs tell */
};

/* Written by user space only; a probe's cookie has the slot's number + 1 at SLOT_SHIFT. */
struct build_slot {
	__u32 mode;
	__u32 begin_at;	/* which word is the index at which the bracket began */
	__u32 epoch;	/* another with each process that has the slot */
};

volatile struct build_slot build_slots[BUILD_SLOTS];

/* Written here.  Brackets, of those that wr_complete posted. */
struct build_counts {
	__u32 learned;	/* whose words were looked at */
	__u32 not_begin;	/* a bit for each word that was not the begin of one */
	__u32 not_count;	/* a bit for each that was not the number of its WRs */
	__u32 agreed;
	__u32 differed;
	__u32 read;
	__u32 unfit;	/* that could not be read */
	__u32 epoch;	/* the slot's that all of this is of */
};

struct build_counts build_counts[BUILD_SLOTS];

enum build_verdict {
	BUILD_NO_VERDICT,
	BUILD_LOOKED,
	BUILD_AGREED,
	BUILD_DIFFERED,
	BUILD_WAS_READ,
	BUILD_UNFIT,
};

/* number is the slot's + 1. */
static __always_inline volatile struct build_slot *build_slot_at(__u32 number)
{
	__u32 i = number - 1;

	if (i >= BUILD_SLOTS)
		return NULL;
	barrier_var(i);
	return &build_slots[i & (BUILD_SLOTS - 1)];
}

/* How the bracket that begins is to be observed, for all of it. */
static __always_inline void build_mode_of(struct pt_regs *ctx, struct build_state *b)
{
	__u32 number = (bpf_get_attach_cookie(ctx) >> SLOT_SHIFT) & 0xff;
	volatile struct build_slot *slot = build_slot_at(number);
	struct build_counts *counts;

	b->slot = number;
	b->mode = BUILD_SETTERS;
	b->verdict = BUILD_NO_VERDICT;
	b->umrs = 0;
	b->invalidates = 0;
	if (!slot)
		return;
	b->mode = slot->mode;
	counts = &build_counts[(number - 1) & (BUILD_SLOTS - 1)];
	if (counts->epoch != slot->epoch) {
		__builtin_memset(counts, 0, sizeof(*counts));
		counts->epoch = slot->epoch;
	}
}

/* The words in front of the send queue's address that are value, a bit for each.  A global function, see post_send_one. */
__noinline __u32 words_that_are(__u64 end, __u32 value)
{
	__u32 words[BUILD_WORDS], i, bits = 0;

	if (bpf_probe_read_user(words, sizeof(words), (void *)(end - sizeof(words))))
		return 0;
	for (i = 0; i < BUILD_WORDS; i++) {
		if (words[i] == value)
			bits |= 1U << i;
	}
	return bits;
}

static __always_inline void build_look(struct build_state *b, volatile struct mlx5_layout *l)
{
	__u64 end = b->qp + l->qp_sq_start;

	if (!b->count || b->count > BUILD_MAX || !(b->wr[0].flags & WR_WQE_VALID))
		return;
	b->are_begin = words_that_are(end, b->first);
	b->are_count = words_that_are(end, b->count);
	b->verdict = BUILD_LOOKED;
}

/* struct mlx5_wqe_ctrl_seg of the public mlx5dv.h; big endian. */
struct wqe_ctrl {
	__u32 index_opcode;
	__u32 qpn_units;	/* its size in units of 16 bytes in the low 6 bits */
	__u8 signature;
	__u8 stream[2];
	__u8 flags;		/* WQE_* */
	__u32 immediate;
};

enum {
	WQE_SOLICITED = 0x02,
	WQE_CQ_UPDATE = 0x08,
	WQE_FENCE = 0x80,
};

enum {
	WQE_SEND_INV = 0x01,
	WQE_WRITE = 0x08,
	WQE_WRITE_IMM = 0x09,
	WQE_SEND = 0x0a,
	WQE_SEND_IMM = 0x0b,
	WQE_READ = 0x10,
	WQE_ATOMIC_CS = 0x11,
	WQE_ATOMIC_FA = 0x12,
	WQE_UMR = 0x25,
};

#define WQE_BLOCK	64
#define WQE_UNIT	16
#define WQE_UNITS	(WQE_BLOCK / WQE_UNIT)
#define WQE_UNITS_MAX	63
#define WQE_INLINE	0x80000000

/* Result of wqe_data: the sum in the low half, the number of segments above it, or this. */
#define WQE_DATA_SHIFT	32
#define WQE_DATA_UNFIT	(1ULL << 63)

/*
 * Sums the lengths of the data in the units from at on, of a ring with the
 * given mask.  Builders write no empty segments, and one of inline data, which
 * is the last.  A global function, see post_send_one.
 */
__noinline __u64 wqe_data(__u64 ring, __u32 mask, __u32 at, __u32 units)
{
	__u32 i, length = 0, sum = 0;

	for (i = 0; i < WQE_UNITS_MAX && i < units; i++) {
		if (bpf_probe_read_user(&length, sizeof(length), (void *)(ring + (__u64)((at + i) & mask) * WQE_UNIT)))
			return WQE_DATA_UNFIT;
		length = __builtin_bswap32(length);
		if (!length)
			return WQE_DATA_UNFIT;
		if (length & WQE_INLINE) {
			length &= ~WQE_INLINE;
			if (i || (length + sizeof(length) + WQE_UNIT - 1) / WQE_UNIT != units)
				return WQE_DATA_UNFIT;
			return length | 1ULL << WQE_DATA_SHIFT;
		}
		sum += length;
	}
	return sum | (__u64)i << WQE_DATA_SHIFT;
}

/* Units between the control segment and what the operation has of its own; -1: not known. */
static __always_inline __s32 wqe_transport_units(__u32 qp_type)
{
	switch (qp_type) {
	case VERBS_QPT_RC:
	case VERBS_QPT_UC:
		return 0;
	case VERBS_QPT_XRC_SEND:
		return 1;
	case VERBS_QPT_UD:
		return 3;
	}
	return -1;
}

/* enum ibv_wr_opcode, and the units in front of its data; false: no builder of ours makes it. */
static __always_inline bool wqe_operation(__u32 opcode, __u8 *verb, __u32 *units)
{
	*units = 0;
	switch (opcode) {
	case WQE_SEND:
		*verb = 2;
		return true;
	case WQE_SEND_IMM:
		*verb = 3;
		return true;
	case WQE_SEND_INV:
		*verb = 9;
		return true;
	}
	*units = 1;
	switch (opcode) {
	case WQE_WRITE:
		*verb = 0;
		return true;
	case WQE_WRITE_IMM:
		*verb = 1;
		return true;
	case WQE_READ:
		*verb = 4;
		return true;
	}
	*units = 2;
	switch (opcode) {
	case WQE_ATOMIC_CS:
		*verb = 5;
		return true;
	case WQE_ATOMIC_FA:
		*verb = 6;
		return true;
	}
	return false;
}

/* What invalidates or binds memory is the same WQE: these calls are probed, in whose order it is told. */
static __always_inline __u8 umr_operation(struct build_state *b)
{
	__u32 i = b->umr++;

	if (i >= b->umrs || i >= 64)
		return VERBS_WR_DRIVER1; /* of an mlx5dv_wr_* builder */
	return b->invalidates & (1ULL << (i & 63)) ? VERBS_WR_LOCAL_INV : VERBS_WR_BIND_MW;
}

/* A builder that the WQE does not tell by itself was called. */
static __always_inline void umr_note(struct build_state *b, __u32 opcode)
{
	__u32 i = b->umrs;

	if ((opcode != VERBS_WR_LOCAL_INV && opcode != VERBS_WR_BIND_MW) || i >= 64)
		return;
	if (opcode == VERBS_WR_LOCAL_INV)
		b->invalidates |= 1ULL << (i & 63);
	b->umrs = i + 1;
}

/* Reads what begins the WQE and all but its data. */
static __always_inline bool wqe_head_read(struct build_state *b, struct wr_entry *w, __u32 *units, __u32 *head)
{
	struct wqe_walk *k = &b->walk;
	__u64 slot = k->at & (k->blocks - 1);
	struct wqe_ctrl ctrl;
	__u32 what, own = 0;

	if (bpf_probe_read_user(&ctrl, sizeof(ctrl), (void *)(k->ring + slot * WQE_BLOCK)) ||
	    bpf_probe_read_user(&w->wr_id, sizeof(w->wr_id), (void *)(k->wrid + slot * sizeof(w->wr_id))))
		return false;
	what = __builtin_bswap32(ctrl.index_opcode);
	*units = __builtin_bswap32(ctrl.qpn_units);
	if (((what >> 8) & 0xffff) != (k->at & 0xffff) || *units >> 8 != k->qp_num)
		return false;
	*units &= WQE_UNITS_MAX;
	w->wqe = k->at;
	w->flags = WR_BUILDER | WR_WQE_VALID;
	w->send_flags = (ctrl.flags & WQE_FENCE ? VERBS_SEND_FENCE : 0) |
			(ctrl.flags & WQE_CQ_UPDATE ? VERBS_SEND_SIGNALED : 0) |
			(ctrl.flags & WQE_SOLICITED ? VERBS_SEND_SOLICITED : 0);
	if ((what & 0xff) == WQE_UMR) {
		w->opcode = umr_operation(b);
		*head = *units;
		return *units > 0;
	}
	if (k->transport < 0 || !wqe_operation(what & 0xff, &w->opcode, &own))
		return false;
	*head = 1 + k->transport + own;
	if (k->transport != 3)
		return *units >= *head;
	/* struct mlx5_wqe_av: the QP number behind the 8 bytes of the key. */
	if (bpf_probe_read_user(&w->remote_qpn, sizeof(w->remote_qpn),
				(void *)(k->ring + slot * WQE_BLOCK + WQE_UNIT + 8)))
		return false;
	w->remote_qpn = __builtin_bswap32(w->remote_qpn) & 0xffffff;
	return *units >= *head;
}

/* The setters were told what was read, as far as both know it. */
static __always_inline bool wqe_agrees(const struct wr_entry *told, const struct wr_entry *read)
{
	__u32 exact = VERBS_SEND_FENCE | VERBS_SEND_SOLICITED;

	/* A queue of which all is signalled has the bit in every WQE. */
	if (told->send_flags & VERBS_SEND_SIGNALED && !(read->send_flags & VERBS_SEND_SIGNALED))
		return false;
	return told->flags & WR_WQE_VALID && told->wqe == read->wqe && told->opcode == read->opcode &&
	       told->wr_id == read->wr_id && told->bytes == read->bytes && told->remote_qpn == read->remote_qpn &&
	       (told->send_flags & exact) == (read->send_flags & exact);
}

/*
 * The next WQE of the bracket of the current thread, of its WR number index;
 * false: it does not fit, or the setters were told something else.  A global
 * function, see post_send_one.
 */
__noinline int wqe_read_one(__u32 index)
{
	struct wr_entry read = {}, *w;
	__u32 units = 0, head = 0;
	struct thread *t;
	struct wqe_walk *k;
	__u64 data = 0;

	t = thread_self();
	if (!t || index >= BUILD_MAX)
		return 0;
	k = &t->build.walk;
	if (!wqe_head_read(&t->build, &read, &units, &head))
		return 0;
	if (units > head)
		data = wqe_data(k->ring, k->blocks * WQE_UNITS - 1, k->at * WQE_UNITS + head, units - head);
	if (data & WQE_DATA_UNFIT)
		return 0;
	read.bytes = data;
	read.num_sge = data >> WQE_DATA_SHIFT;
	k->at += (units + WQE_UNITS - 1) / WQE_UNITS;
	k->last_id = read.wr_id;
	w = &t->build.wr[index];
	if (t->build.mode == BUILD_READ)
		*w = read;
	else if (w->flags & (WR_UNREADABLE | WR_SGE_TRUNCATED))
		t->build.verdict = BUILD_NO_VERDICT;
	else if (!wqe_agrees(w, &read))
		return 0;
	return 1;
}

/* Finds the bracket in the send queue; false: the library has none that fits. */
static __always_inline bool wqe_walk_begin(struct build_state *b, volatile struct mlx5_layout *l, __u32 begin_at)
{
	struct wqe_walk *k = &b->walk;
	__u64 begin = b->qp + l->qp_sq_start - (BUILD_WORDS - begin_at) * sizeof(__u32);
	struct qp_head head = {};

	k->wrs = 0;
	if (begin_at < BUILD_COUNT_AT || begin_at >= BUILD_WORDS)
		return false;
	qp_head_read(&head, b->qp);
	k->qp_num = head.qp_num;
	k->transport = wqe_transport_units(head.qp_type);
	if (bpf_probe_read_user(&k->wrs, sizeof(k->wrs), (void *)(begin - BUILD_COUNT_AT * sizeof(__u32))) ||
	    bpf_probe_read_user(&k->at, sizeof(k->at), (void *)begin) ||
	    bpf_probe_read_user(&k->ring, sizeof(k->ring), (void *)(b->qp + l->qp_sq_start)) ||
	    bpf_probe_read_user(&k->wrid, sizeof(k->wrid), (void *)(b->qp + l->qp_wrid)) ||
	    bpf_probe_read_user(&k->blocks, sizeof(k->blocks), (void *)(b->qp + l->qp_sq_blocks)) ||
	    bpf_probe_read_user(&k->end, sizeof(k->end), (void *)(b->qp + l->qp_cur_post)))
		return false;
	return k->blocks && !(k->blocks & (k->blocks - 1)) && k->blocks <= 1 << 16 && k->end - k->at <= k->blocks &&
	       k->wrs <= k->end - k->at;
}

/* Walks the bracket; false: it does not fit. */
static __always_inline bool wqe_walk(struct build_state *b, volatile struct mlx5_layout *l, __u32 begin_at)
{
	struct wqe_walk *k = &b->walk;
	__u64 id = 0;
	__u32 i;

	b->umr = 0;
	if (!wqe_walk_begin(b, l, begin_at))
		return false;
	for (i = 0; i < BUILD_MAX && i < k->wrs; i++) {
		if (!wqe_read_one(i))
			return false;
	}
	if (k->wrs > BUILD_MAX)
		return true;
	if (k->at != k->end)
		return false;
	return !i || (!bpf_probe_read_user(&id, sizeof(id), (void *)(b->qp + VERBS_QP_EX_WR)) && id == k->last_id);
}

/* What cannot be read was posted all the same, unless wr_complete says otherwise. */
static __always_inline void build_blind(struct build_state *b)
{
	struct wr_entry *w;
	__u32 i;

	b->verdict = BUILD_UNFIT;
	b->count = b->walk.wrs;
	if (!b->count || b->count > BUILD_MAX)
		b->count = 1;
	for (i = 0; i < BUILD_MAX; i++) {
		w = &b->wr[i];
		if (i >= b->count)
			break;
		__builtin_memset(w, 0, sizeof(*w));
		w->flags = WR_BUILDER | WR_UNREADABLE;
	}
}

/* wr_complete begins: what the queue tells, in the bracket's mode. */
static __always_inline void build_consult(struct pt_regs *ctx, struct build_state *b)
{
	volatile struct build_slot *slot = build_slot_at(b->slot);
	volatile struct mlx5_layout *l = layout_here(ctx);

	if (b->mode == BUILD_SETTERS || !slot || !l || !l->qp_ready)
		return;
	if (b->mode == BUILD_READ) {
		if (!wqe_walk(b, l, slot->begin_at)) {
			build_blind(b);
			return;
		}
		b->count = b->walk.wrs;
		b->verdict = BUILD_WAS_READ;
		if (b->count > BUILD_MAX)
			count(COUNT_BUILD_OVERFLOW);
		return;
	}
	if (b->mode != slot->mode)
		return; /* setters may be missing by now */
	if (b->mode == BUILD_LEARN) {
		build_look(b, l);
		return;
	}
	if (!b->count || b->count > BUILD_MAX)
		return;
	b->verdict = BUILD_AGREED;
	if (!wqe_walk(b, l, slot->begin_at) || b->walk.wrs != b->count)
		b->verdict = BUILD_DIFFERED;
}

/* wr_complete has posted the bracket: what came of it counts. */
static __always_inline void build_judge(struct build_state *b)
{
	__u32 i = b->slot - 1;
	struct build_counts *c;

	if (i >= BUILD_SLOTS)
		return;
	barrier_var(i);
	c = &build_counts[i & (BUILD_SLOTS - 1)];
	switch (b->verdict) {
	case BUILD_LOOKED:
		__sync_fetch_and_or(&c->not_begin, ~b->are_begin);
		__sync_fetch_and_or(&c->not_count, ~b->are_count);
		__sync_fetch_and_add(&c->learned, 1);
		break;
	case BUILD_AGREED:
		__sync_fetch_and_add(&c->agreed, 1);
		break;
	case BUILD_DIFFERED:
		__sync_fetch_and_add(&c->differed, 1);
		break;
	case BUILD_WAS_READ:
		__sync_fetch_and_add(&c->read, 1);
		break;
	case BUILD_UNFIT:
		count(COUNT_WQE_UNFIT);
		__sync_fetch_and_add(&c->unfit, 1);
		break;
	}
}

/* The slot that builds_pending counts, + 1. */
__u32 pending_build;
__u64 builds_pending;

/* Counts the threads inside a bracket that the setters tell of. */
SEC("iter/task")
int builds_found(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct thread *t;

	if (!task)
		return 0;
	t = bpf_task_storage_get(&threads, task, NULL, 0);
	if (t && t->build.begin && t->build.slot == pending_build && t->build.mode != BUILD_READ)
		builds_pending++;
	return 0;
}

#endif
