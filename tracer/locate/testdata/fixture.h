/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * A library and a provider in the manner of rdma-core, to be compiled by
 * different compilers in different ways.  The public structures have
 * libibverbs' layout; the private table has one of its own, unlike that of any
 * release.
 */
#include <stddef.h>

#ifdef __aarch64__
#define MUTEX 48
#else
#define MUTEX 40
#endif

typedef int function(void *, ...);

struct ibv_context {
	void *device;
	struct {
		function *query_device, *query_port, *unused1[5], *alloc_mw, *bind_mw, *dealloc_mw, *unused2,
			*poll_cq, *req_notify_cq, *unused3[7], *post_srq_recv, *unused4[4], *post_send, *post_recv,
			*unused5[5];
	} ops;
	int cmd_fd, async_fd, num_comp_vectors;
	char mutex[MUTEX];
	void *abi_compat;
};

struct verbs_context_ops {
	function *advise_mr, *alloc_mw, *alloc_td, *bind_mw, *create_qp, *create_qp_ex, *dealloc_mw, *dealloc_td,
		*modify_qp, *open_qp, *poll_cq, *post_recv, *post_send, *post_srq_ops, *post_srq_recv, *query_qp,
		*req_notify_cq, *resize_cq;
};

struct private {
	struct verbs_context_ops ops;
};

struct verbs_context {
	function *advise_mr, *open_qp, *create_qp_ex, *post_srq_ops;
	struct private *priv;
	size_t sz;
	struct ibv_context context;
};

struct ibv_qp {
	struct ibv_context *context;
	void *qp_context, *pd, *send_cq, *recv_cq, *srq;
	unsigned int handle, qp_num;
	int state, qp_type;
	char mutex[MUTEX], cond[48];
	unsigned int events_completed;
};

struct ibv_qp_ex {
	struct ibv_qp base;
	unsigned long long comp_mask, wr_id;
	unsigned int wr_flags;
	function *wr_atomic_cmp_swp, *wr_atomic_fetch_add, *wr_bind_mw, *wr_local_inv, *wr_rdma_read, *wr_rdma_write,
		*wr_rdma_write_imm, *wr_send, *wr_send_imm, *wr_send_inv, *wr_send_tso, *wr_set_ud_addr,
		*wr_set_xrc_srqn, *wr_set_inline_data, *wr_set_inline_data_list, *wr_set_sge, *wr_set_sge_list,
		*wr_start, *wr_complete, *wr_abort, *wr_atomic_write, *wr_flush;
};

void verbs_set_ops(struct verbs_context *, const struct verbs_context_ops *);
