/*
 * oracle-callers: requests are posted by one function, which two others call in turn
 * whose frames have the same size: only a return address on the stack tells which.
 *
 *   count=N       rounds; 0: until killed
 */
#include "job.h"

#define APART __attribute__((noinline, noclone, no_icf))

static struct link wire;
static struct ibv_cq *cq;

static APART void post(uint64_t round)
{
	struct ibv_send_wr wr, *bad;
	struct ibv_sge sge;

	link_request(&wire, &wr, &sge, IBV_WR_RDMA_WRITE, 64, round);
	wr.send_flags = IBV_SEND_SIGNALED;
	CHECK(!ibv_post_send(wire.qp, &wr, &bad));
}

/* Without the empty statement they would jump, not call. */
static APART void caller_one(uint64_t round)
{
	post(round);
	asm volatile("");
}

static APART void caller_two(uint64_t round)
{
	post(round);
	asm volatile("");
}

static APART void reap(void)
{
	struct ibv_wc wc;
	int n;

	do
		n = ibv_poll_cq(cq, 1, &wc);
	while (!n);
	CHECK(n == 1 && wc.status == IBV_WC_SUCCESS);
}

int main(int argc, char **argv)
{
	struct rdma r;
	uint64_t count;

	options(argc, argv);
	count = number("count", 0);
	options_done();
	rdma_open(&r);
	cq = ibv_create_cq(r.ctx, 16, NULL, NULL, 0);
	CHECK(cq);
	link_open(&r, &wire, cq, NULL, 16, 64);
	running();
	for (uint64_t round = 1; !count || round <= count; round++) {
		if (round % 2)
			caller_one(round);
		else
			caller_two(round);
		reap();
	}
	return 0;
}
