/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Completion entries that the kernel writes, as the NIC is software: a ring that
 * kernel and library share, with the indices of both.  It is found from the
 * kernel's own structures, which are those of a CQ as long as there is one (see
 * cqe.bpf.h), so nothing private of a library is needed.  The target may write
 * the ring: what is read there is masked, and compared only.
 */
#ifndef RDMATRACE_ENTRY_BPF_H
#define RDMATRACE_ENTRY_BPF_H

/* What an entry and its ibv_wc have in common: librxe copies the one to the other. */
struct entry_head {
	__u64 wr_id;
	__u32 status;
	__u32 opcode;
	__u32 vendor_err;
	__u32 byte_len;
	__u32 imm_data;
	__u32 qp_num;
};
_Static_assert(sizeof(struct entry_head) == __builtin_offsetof(struct verbs_wc, src_qp), "entry_head");

/* Where a place of a ring is, in 65536ths of it. */
static __always_inline __u16 entry_part(__u32 places, __u32 mask)
{
	return ((__u64)places << 16) / ((__u64)mask + 1);
}

/* A ring as it is now. */
struct entry_ring {
	__u64 at;
	__u32 mask;
	__u32 consumed;	/* the consumer's index */
};

/* That of a CQ whose entries the kernel writes. false: it is none, or cannot be read. */
static __always_inline bool entry_ring_read(struct cq_state *s, struct entry_ring *r)
{
	return s && s->ring_at && !bpf_probe_read_kernel(&r->at, sizeof(r->at), (void *)s->ring_at) &&
	       !bpf_probe_read_kernel(&r->mask, sizeof(r->mask), (void *)s->mask_at) &&
	       !bpf_probe_read_kernel(&r->consumed, sizeof(r->consumed), (void *)(r->at + s->consumer_at));
}

/* The entry that was consumed last, kept with the CQ. false: not known. */
static __always_inline bool entry_last(struct cq_state *s, __u64 *address, __u16 *place)
{
	__u32 last, round = cq_round;
	struct entry_ring r;

	if (!entry_ring_read(s, &r))
		return false;
	s->buf = r.at;
	s->cqes = r.mask + 1;
	s->consumed = r.consumed;
	s->followed = round;
	last = (r.consumed - 1) & r.mask;
	*address = r.at + s->entries_at + ((__u64)last << (s->entry_shift & 31));
	*place = entry_part(last, r.mask);
	return true;
}

/* Whether the entry at address is the completion's, 0; else EMIT_*. */
static __always_inline int entry_check(__u64 address, const struct verbs_wc *wc)
{
	struct entry_head head;

	if (bpf_probe_read_kernel(&head, sizeof(head), (void *)address))
		return EMIT_TIMELESS;
	if (head.wr_id == wc->wr_id && head.status == wc->status && head.qp_num == wc->qp_num &&
	    head.opcode == wc->opcode && head.byte_len == wc->byte_len)
		return 0;
	count(COUNT_CQE_UNFIT);
	return EMIT_UNFIT;
}

#endif
