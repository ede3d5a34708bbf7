/*
 * oracle-proxy: the shape of a collective library's network thread. One thread drives four
 * queue pairs with a CQ each: messages are chains of unsignalled WRITEs and a signalled
 * WRITE_WITH_IMM of 0 bytes; each message is followed by an unsignalled notification of 0
 * bytes in the other direction, and now and then by a flush, a READ on a queue pair of its own.
 * It polls its CQs in turn and yields when all were empty. All have the same wr_id.
 *
 *   count=MESSAGES per queue pair; 0: until killed
 *   size=BYTES     of a WRITE
 *   chunks=N       WRITEs of a chain
 *   every=N  ns=NS between two of its rounds it computes so long, every N
 */
#include <sched.h>
#include "job.h"

#define LINKS 4
#define DEPTH 4         /* messages in flight on a link */
#define MAX_CHUNKS 8
#define FLUSH_EVERY 4
#define WRID 1
/* One notification in so many is signalled, or the send queue would never be known to drain. */
#define NOTIFY_SIGNALLED 16

static struct link links[LINKS], back[LINKS], flush;
static uint32_t posted[LINKS], pending[LINKS], notified[LINKS], flushing;

static void post(struct link *l, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;

	CHECK(!ibv_post_send(l->qp, wr, &bad));
}

static void post_message(struct link *l, uint32_t chunks, uint32_t size)
{
	struct ibv_send_wr wr[MAX_CHUNKS + 1];
	struct ibv_sge sge[MAX_CHUNKS + 1];

	for (uint32_t i = 0; i < chunks; i++) {
		link_request(l, &wr[i], &sge[i], IBV_WR_RDMA_WRITE, size, WRID);
		wr[i].next = &wr[i + 1];
	}
	link_request(l, &wr[chunks], &sge[chunks], IBV_WR_RDMA_WRITE_WITH_IMM, 0, WRID);
	wr[chunks].send_flags = IBV_SEND_SIGNALED;
	post(l, wr);
}

static void post_notification(int i)
{
	struct ibv_send_wr wr;
	struct ibv_sge sge;

	link_request(&back[i], &wr, &sge, IBV_WR_RDMA_WRITE, 0, WRID);
	if (++notified[i] % NOTIFY_SIGNALLED == 0)
		wr.send_flags = IBV_SEND_SIGNALED;
	post(&back[i], &wr);
}

static void post_flush(void)
{
	struct ibv_send_wr wr;
	struct ibv_sge sge;

	link_request(&flush, &wr, &sge, IBV_WR_RDMA_READ, 1, WRID);
	wr.send_flags = IBV_SEND_SIGNALED;
	post(&flush, &wr);
	flushing++;
}

static uint32_t poll(struct ibv_cq *cq)
{
	struct ibv_wc wc[4];
	int n = ibv_poll_cq(cq, 4, wc);

	CHECK(n >= 0);
	for (int i = 0; i < n; i++)
		CHECK(wc[i].status == IBV_WC_SUCCESS);
	return n;
}

/* Once around all queue pairs; was there anything to do? */
static bool progress(uint64_t count, uint32_t chunks, uint32_t size)
{
	bool busy = false;

	for (int i = 0; i < LINKS; i++) {
		uint32_t done;

		if ((!count || posted[i] < count) && pending[i] < DEPTH) {
			post_message(&links[i], chunks, size);
			posted[i]++;
			pending[i]++;
			busy = true;
		}
		done = poll(links[i].cq);
		pending[i] -= done;
		for (; done; done--) {
			post_notification(i);
			if (posted[i] % FLUSH_EVERY == 0 && !flushing)
				post_flush();
			busy = true;
		}
		peer_drain(&links[i]);
		poll(back[i].cq);
	}
	flushing -= poll(flush.cq);
	return busy;
}

static bool finished(uint64_t count)
{
	for (int i = 0; i < LINKS; i++) {
		if (!count || posted[i] < count || pending[i])
			return false;
	}
	return !flushing;
}

int main(int argc, char **argv)
{
	struct rdma r;
	uint64_t count, every, ns;
	uint32_t size, chunks;

	options(argc, argv);
	count = number("count", 0);
	size = number("size", 16384);
	chunks = number("chunks", 1);
	every = number("every", 0);
	ns = number("ns", 0);
	options_done();
	CHECK(chunks && chunks <= MAX_CHUNKS);

	rdma_open(&r);
	for (int i = 0; i < LINKS; i++) {
		link_open(&r, &links[i], NULL, NULL, DEPTH * (chunks + 1), size);
		link_open(&r, &back[i], NULL, NULL, 4 * NOTIFY_SIGNALLED, size);
		peer_receive(&links[i], DEPTH);
	}
	link_open(&r, &flush, NULL, NULL, 1, size);
	running();
	for (uint64_t round = 1; !finished(count); round++) {
		if (!progress(count, chunks, size))
			sched_yield();
		if (every && round % every == 0)
			spin(ns);
	}
	return 0;
}
