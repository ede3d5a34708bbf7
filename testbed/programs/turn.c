/*
 * oracle-turn: a thread that polls completion queues in turn, for testbed/bench.
 *
 *   cqs=N       so many, each with a queue pair
 *   op=NAME     write, read, send, ...: see opcode() of job.h
 *   size=N      bytes of each, 64
 *   builders=1  it is posted by ibv_wr_*, else by ibv_post_send
 *   burst=N     work requests, one after the other, each on the next queue ...
 *   every=NS    ... each so often; 0: without a pause
 *
 * Each 10 ms it writes a line: CLOCK_MONOTONIC, the time that it ran, both ns,
 * and the polls so far.
 */
#include <time.h>
#include "job.h"

#define CQS_MAX 64
#define DEPTH 16

static struct link links[CQS_MAX];
static uint32_t cqs;
static enum ibv_wr_opcode op;
static bool builders;
static uint64_t polls, told;

static void tell(void)
{
	struct timespec cpu;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &cpu);
	told = now();
	printf("%llu %llu %llu\n", (unsigned long long)told,
	       cpu.tv_sec * 1000000000ull + cpu.tv_nsec, (unsigned long long)polls);
	CHECK(!fflush(stdout));
}

/* Poll all queues once; returns the completions. */
static uint32_t turn(void)
{
	struct ibv_wc wc;
	uint32_t got = 0;

	for (uint32_t i = 0; i < cqs; i++) {
		int n = ibv_poll_cq(links[i].cq, 1, &wc);

		CHECK(n >= 0 && (!n || wc.status == IBV_WC_SUCCESS));
		got += n;
	}
	polls += cqs;
	return got;
}

static void build(struct link *l, const struct ibv_send_wr *wr)
{
	struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(l->qp);

	ibv_wr_start(qp);
	qp->wr_id = wr->wr_id;
	qp->wr_flags = wr->send_flags;
	switch (op) {
	case IBV_WR_RDMA_WRITE:
		ibv_wr_rdma_write(qp, wr->wr.rdma.rkey, wr->wr.rdma.remote_addr);
		break;
	case IBV_WR_RDMA_READ:
		ibv_wr_rdma_read(qp, wr->wr.rdma.rkey, wr->wr.rdma.remote_addr);
		break;
	case IBV_WR_SEND:
		ibv_wr_send(qp);
		break;
	default:
		CHECK(!"an operation that is built");
	}
	ibv_wr_set_sge(qp, wr->sg_list->lkey, wr->sg_list->addr, wr->sg_list->length);
	CHECK(!ibv_wr_complete(qp));
}

static void request(struct link *l, uint64_t id)
{
	struct ibv_send_wr wr, *bad;
	struct ibv_sge sge;

	link_request(l, &wr, &sge, op, l->size, id);
	wr.send_flags = IBV_SEND_SIGNALED;
	if (builders)
		build(l, &wr);
	else
		CHECK(!ibv_post_send(l->qp, &wr, &bad));
	while (!turn())
		;
	if (takes_receive(op) && id / cqs % (DEPTH / 2) == 0)
		peer_drain(l);
}

int main(int argc, char **argv)
{
	struct rdma r;
	uint64_t burst, every, next, size, id = 0;

	options(argc, argv);
	cqs = number("cqs", 1);
	burst = number("burst", 1);
	every = number("every", 0);
	op = opcode(option("op", "write"));
	size = number("size", 64);
	builders = number("builders", 0);
	options_done();
	CHECK(cqs && cqs <= CQS_MAX && size);
	if (builders)
		link_send_ops = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_SEND;
	rdma_open(&r);
	for (uint32_t i = 0; i < cqs; i++)
		link_open(&r, &links[i], NULL, NULL, DEPTH, size);
	for (uint32_t i = 0; takes_receive(op) && i < cqs; i++)
		peer_receive(&links[i], DEPTH);
	running();
	for (next = now();; next += every) {
		for (uint64_t i = 0; i < burst; i++, id++)
			request(&links[id % cqs], id);
		if (!every)
			next = now();
		do {
			for (int i = 0; every && i < 100; i++)
				turn();
			if (now() > told + 10000000)
				tell();
		} while (every && now() < next + every);
	}
}
