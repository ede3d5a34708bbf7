/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * A library that does RDMA: two queue pairs of one process, connected to each
 * other, and count RDMA writes, the i-th of i % 100 + 1 bytes.
 */
#include <infiniband/verbs.h>
#include <stdio.h>
#include <stdlib.h>

#define CHECK(what) do { if (!(what)) { perror(#what); return 1; } } while (0)

static int connect_to(struct ibv_qp *qp, struct ibv_qp *peer, uint16_t lid)
{
	struct ibv_qp_attr a = {
		.qp_state = IBV_QPS_INIT, .port_num = 1,
		.qp_access_flags = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE,
	};

	CHECK(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS));
	a = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_1024, .dest_qp_num = peer->qp_num,
		.max_dest_rd_atomic = 1, .min_rnr_timer = 12, .ah_attr = { .dlid = lid, .port_num = 1 },
	};
	CHECK(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
			     IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER));
	a = (struct ibv_qp_attr){
		.qp_state = IBV_QPS_RTS, .timeout = 14, .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1,
	};
	CHECK(!ibv_modify_qp(qp, &a, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
			     IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC));
	return 0;
}

int traffic(long count)
{
	static char memory[4096];
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_qp *qp[2];
	struct ibv_port_attr port;
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_mr *mr;
	struct ibv_cq *cq;

	CHECK(list && *list);
	CHECK(ctx = ibv_open_device(*list));
	CHECK(!ibv_query_port(ctx, 1, &port));
	CHECK(pd = ibv_alloc_pd(ctx));
	CHECK(mr = ibv_reg_mr(pd, memory, sizeof(memory), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE));
	CHECK(cq = ibv_create_cq(ctx, 16, NULL, NULL, 0));
	for (int i = 0; i < 2; i++) {
		struct ibv_qp_init_attr a = {
			.send_cq = cq, .recv_cq = cq, .qp_type = IBV_QPT_RC, .sq_sig_all = 1,
			.cap = { .max_send_wr = 16, .max_recv_wr = 16, .max_send_sge = 1, .max_recv_sge = 1 },
		};
		CHECK(qp[i] = ibv_create_qp(pd, &a));
	}
	CHECK(!connect_to(qp[0], qp[1], port.lid));
	CHECK(!connect_to(qp[1], qp[0], port.lid));
	for (long i = 0; i < count; i++) {
		struct ibv_sge sge = { .addr = (uintptr_t)memory, .length = i % 100 + 1, .lkey = mr->lkey };
		struct ibv_send_wr *bad, wr = {
			.wr_id = i, .sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
			.wr.rdma = { .remote_addr = (uintptr_t)memory + 2048, .rkey = mr->rkey },
		};
		struct ibv_wc wc;
		int n;

		CHECK(!ibv_post_send(qp[0], &wr, &bad));
		while (!(n = ibv_poll_cq(cq, 1, &wc)))
			;
		CHECK(n == 1 && wc.status == IBV_WC_SUCCESS);
	}
	return 0;
}
