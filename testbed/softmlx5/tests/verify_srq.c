/* Shared receive queues, their events, RNR. */
#include <errno.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include "verify.h"

#define SLOTS   48
#define SLOT    1024
#define SENDING 1000    /* wr_id of sends; those of receives are slots */

static struct ibv_cq *cq;
static struct buffers *b;
static struct ibv_srq *srq;

static void post(int slot)
{
	uintptr_t a = (uintptr_t)b->dst + slot * SLOT;
	struct ibv_sge s[2] = { { a, 100, b->md->lkey }, { a + 100, SLOT - 100, b->md->lkey } };
	struct ibv_recv_wr w = { .wr_id = slot, .sg_list = s, .num_sge = 2 }, *bad;

	CHECK(!ibv_post_srq_recv(srq, &w, &bad));
}

static void send(struct ibv_qp *q, uint32_t len)
{
	struct ibv_sge s = { (uintptr_t)b->src, len, b->ms->lkey };
	struct ibv_send_wr w = { .wr_id = SENDING, .sg_list = &s, .num_sge = 1,
				 .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED }, *bad;

	for (uint32_t i = 0; i < len; i++)
		b->src[i] = rand();
	CHECK(!ibv_post_send(q, &w, &bad));
}

/* Both completions of one message; returns the slot it is in. */
static int receive(struct ibv_qp *receiver, uint32_t len)
{
	struct ibv_wc wc;
	int slot = -1;

	for (int got = 0; got < 2; got++) {
		rdma_poll(cq, &wc);
		CHECK(wc.status == IBV_WC_SUCCESS);
		if (wc.wr_id == SENDING)
			continue;
		slot = wc.wr_id;
		CHECK(wc.byte_len == len && wc.qp_num == receiver->qp_num);
		CHECK(!memcmp(b->src, b->dst + slot * SLOT, len));
	}
	return slot;
}

static void expect_event(struct ibv_context *c, enum ibv_event_type type, void *element)
{
	struct ibv_async_event e;

	CHECK(!ibv_get_async_event(c, &e));
	CHECK(e.event_type == type);
	CHECK((type == IBV_EVENT_SRQ_LIMIT_REACHED ? (void *)e.element.srq :
	       (void *)e.element.qp) == element);
	ibv_ack_async_event(&e);
}

/* The port's count of messages that found no receive. */
static long out_of_buffer(void)
{
	FILE *f = fopen("/sys/class/infiniband/mlx5_0/ports/1/hw_counters/out_of_buffer", "r");
	long n;

	CHECK(f && fscanf(f, "%ld", &n) == 1);
	fclose(f);
	return n;
}

/* Two senders take turns at random; receives return in random order. */
static void shuffle(struct ibv_qp *tx[2], struct ibv_qp *rx[2])
{
	int held[SLOTS], nheld = 0;

	for (int i = 0; i < SLOTS; i++)
		post(i);
	for (int i = 0; i < 3000; i++) {
		int k = rand() & 1, len = 1 + rand() % (i & 1 ? 40 : SLOT);

		send(tx[k], len);
		held[nheld++] = receive(rx[k], len);
		while (nheld && (nheld > SLOTS / 2 || rand() % 3 == 0)) {
			int h = rand() % nheld;

			post(held[h]);
			held[h] = held[--nheld];
		}
	}
	while (nheld)
		post(held[--nheld]);
}

/* The limit event, when the tenth last is left; then none posted: RNR. */
static void drain(struct ibv_context *c, struct ibv_qp *tx[2], struct ibv_qp *rx[2])
{
	struct ibv_srq_attr at = { .srq_limit = 10 };
	struct ibv_wc wc;
	long before;

	CHECK(!ibv_modify_srq(srq, &at, IBV_SRQ_LIMIT));
	CHECK(!ibv_query_srq(srq, &at) && at.srq_limit == 10);
	for (int i = 0; i < SLOTS; i++) {
		send(tx[0], 64);
		receive(rx[0], 64);
	}
	expect_event(c, IBV_EVENT_SRQ_LIMIT_REACHED, srq);
	CHECK(!ibv_query_srq(srq, &at) && at.srq_limit == 0);
	before = out_of_buffer();
	send(tx[1], 64);
	while (out_of_buffer() == before)
		usleep(1000);
	CHECK(ibv_poll_cq(cq, 1, &wc) == 0);
	post(5);
	CHECK(receive(rx[1], 64) == 5);
}

void verify_srq(struct rdma *r, struct ibv_cq *the_cq, struct buffers *bufs)
{
	struct ibv_srq_init_attr sa = { .attr = { .max_wr = SLOTS, .max_sge = 2 } };
	struct ibv_qp_init_attr a = { .qp_type = IBV_QPT_RC, .cap = { 16, 16, 1, 1, 0 },
				      .send_cq = the_cq, .recv_cq = the_cq };
	struct ibv_qp_attr err = { .qp_state = IBV_QPS_ERR };
	struct ibv_qp *tx[2], *rx[2];

	cq = the_cq;
	b = bufs;
	srq = ibv_create_srq(r->pd, &sa);
	CHECK(srq);
	for (int i = 0; i < 2; i++) {
		a.srq = NULL;
		tx[i] = ibv_create_qp(r->pd, &a);
		a.srq = srq;
		rx[i] = ibv_create_qp(r->pd, &a);
		CHECK(tx[i] && rx[i]);
		rdma_connect(r, tx[i], rx[i]);
	}
	shuffle(tx, rx);
	drain(r->ctx, tx, rx);
	/* A QP in error: its event; one that nobody reads must not hold up destroy. */
	for (int i = 0; i < 2; i++)
		CHECK(!ibv_modify_qp(rx[i], &err, IBV_QP_STATE));
	expect_event(r->ctx, IBV_EVENT_QP_LAST_WQE_REACHED, rx[0]);
	CHECK(ibv_destroy_srq(srq) == EBUSY);
	for (int i = 0; i < 2; i++)
		CHECK(!ibv_destroy_qp(tx[i]) && !ibv_destroy_qp(rx[i]));
	CHECK(!ibv_destroy_srq(srq));
}
