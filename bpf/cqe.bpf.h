/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Completion entries that the kernel writes, since the NIC is software.
 * soft-RoCE's function is observed at entry and return: in between the entry
 * becomes visible, and then its queue's event handler is called.
 */
#ifndef RDMATRACE_CQE_BPF_H
#define RDMATRACE_CQE_BPF_H

struct cqe_call {
	__u64 begin;
	__u32 ahead;
	__u32 produced;
};

/* Calls under way, by their entry: callers keep it on their stack. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, __u64);
	__type(value, struct cqe_call);
} cqe_calls SEC(".maps");

/* The process that made the queue, 0: the kernel did. */
static __always_inline __u32 cq_owner(struct ib_cq *cq)
{
	return BPF_CORE_READ(cq, res.task, tgid);
}

/* The struct ibv_cq of its owner. */
static __always_inline __u64 cq_handle(struct ib_cq *cq)
{
	return BPF_CORE_READ(cq, uobject, uevent.uobject.user_handle);
}

static __always_inline __u32 cq_mask(struct rxe_cq *cq)
{
	struct rxe_queue *queue = BPF_CORE_READ(cq, queue);

	return READ_INT(queue, index_mask);
}

static __always_inline __u32 cq_produced(struct rxe_cq *cq)
{
	return BPF_CORE_READ(cq, queue, buf, producer_index);
}

/*
 * Keeps with the CQ how its ring is found, if a state of it was made.  Not where it
 * is: a resize gives it another, and entries that were not read move there.
 */
static __always_inline void cq_entries(struct rxe_cq *cq)
{
	struct cq_state *s = cq_state_in(cq_handle(&cq->ibcq), cq_owner(&cq->ibcq));
	struct rxe_queue *queue = BPF_CORE_READ(cq, queue);
	__u64 ring_at = (__u64)queue + bpf_core_field_offset(struct rxe_queue, buf);

	if (!s || !queue || s->ring_at == ring_at)
		return;
	s->entry_shift = READ_INT(queue, log2_elem_size);
	s->mask_at = (__u64)queue + bpf_core_field_offset(struct rxe_queue, index_mask);
	s->consumer_at = bpf_core_field_offset(struct rxe_queue_buf, consumer_index);
	s->entries_at = bpf_core_field_offset(struct rxe_queue_buf, data);
	barrier();
	s->ring_at = ring_at;
}

SEC("fentry/rxe_cq_post")
int BPF_PROG(rxe_cqe_enter, struct rxe_cq *cq, void *cqe)
{
	__u64 key = (__u64)cqe;
	struct cqe_call call = {};

	if (!open || !is_target(cq_owner(&cq->ibcq)))
		return 0;
	cq_entries(cq);
	call.begin = bpf_ktime_get_ns();
	call.produced = cq_produced(cq);
	call.ahead = (call.produced - BPF_CORE_READ(cq, queue, buf, consumer_index)) & cq_mask(cq);
	if (bpf_map_update_elem(&cqe_calls, &key, &call, BPF_ANY))
		count_dropped(RECORD_CQE, call.begin);
	return 0;
}

SEC("fexit/rxe_cq_post")
int BPF_PROG(rxe_cqe_exit, struct rxe_cq *cq, void *cqe, int solicited, int ret)
{
	struct cqe_call *called, call;
	__u64 key = (__u64)cqe;
	struct verbs_wc wc;	/* as librxe copies it into the ibv_wc */
	struct cqe_record *rec;
	struct out o;
	__u32 mask;

	called = bpf_map_lookup_elem(&cqe_calls, &key);
	if (!called)
		return 0;
	call = *called;
	bpf_map_delete_elem(&cqe_calls, &key);
	if (ret) /* the queue was full: nothing was written */
		return 0;
	if (bpf_probe_read_kernel(&wc, sizeof(wc), cqe)) {
		count_dropped(RECORD_CQE, call.begin);
		return 0;
	}
	out_open(&o);
	rec = out_reserve(&o, sizeof(*rec), RECORD_CQE, call.begin);
	if (!rec)
		return 0;
	header_fill(&rec->h, &o, RECORD_CQE, call.begin, 0);
	rec->h.pid = cq_owner(&cq->ibcq);
	rec->cq = cq_handle(&cq->ibcq);
	rec->end = bpf_ktime_get_ns();
	rec->wr_id = wc.wr_id;
	rec->qp_num = wc.qp_num;
	rec->status = wc.status;
	rec->opcode = wc.opcode;
	rec->ahead = call.ahead;
	mask = cq_mask(cq);
	rec->entry = entry_part(call.produced & mask, mask);
	rec->entries = entry_part((cq_produced(cq) - call.produced) & mask, mask);
	rec->pad = 0;
	out_submit(&o, rec);
	return 0;
}

#endif
