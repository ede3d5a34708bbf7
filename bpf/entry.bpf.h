/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Completion entries that the kernel writes, as the NIC is software: a ring that
 * kernel and library share, with the indices of both.  Its addresses are the
 * kernel's, taken from its own structures whenever it writes an entry (see
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

/* The consumer's index of a CQ whose entries the kernel writes. */
static __always_inline bool entries_consumed(struct cq_state *s, __u32 *consumed)
{
	return s && s->entries && !bpf_probe_read_kernel(consumed, sizeof(*consumed), (void *)s->consumer);
}

/* The entry that was consumed last. false: not known. */
static __always_inline bool entry_last(struct cq_state *s, __u64 *address, __u16 *place)
{
	__u32 consumed;

	if (!entries_consumed(s, &consumed))
		return false;
	consumed = (consumed - 1) & s->entry_mask;
	*address = s->entries + ((__u64)consumed << (s->entry_shift & 31));
	*place = entry_part(consumed, s->entry_mask);
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
