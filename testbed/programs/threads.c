/*
 * oracle-threads: who posts does not reap.
 *
 *   shape=reaper       another thread polls all the time
 *   shape=dispatcher   a thread sleeps on the CQ's channel and wakes the one that polls
 *   every=N  ns=NS     that thread computes so long before it polls, or wakes, in every Nth call
 *   batch=N            requests of a call, of which the last is signalled
 *   depth=CALLS        in flight at most
 *   count=CALLS        0: until killed
 *   size=BYTES  gap=NS computed, pause=NS slept between calls
 */
#include <pthread.h>
#include <semaphore.h>
#include <string.h>
#include "job.h"

#define MAX_BATCH 64

static struct ibv_comp_channel *channel;
static struct link l;
static sem_t room, work;
static uint64_t count, every, ns;
static _Atomic uint64_t calls;	/* posted, or being posted */

static void reap_one(void)
{
	struct ibv_wc wc;

	rdma_poll(l.cq, &wc);
	CHECK(wc.status == IBV_WC_SUCCESS);
	CHECK(!sem_post(&room));
}

static void *reaper(void *unused)
{
	for (uint64_t n = 1; !count || n <= count; n++) {
		if (every && n % every == 0)
			spin(ns);
		reap_one();
	}
	return unused;
}

static void *dispatcher(void *unused)
{
	struct ibv_cq *cq;
	void *context;

	for (;;) {
		CHECK(!ibv_get_cq_event(channel, &cq, &context));
		ibv_ack_cq_events(cq, 1);
		if (every && calls % every == 0)
			spin(ns);
		CHECK(!sem_post(&work));
	}
	return unused;
}

/* Woken by the dispatcher, takes what there is and arms the CQ again. */
static void *worker(void *unused)
{
	struct ibv_wc wc;
	uint64_t reaped = 0;
	int n;

	while (!count || reaped < count) {
		CHECK(!ibv_req_notify_cq(l.cq, 0));
		while ((n = ibv_poll_cq(l.cq, 1, &wc)) == 1) {
			CHECK(wc.status == IBV_WC_SUCCESS);
			CHECK(!sem_post(&room));
			reaped++;
		}
		CHECK(n == 0);
		if (!count || reaped < count)
			CHECK(!sem_wait(&work));
	}
	return unused;
}

static void post(uint32_t batch, uint32_t size, uint64_t call)
{
	struct ibv_send_wr wr[MAX_BATCH], *bad;
	struct ibv_sge sge[MAX_BATCH];

	for (uint32_t i = 0; i < batch; i++) {
		link_request(&l, &wr[i], &sge[i], IBV_WR_RDMA_WRITE, size, call);
		wr[i].next = i + 1 < batch ? &wr[i + 1] : NULL;
	}
	wr[batch - 1].send_flags = IBV_SEND_SIGNALED;
	CHECK(!ibv_post_send(l.qp, wr, &bad));
}

static void start(void *(*of)(void *), const char *name, pthread_t *thread)
{
	CHECK(!pthread_create(thread, NULL, of, NULL));
	CHECK(!pthread_setname_np(*thread, name));
}

int main(int argc, char **argv)
{
	struct rdma r;
	pthread_t reaping, dispatching;
	uint64_t depth, gap, pause;
	uint32_t batch, size;
	bool dispatched;

	options(argc, argv);
	dispatched = !strcmp(option("shape", "reaper"), "dispatcher");
	CHECK(dispatched || !strcmp(option("shape", "reaper"), "reaper"));
	batch = number("batch", 1);
	depth = number("depth", 4);
	count = number("count", 0);
	size = number("size", 64);
	gap = number("gap", 0);
	pause = number("pause", 0);
	every = number("every", 0);
	ns = number("ns", 0);
	options_done();
	CHECK(batch && batch <= MAX_BATCH && depth);

	rdma_open(&r);
	if (dispatched) {
		channel = ibv_create_comp_channel(r.ctx);
		CHECK(channel);
	}
	link_open(&r, &l, NULL, channel, batch * depth, size);
	CHECK(!sem_init(&room, 0, depth) && !sem_init(&work, 0, 0));
	if (dispatched) {
		start(worker, "worker", &reaping);
		start(dispatcher, "dispatcher", &dispatching);
	} else {
		start(reaper, "reaper", &reaping);
	}
	running();
	for (uint64_t call = 0; !count || call < count; call++) {
		CHECK(!sem_wait(&room));
		calls++;
		post(batch, size, call);
		if (gap)
			spin(gap);
		if (pause)
			sleep_ns(pause);
	}
	CHECK(!pthread_join(reaping, NULL));
	return 0;
}
