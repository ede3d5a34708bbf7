/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What libmlx5 keeps behind its public structures: the ring of completion
 * queue entries (CQEs), each with the hardware's time in it, and the index of
 * the next work queue entry (WQE).  User space proves the offsets on live
 * objects and hands them over by build of the library; every use is checked.
 */
#ifndef RDMATRACE_MLX5_BPF_H
#define RDMATRACE_MLX5_BPF_H

#define LAYOUTS_MAX 8
#define LAYOUT_SHIFT 8	/* a probe's cookie: the layout's index + 1 is in the byte above the verb's own */
#define SLOT_SHIFT 16	/* and in the next the number of the slot + 1, of a poll function or a library with builders */

/* Offsets from the ibv_cq and the ibv_qp. */
struct mlx5_layout {
	__u32 cq_ready;
	__u32 cq_active_buf;	/* pointer to a buffer, whose first word is the ring's address */
	__u32 cq_cons_index;	/* u32, CQEs consumed */
	__u32 cq_cqe_size;	/* u32, 64 or 128 */
	__u32 qp_ready;
	__u32 qp_cur_post;	/* u32, index of the next basic block of the send queue */
	__u32 qp_sq_start;	/* pointer to the send queue */
	__u32 qp_sq_blocks;	/* u32, its basic blocks, a power of two */
	__u32 qp_wrid;	/* pointer to u64[qp_sq_blocks] */
};

volatile struct mlx5_layout mlx5_layouts[LAYOUTS_MAX];

static __always_inline volatile struct mlx5_layout *layout_here(struct pt_regs *ctx)
{
	__u64 i = ((bpf_get_attach_cookie(ctx) >> LAYOUT_SHIFT) & 0xff) - 1;

	if (i >= LAYOUTS_MAX)
		return NULL;
	barrier_var(i);
	return &mlx5_layouts[i & (LAYOUTS_MAX - 1)];
}

/* Where the send queue's next WQE begins; the CQE's wqe_counter will show the low 16 bits. false: unknown. */
static __always_inline bool wqe_next(struct pt_regs *ctx, __u64 qp, __u32 *index)
{
	volatile struct mlx5_layout *l = layout_here(ctx);

	if (!l || !l->qp_ready)
		return false;
	if (bpf_probe_read_user(index, sizeof(*index), (void *)(qp + l->qp_cur_post))) {
		count(COUNT_QP_UNREADABLE);
		return false;
	}
	return true;
}

struct object_key {
	__u64 object;
	__u32 pid;
	__u32 pad;
};

/* The thread that posts lists to a QP. */
struct poster {
	__u32 tid;
	__u32 shared;	/* another was seen */
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, struct object_key);
	__type(value, struct poster);
} posters SEC(".maps");

/*
 * A list is seen before the library takes the QP's lock, so with two threads
 * the index read then may be given to the other's WR.
 */
static __always_inline bool only_poster(__u64 qp)
{
	__u64 id = bpf_get_current_pid_tgid();
	struct object_key key = { .object = qp, .pid = id >> 32 };
	struct poster *p = bpf_map_lookup_elem(&posters, &key);

	if (!p) {
		struct poster me = { .tid = id };

		return !bpf_map_update_elem(&posters, &key, &me, BPF_NOEXIST);
	}
	if (p->tid != (__u32)id)
		p->shared = 1;
	return !p->shared;
}

struct cq_state {
	__u64 last_empty;	/* entry of the latest poll that saw the CQ empty */
	__u64 last_poll;	/* return of the latest poll */
	__u32 last_empty_tid;
	__u32 empty_polls;	/* since the last completion */
	__u64 buf;		/* the ring of CQEs; 0: unknown */
	__u32 cqe_size;
	__u32 cqes;		/* in the ring, a power of two */
	__u32 consumed;		/* the consumer's index after the latest poll that found any */
	__u32 synced;		/* consumed is known */
	__u32 slot;		/* of the poll function whose sites report it, + 1; 0: none do */
	__u32 followed;		/* the round, see cq_round, in which consumed was read; 0: others consume from it meanwhile */
	__u64 index_at;		/* where a library has the consumer's index; 0: unknown */
	/* A ring that the kernel writes, see entry.bpf.h. */
	__u64 ring_at;		/* where the kernel has its address; 0: unknown, or there is none */
	__u64 mask_at;		/* and u32, how many entries there are, a power of two, less 1 */
	__u16 entries_at;	/* offset of the entries in the ring */
	__u16 consumer_at;	/* and of u32, the consumer's index */
	__u32 entry_shift;	/* the logarithm of an entry's size */
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, struct object_key);
	__type(value, struct cq_state);
} cqs SEC(".maps");

/* That of a CQ of any process, NULL: there is none. */
static __always_inline struct cq_state *cq_state_in(__u64 cq, __u32 pid)
{
	struct object_key key = { .object = cq, .pid = pid };

	return bpf_map_lookup_elem(&cqs, &key);
}

/*
 * That of a CQ of the process that runs.  Only what a process does itself makes
 * one, before it destroys the CQ: the kernel may write an entry after that.
 */
static __always_inline struct cq_state *cq_state_of(__u64 cq)
{
	struct object_key key = { .object = cq, .pid = current_tgid() };
	struct cq_state *s = bpf_map_lookup_elem(&cqs, &key);
	struct cq_state none = {};

	if (s)
		return s;
	/* Another thread may have been first: that is as good. */
	bpf_map_update_elem(&cqs, &key, &none, BPF_NOEXIST);
	s = bpf_map_lookup_elem(&cqs, &key);
	if (!s)
		count(COUNT_CQ_STATE);
	return s;
}

/* A new CQ, whatever was known of one that had its address. */
static __always_inline void cq_state_new(__u64 cq)
{
	struct object_key key = { .object = cq, .pid = current_tgid() };
	struct cq_state none = {};

	if (bpf_map_update_elem(&cqs, &key, &none, BPF_ANY))
		count(COUNT_CQ_STATE);
}

/* The end of a 64-byte CQE, struct mlx5_cqe64 of the public mlx5dv.h; big endian. */
struct cqe_tail {
	__u64 timestamp;
	__u32 sop_drop_qpn;	/* opcode of a requester's WQE, QP number */
	__u16 wqe_counter;
	__u8 signature;
	__u8 op_own;		/* opcode, format, owner bit */
};

enum {
	CQE_RESP_WR_IMM = 1,
	CQE_RESP_SEND = 2,
	CQE_RESP_SEND_INV = 4,
	CQE_REQ_ERR = 13,
	CQE_RESP_ERR = 14,
	CQE_INVALID = 15,	/* never written */
	CQE_FORMAT_MINI = 3,
};

/* The CQEs that one poll consumed. */
struct cqe_window {
	__u64 buf;	/* 0: unknown */
	__u32 first;	/* index of the first, counted since the CQ was made */
	__u32 cqes;
	__u32 cqe_size;
	__u32 pad;
};

/* Learns where the CQ's ring is. */
static __always_inline bool cq_ring_read(struct cq_state *s, volatile struct mlx5_layout *l, __u64 cq)
{
	__u64 active = 0, buf = 0;
	__u32 size = 0, mask = 0;

	if (bpf_probe_read_user(&active, sizeof(active), (void *)(cq + l->cq_active_buf)) ||
	    bpf_probe_read_user(&buf, sizeof(buf), (void *)active) ||
	    bpf_probe_read_user(&size, sizeof(size), (void *)(cq + l->cq_cqe_size)) ||
	    bpf_probe_read_user(&mask, sizeof(mask), (void *)(cq + __builtin_offsetof(struct verbs_cq, cqe)))) {
		count(COUNT_QP_UNREADABLE);
		return false;
	}
	if ((size != 64 && size != 128) || (mask & (mask + 1)))
		return false;
	s->cqe_size = size;
	s->cqes = mask + 1;
	barrier();
	s->buf = buf;
	return true;
}

/* Where the library has the index and the ring of a CQ, NULL: not known. */
static __always_inline volatile struct mlx5_layout *cq_layout(struct pt_regs *ctx)
{
	volatile struct mlx5_layout *l = layout_here(ctx);

	return l && l->cq_ready ? l : NULL;
}

/* The consumer's index of a CQ. */
static __always_inline bool cq_consumed(volatile struct mlx5_layout *l, __u64 cq, __u32 *consumed)
{
	return l && !bpf_probe_read_user(consumed, sizeof(*consumed), (void *)(cq + l->cq_cons_index));
}

/*
 * Counts the times that all probes of posts and polls were in, so that each
 * completion passed one; 0: some are out.  Written by user space only.
 */
volatile __u32 cq_round = 1;

/* Reads the consumer's index, and keeps it with the CQ. */
static __always_inline bool cq_sync(struct cq_state *s, volatile struct mlx5_layout *l, __u64 cq, __u32 *consumed)
{
	__u32 round = cq_round;

	s->followed = 0;
	if (!cq_consumed(l, cq, consumed)) {
		count(COUNT_QP_UNREADABLE);
		s->synced = 0;
		return false;
	}
	s->consumed = *consumed;
	s->synced = 1;
	s->index_at = cq + l->cq_cons_index;
	s->followed = round;
	return true;
}

/* The current process destroys a QP, or resets it: what that left in its queues goes. */
static __always_inline void qp_cleaned(void)
{
	struct target *target = target_of(current_tgid());

	if (target)
		target->cleaned = bpf_ktime_get_ns();
}

#define CLEAN_LONGEST 1000000000ULL	/* such a call takes no longer */

/* Whether entries may have gone from the queue that no poll took, since one did. */
static __always_inline bool cq_cleaned(const struct cq_state *s)
{
	struct target *target = target_of(current_tgid());

	return !target || (target->cleaned && target->cleaned + CLEAN_LONGEST > s->last_poll);
}

/* The window that begins with CQE first. */
static __always_inline void cqe_window_at(struct cq_state *s, volatile struct mlx5_layout *l, __u64 cq, __u32 first,
					  struct cqe_window *w)
{
	if (!s->buf && !cq_ring_read(s, l, cq))
		return;
	w->buf = s->buf;
	w->first = first;
	w->cqes = s->cqes;
	w->cqe_size = s->cqe_size;
}

/*
 * Which CQEs the poll that just returned n completions consumed.  Only when
 * the consumer's index moved by exactly n since the poll before are they known
 * to be these: not when another thread polled meanwhile, or the library
 * swallowed one.
 */
static __always_inline void cqe_window_of(struct cq_state *s, struct pt_regs *ctx, __u64 cq, __u32 n,
					  struct cqe_window *w)
{
	volatile struct mlx5_layout *l = cq_layout(ctx);
	__u32 consumed = 0, before = s->consumed, synced = s->synced;

	w->buf = 0;
	if (!l || !cq_sync(s, l, cq, &consumed) || !synced)
		return;
	if (consumed - before != n) {
		count(COUNT_CQE_UNFIT);
		return;
	}
	cqe_window_at(s, l, cq, before, w);
}

/*
 * The CQE that was consumed last, where the consumer's index is known to be
 * just past it.
 */
static __always_inline void cqe_window_last(struct cq_state *s, struct pt_regs *ctx, __u64 cq, struct cqe_window *w)
{
	volatile struct mlx5_layout *l = cq_layout(ctx);
	__u32 consumed = 0;

	w->buf = 0;
	if (l && cq_sync(s, l, cq, &consumed))
		cqe_window_at(s, l, cq, consumed - 1, w);
}

/* Reads one CQE of the window; false when it isn't what the poll must have consumed. */
static __always_inline bool cqe_read(const struct cqe_window *w, __u32 i, struct cqe_tail *tail)
{
	__u32 index = w->first + i;
	__u64 at = w->buf + (__u64)(index & (w->cqes - 1)) * w->cqe_size + w->cqe_size - sizeof(*tail);

	if (!w->buf)
		return false;
	if (bpf_probe_read_user(tail, sizeof(*tail), (void *)at)) {
		count(COUNT_WC_UNREADABLE);
		return false;
	}
	/* The owner bit flips at each round; a mini CQE stands for several. */
	if ((tail->op_own & 1) != ((index & w->cqes) != 0) || ((tail->op_own >> 2) & 3) == CQE_FORMAT_MINI) {
		count(COUNT_CQE_UNFIT);
		return false;
	}
	return true;
}

static __always_inline __u32 cqe_qp_num(const struct cqe_tail *tail)
{
	return __builtin_bswap32(tail->sop_drop_qpn) & 0xffffff;
}

static __always_inline bool cqe_is_error(const struct cqe_tail *tail)
{
	__u32 opcode = tail->op_own >> 4;

	return opcode == CQE_REQ_ERR || opcode == CQE_RESP_ERR;
}

/* The time and the WQE of a completion, into its record. */
static __always_inline void cqe_fill(struct completion_record *rec, const struct cqe_tail *tail)
{
	rec->wqe_counter = __builtin_bswap16(tail->wqe_counter);
	rec->h.flags |= COMPLETION_WQE_VALID;
	if (cqe_is_error(tail))
		return; /* the syndrome is where the time would be */
	rec->hw_time = __builtin_bswap64(tail->timestamp);
	rec->h.flags |= COMPLETION_HW_TIME;
}

/* enum ibv_wc_opcode of a CQE, for polls that don't tell: a requester's by the opcode of its WQE. */
static __always_inline __u32 cqe_wc_opcode(const struct cqe_tail *tail)
{
	__u32 opcode = tail->op_own >> 4;

	if (opcode == CQE_RESP_WR_IMM)
		return VERBS_WC_RECV | 1;
	if (opcode >= CQE_RESP_SEND && opcode <= CQE_RESP_SEND_INV)
		return VERBS_WC_RECV;
	switch (__builtin_bswap32(tail->sop_drop_qpn) >> 24) {
	case 0x08:
	case 0x09:
		return 1; /* RDMA write */
	case 0x10:
		return 2; /* RDMA read */
	case 0x11:
	case 0x14:
		return 3; /* compare and swap */
	case 0x12:
	case 0x15:
		return 4; /* fetch and add */
	case 0x25:
		return 5; /* UMR: memory window bound */
	case 0x0e:
		return 7; /* TSO */
	}
	return 0; /* send */
}

#endif
