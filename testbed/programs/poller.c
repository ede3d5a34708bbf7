/*
 * oracle-poller: one thread posts and reaps, with one known habit.
 *
 *   op=write|write_imm|send|read  size=BYTES  depth=N   posted together, each signalled
 *   links=N       so many queue pairs on one CQ, posted to in turn
 *   big=BYTES     in front of each request an unsignalled WRITE of this size
 *   count=N       rounds; 0: until killed
 *   idle=NS       sleep between rounds, with nothing in flight
 *   between=      what happens between posting and polling: nothing, compute, sleep, ...
 *   every=N  ns=NS                ... in every Nth round, for so long
 *   wait=spin|yield|event|hybrid  how it waits for the completions
 *   cq=plain|ex   polled by ibv_poll_cq, or an extended one by ibv_start_poll, ibv_next_poll
 *   spin=NS       hybrid: it spins for so long before it sleeps until the event
 *   lazy=N        it takes completions in every Nth round only, and waits for those of
 *                 the Nth round before that: nothing ever depends on one
 */
#include <errno.h>
#include <sched.h>
#include <string.h>
#include <sys/prctl.h>
#include "job.h"

#define MAX_LINKS 16

enum wait { SPIN, YIELD, EVENT, HYBRID };

static struct ibv_comp_channel *channel;
static struct link links[MAX_LINKS];
static struct ibv_cq *cq;
static struct ibv_cq_ex *cq_ex;	/* the same, or NULL */
static enum ibv_wr_opcode op;
static uint32_t size, depth, nlinks, big;
static uint64_t spin_ns;

static void post(struct link *l, uint64_t round)
{
	struct ibv_send_wr wr[2], *bad;
	struct ibv_sge sge[2];
	struct ibv_send_wr *first = &wr[1];

	link_request(l, &wr[1], &sge[1], op, size, round);
	wr[1].send_flags = IBV_SEND_SIGNALED;
	if (big) {
		link_request(l, &wr[0], &sge[0], IBV_WR_RDMA_WRITE, big, round);
		wr[0].next = &wr[1];
		first = &wr[0];
	}
	CHECK(!ibv_post_send(l->qp, first, &bad));
}

static void arm(void)
{
	CHECK(!ibv_req_notify_cq(cq, 0));
}

static void get_event(void)
{
	struct ibv_cq *of;
	void *context;

	CHECK(!ibv_get_cq_event(channel, &of, &context));
	ibv_ack_cq_events(of, 1);
}

/* What is there, up to BATCH; returns how many. */
#define BATCH 16

static int take(void)
{
	struct ibv_wc wc[BATCH];
	int n = ibv_poll_cq(cq, BATCH, wc);

	CHECK(n >= 0);
	for (int i = 0; i < n; i++)
		CHECK(wc[i].status == IBV_WC_SUCCESS);
	return n;
}

static int take_ex(void)
{
	struct ibv_poll_cq_attr attr = {};
	int err = ibv_start_poll(cq_ex, &attr), n = 0;

	if (err == ENOENT)
		return 0;
	for (; !err; err = n < BATCH ? ibv_next_poll(cq_ex) : ENOENT) {
		CHECK(cq_ex->status == IBV_WC_SUCCESS);
		n++;
	}
	CHECK(err == ENOENT);
	ibv_end_poll(cq_ex);
	return n;
}

static void create_cq(struct ibv_context *ctx, uint32_t cqe, const char *kind)
{
	struct ibv_cq_init_attr_ex attr = { .cqe = cqe, .channel = channel, .wc_flags = IBV_WC_EX_WITH_QP_NUM };

	if (!strcmp(kind, "plain")) {
		cq = ibv_create_cq(ctx, cqe, NULL, channel, 0);
		CHECK(cq);
		return;
	}
	CHECK(!strcmp(kind, "ex"));
	cq_ex = ibv_create_cq_ex(ctx, &attr);
	CHECK(cq_ex);
	cq = ibv_cq_ex_to_cq(cq_ex);
}

/* Take completions until n are there; returns how many it took. */
static uint32_t reap(uint32_t least, enum wait how)
{
	uint32_t reaped = 0;
	uint64_t since = now();
	bool armed = false;
	int n;

	while (reaped < least) {
		n = cq_ex ? take_ex() : take();
		reaped += n;
		if (n) {
			since = now();
			continue;
		}
		if (how == YIELD) {
			sched_yield();
		} else if (how == EVENT) {
			get_event();
			arm();
		} else if (how == HYBRID && armed) {
			get_event();
			armed = false;
			since = now();
		} else if (how == HYBRID && now() - since > spin_ns) {
			/* What came before it was armed makes no event: look once more. */
			arm();
			armed = true;
		}
	}
	return reaped;
}

static enum wait wait_of(const char *name)
{
	if (!strcmp(name, "spin"))
		return SPIN;
	if (!strcmp(name, "yield"))
		return YIELD;
	if (!strcmp(name, "hybrid"))
		return HYBRID;
	CHECK(!strcmp(name, "event"));
	return EVENT;
}

int main(int argc, char **argv)
{
	struct rdma r;
	const char *between, *kind;
	uint64_t count, every, ns, idle;
	uint32_t lazy, pending = 0;
	enum wait how;

	options(argc, argv);
	op = opcode(option("op", "write"));
	size = number("size", 64);
	depth = number("depth", 1);
	nlinks = number("links", 1);
	big = number("big", 0);
	count = number("count", 0);
	idle = number("idle", 0);
	between = option("between", "nothing");
	every = number("every", 1);
	ns = number("ns", 50000);
	how = wait_of(option("wait", "spin"));
	kind = option("cq", "plain");
	spin_ns = number("spin", 50000);
	lazy = number("lazy", 0);
	options_done();
	CHECK(!prctl(PR_SET_TIMERSLACK, 1ul, 0, 0, 0));	/* sleep no longer than asked for */
	CHECK(nlinks && nlinks <= MAX_LINKS && depth && every);
	CHECK(!strcmp(between, "nothing") || !strcmp(between, "compute") || !strcmp(between, "sleep"));

	rdma_open(&r);
	if (how == EVENT || how == HYBRID) {
		channel = ibv_create_comp_channel(r.ctx);
		CHECK(channel);
	}
	create_cq(r.ctx, nlinks * depth * (2 * lazy + 1), kind);
	for (uint32_t i = 0; i < nlinks; i++) {
		link_open(&r, &links[i], cq, NULL, 2 * depth * (2 * lazy + 1), size > big ? size : big);
		if (takes_receive(op))
			peer_receive(&links[i], depth);
	}
	if (how == EVENT)
		arm();

	running();
	for (uint64_t round = 1; !count || round <= count; round++) {
		for (uint32_t i = 0; i < nlinks * depth; i++)
			post(&links[i % nlinks], round);
		if (round % every == 0) {
			if (!strcmp(between, "compute"))
				spin(ns);
			else if (!strcmp(between, "sleep"))
				sleep_ns(ns);
		}
		pending += nlinks * depth;
		if (!lazy)
			pending -= reap(pending, how);
		else if (round % lazy == 0 && round > lazy)
			pending -= reap(pending - lazy * nlinks * depth, how);
		for (uint32_t i = 0; takes_receive(op) && i < nlinks; i++)
			peer_drain(&links[i]);
		if (idle)
			sleep_ns(idle);
	}
	return 0;
}
