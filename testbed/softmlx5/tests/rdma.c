/* What the test programs share. */
#include <time.h>
#include "rdma.h"

#define HUNG 300        /* seconds */

void rdma_open(struct rdma *r)
{
	struct ibv_port_attr port;
	int n;
	struct ibv_device **l = ibv_get_device_list(&n);

	CHECK(l && n);
	r->ctx = ibv_open_device(l[0]);
	CHECK(r->ctx);
	ibv_free_device_list(l);
	CHECK(!ibv_query_port(r->ctx, 1, &port));
	r->lid = port.lid;
	r->pd = ibv_alloc_pd(r->ctx);
	CHECK(r->pd);
}

void rdma_close(struct rdma *r)
{
	CHECK(!ibv_dealloc_pd(r->pd));
	CHECK(!ibv_close_device(r->ctx));
}

static void to_rts(struct rdma *r, struct ibv_qp *q, uint32_t peer)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT, .port_num = 1,
				 .qp_access_flags = ACCESS_ALL };

	CHECK(!ibv_modify_qp(q, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
			     IBV_QP_ACCESS_FLAGS));
	a.qp_state = IBV_QPS_RTR;
	a.path_mtu = IBV_MTU_4096;
	a.dest_qp_num = peer;
	a.max_dest_rd_atomic = 1;
	a.min_rnr_timer = 12;
	a.ah_attr.dlid = r->lid;
	a.ah_attr.port_num = 1;
	a.ah_attr.is_global = !r->lid;
	if (!r->lid)
		CHECK(!ibv_query_gid(r->ctx, 1, 0, &a.ah_attr.grh.dgid));
	CHECK(!ibv_modify_qp(q, &a, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
			     IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
			     IBV_QP_MIN_RNR_TIMER));
	a.qp_state = IBV_QPS_RTS;
	a.timeout = 14;
	a.retry_cnt = a.rnr_retry = 7;
	a.max_rd_atomic = 1;
	CHECK(!ibv_modify_qp(q, &a, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
			     IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC));
}

void rdma_connect(struct rdma *r, struct ibv_qp *a, struct ibv_qp *b)
{
	to_rts(r, a, b->qp_num);
	to_rts(r, b, a->qp_num);
}

void rdma_poll(struct ibv_cq *cq, struct ibv_wc *wc)
{
	time_t end = time(NULL) + HUNG;
	int n;

	while (!(n = ibv_poll_cq(cq, 1, wc)))
		CHECK(time(NULL) < end);
	CHECK(n == 1);
}
