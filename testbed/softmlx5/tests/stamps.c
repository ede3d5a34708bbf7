/*
 * Read CQE timestamps as an application does, with extended CQs.
 *
 *   stamps COUNT [UNTIL]
 *
 * COUNT RDMA writes, one after the other, and then one every millisecond until
 * CLOCK_MONOTONIC is beyond UNTIL ns; for each a line
 *
 *   request,cqe_raw,page_raw,wall_ns,real_ns,mono_ns
 *
 * cqe_raw is the timestamp field, page_raw the device's clock page read after
 * the completion, wall_ns the completion converted to wall-clock time by
 * libmlx5 (0 where the device does not offer that), real_ns and mono_ns the
 * host's clocks when all that was done.
 */
#include <time.h>
#include <unistd.h>
#include "rdma.h"

static uint64_t host_ns(clockid_t id)
{
	struct timespec t;

	clock_gettime(id, &t);
	return t.tv_sec * 1000000000ull + t.tv_nsec;
}

static struct ibv_cq_ex *create_cq(struct rdma *r, bool *wall)
{
	struct ibv_cq_init_attr_ex a = { .cqe = 16, .wc_flags = IBV_WC_EX_WITH_BYTE_LEN |
		IBV_WC_EX_WITH_COMPLETION_TIMESTAMP |
		IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK };
	struct ibv_cq_ex *cq = ibv_create_cq_ex(r->ctx, &a);

	*wall = cq != NULL;
	if (!cq) {
		a.wc_flags &= ~IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK;
		cq = ibv_create_cq_ex(r->ctx, &a);
	}
	CHECK(cq);
	return cq;
}

static uint64_t clock_page(struct rdma *r)
{
	struct ibv_values_ex v = { .comp_mask = IBV_VALUES_MASK_RAW_CLOCK };

	CHECK(!ibv_query_rt_values_ex(r->ctx, &v));
	/* libmlx5 hands the counter over in this form. */
	return v.raw_clock.tv_sec * 1000000000ull + v.raw_clock.tv_nsec;
}

int main(int argc, char **argv)
{
	int count = argc > 1 ? atoi(argv[1]) : 100;
	uint64_t until = argc > 2 ? strtoull(argv[2], NULL, 10) : 0;
	struct ibv_qp_init_attr a = { .qp_type = IBV_QPT_RC, .cap = { 16, 16, 1, 1, 0 } };
	struct rdma r;
	struct ibv_cq_ex *cq;
	struct ibv_qp *qp[2];
	struct ibv_mr *mr;
	static char buf[4096];
	bool wall;

	rdma_open(&r);
	cq = create_cq(&r, &wall);
	mr = ibv_reg_mr(r.pd, buf, sizeof(buf), ACCESS_ALL);
	CHECK(mr);
	a.send_cq = a.recv_cq = ibv_cq_ex_to_cq(cq);
	for (int i = 0; i < 2; i++) {
		qp[i] = ibv_create_qp(r.pd, &a);
		CHECK(qp[i]);
	}
	rdma_connect(&r, qp[0], qp[1]);
	for (int i = 0; i < count || host_ns(CLOCK_MONOTONIC) < until; i++) {
		struct ibv_sge s = { (uintptr_t)buf, 8, mr->lkey };
		struct ibv_send_wr w = { .sg_list = &s, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE,
					 .send_flags = IBV_SEND_SIGNALED }, *bad;
		struct ibv_poll_cq_attr pa = {};
		uint64_t raw, ns, page;
		int err;

		if (i >= count)
			usleep(1000);
		w.wr.rdma.remote_addr = (uintptr_t)buf + 2048;
		w.wr.rdma.rkey = mr->rkey;
		CHECK(!ibv_post_send(qp[0], &w, &bad));
		while ((err = ibv_start_poll(cq, &pa)) == ENOENT)
			;
		CHECK(!err && cq->status == IBV_WC_SUCCESS);
		raw = ibv_wc_read_completion_ts(cq);
		ns = wall ? ibv_wc_read_completion_wallclock_ns(cq) : 0;
		ibv_end_poll(cq);
		page = clock_page(&r);
		printf("%d,%lu,%lu,%lu,%lu,%lu\n", i, raw, page, ns, host_ns(CLOCK_REALTIME),
		       host_ns(CLOCK_MONOTONIC));
	}
	for (int i = 0; i < 2; i++)
		CHECK(!ibv_destroy_qp(qp[i]));
	CHECK(!ibv_destroy_cq(ibv_cq_ex_to_cq(cq)) && !ibv_dereg_mr(mr));
	rdma_close(&r);
	return 0;
}
