/*
 * oracle-receiver: one thread sends to queue pairs of its own and receives what
 * it sent, each send and each receive with a wr_id of its own.
 *
 *   links=N   depth=N   so many queue pairs, and sends on each in a round
 *   srq=0|1             do the receivers share a receive queue?
 *   receives=N          kept posted: for each receiver, or in the shared queue
 *   gap=NS              slept between rounds: receives wait for their peer
 *   every=N  ns=NS      before it takes receives it computes so long, in every Nth round
 *   count=N             rounds; 0: until killed
 *
 * Where a send fails it takes what is flushed, and resets and connects both
 * queue pairs again.
 */
#include <string.h>
#include <sys/prctl.h>
#include "job.h"

#define MAX_LINKS 16
#define SIZE 64

static struct rdma r;
static struct ibv_cq *send_cq, *recv_cq;
static struct ibv_srq *srq;
static struct ibv_mr *mr;
static char buf[2 * SIZE];
static uint32_t nlinks, depth, receives;
static uint64_t ids;

static struct pair {
	struct ibv_qp *from, *to;
	bool failed;
} pairs[MAX_LINKS];

static struct ibv_qp *make(struct ibv_srq *shared)
{
	struct ibv_qp_init_attr a = {
		.send_cq = send_cq,
		.recv_cq = recv_cq,
		.srq = shared,
		.cap = { .max_send_wr = depth, .max_recv_wr = receives,
			 .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
	};
	struct ibv_qp *q = ibv_create_qp(r.pd, &a);

	CHECK(q);
	return q;
}

static void post_receive(struct ibv_qp *to)
{
	struct ibv_sge sge = { .addr = (uintptr_t)buf + SIZE, .length = SIZE, .lkey = mr->lkey };
	struct ibv_recv_wr *bad, wr = { .wr_id = ids++, .sg_list = &sge, .num_sge = 1 };

	if (srq)
		CHECK(!ibv_post_srq_recv(srq, &wr, &bad));
	else
		CHECK(!ibv_post_recv(to, &wr, &bad));
}

static void post_send(struct ibv_qp *from)
{
	struct ibv_sge sge = { .addr = (uintptr_t)buf, .length = SIZE, .lkey = mr->lkey };
	struct ibv_send_wr *bad, wr = {
		.wr_id = ids++, .sg_list = &sge, .num_sge = 1,
		.opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED,
	};

	CHECK(!ibv_post_send(from, &wr, &bad));
}

static struct pair *pair_of(uint32_t qpn)
{
	for (uint32_t i = 0; i < nlinks; i++) {
		if (pairs[i].from->qp_num == qpn || pairs[i].to->qp_num == qpn)
			return &pairs[i];
	}
	CHECK(!"a completion of no queue pair");
	return NULL;
}

static void reset(struct ibv_qp *q)
{
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_RESET };

	CHECK(!ibv_modify_qp(q, &a, IBV_QP_STATE));
}

/* Take the completions of a round's sends; returns how many succeeded. */
static uint32_t take_sends(void)
{
	struct ibv_wc wc;
	uint32_t good = 0;

	for (uint32_t n = 0; n < nlinks * depth; n++) {
		rdma_poll(send_cq, &wc);
		if (wc.status == IBV_WC_SUCCESS)
			good++;
		else
			pair_of(wc.qp_num)->failed = true;
	}
	return good;
}

/* Take so many receives, and post as many again. */
static void take_receives(uint32_t n)
{
	struct ibv_wc wc;

	for (; n; n--) {
		rdma_poll(recv_cq, &wc);
		CHECK(wc.status == IBV_WC_SUCCESS);
		post_receive(pair_of(wc.qp_num)->to);
	}
}

static void mend(struct pair *p)
{
	reset(p->from);
	reset(p->to);
	rdma_connect(&r, p->from, p->to);
	for (uint32_t i = 0; !srq && i < receives; i++)
		post_receive(p->to);
	p->failed = false;
}

int main(int argc, char **argv)
{
	uint64_t count, every, ns, gap;
	bool shared;

	options(argc, argv);
	nlinks = number("links", 1);
	depth = number("depth", 1);
	shared = number("srq", 0);
	receives = number("receives", 16);
	gap = number("gap", 0);
	every = number("every", 1);
	ns = number("ns", 0);
	count = number("count", 0);
	options_done();
	CHECK(!prctl(PR_SET_TIMERSLACK, 1ul, 0, 0, 0));
	CHECK(nlinks && nlinks <= MAX_LINKS && depth && every && receives >= depth * (shared ? nlinks : 1));

	rdma_open(&r);
	mr = ibv_reg_mr(r.pd, buf, sizeof(buf), ACCESS_ALL);
	send_cq = ibv_create_cq(r.ctx, nlinks * depth, NULL, NULL, 0);
	recv_cq = ibv_create_cq(r.ctx, nlinks * receives, NULL, NULL, 0);
	CHECK(mr && send_cq && recv_cq);
	if (shared) {
		struct ibv_srq_init_attr a = { .attr = { .max_wr = receives, .max_sge = 1 } };

		srq = ibv_create_srq(r.pd, &a);
		CHECK(srq);
	}
	for (uint32_t i = 0; i < nlinks; i++) {
		pairs[i].from = make(NULL);
		pairs[i].to = make(srq);
		rdma_connect(&r, pairs[i].from, pairs[i].to);
	}
	for (uint32_t i = 0; i < receives * (srq ? 1 : nlinks); i++)
		post_receive(pairs[i % nlinks].to);

	running();
	for (uint64_t round = 1; !count || round <= count; round++) {
		uint32_t good;

		for (uint32_t i = 0; i < nlinks * depth; i++)
			post_send(pairs[i % nlinks].from);
		if (ns && round % every == 0)
			spin(ns);
		good = take_sends();
		take_receives(good);
		for (uint32_t i = 0; i < nlinks; i++) {
			if (pairs[i].failed)
				mend(&pairs[i]);
		}
		if (gap)
			sleep_ns(gap);
	}
	return 0;
}
