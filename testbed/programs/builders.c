/*
 * oracle-builders: posts by the ibv_wr_* builders in every way that they have:
 * brackets of one or many requests, all operations, data by one or several
 * entries or inline or none, all flags; brackets that are aborted, and that
 * wr_complete refuses. On a reliable queue pair, on one that two threads post to,
 * and on a datagram one. The wr_id is the queue pair's number << 32 and a count of
 * those that were posted.
 *
 *   count=N    brackets of the first thread; 0: until SIGTERM
 *   seed=N     of what they are
 *   pause=NS   between brackets
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include "job.h"

#define DEPTH 32
#define SGES 4
#define INLINE 120
#define SIZE 4096
#define LONG_BRACKET 20
#define TOO_LONG 60
#define GRH 40

struct poster {
	struct ibv_qp *qp;
	struct ibv_cq *cq;
	struct link *peer;	/* whose receives the requests take; NULL: none of them does */
	struct ibv_ah *ah;	/* of a datagram QP, which sends to itself */
	char *buf;
	struct ibv_mr *mr;
	pthread_mutex_t reaping;
	uint64_t posted, completed;
};

static struct rdma rdma;
static struct poster one, two, datagrams;
static struct link peers[2];
static uint64_t pause_ns;
static volatile sig_atomic_t stop;

static void on_term(int sig)
{
	(void)sig;
	stop = 1;
}

static uint32_t dice(uint64_t *seed, uint32_t sides)
{
	*seed = *seed * 6364136223846793005ull + 1442695040888963407ull;
	return (*seed >> 33) % sides;
}

static struct ibv_qp *make_qp(struct ibv_cq *cq, enum ibv_qp_type type)
{
	struct ibv_qp_init_attr_ex a = {
		.send_cq = cq, .recv_cq = cq, .qp_type = type, .pd = rdma.pd,
		.cap = { .max_send_wr = DEPTH, .max_recv_wr = 4 * DEPTH, .max_send_sge = SGES, .max_recv_sge = 1,
			 .max_inline_data = INLINE },
		.comp_mask = IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS,
		.send_ops_flags = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM,
	};
	struct ibv_qp *q;

	if (type == IBV_QPT_RC)
		a.send_ops_flags |= IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM |
				    IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP |
				    IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;
	q = ibv_create_qp_ex(rdma.ctx, &a);
	CHECK(q);
	return q;
}

static void poster_open(struct poster *p, enum ibv_qp_type type)
{
	p->cq = ibv_create_cq(rdma.ctx, 8 * DEPTH, NULL, NULL, 0);
	CHECK(p->cq);
	p->qp = make_qp(p->cq, type);
	p->buf = aligned_alloc(4096, 2 * SIZE);
	CHECK(p->buf);
	memset(p->buf, 0, 2 * SIZE);
	p->mr = ibv_reg_mr(rdma.pd, p->buf, 2 * SIZE, ACCESS_ALL);
	CHECK(p->mr && !pthread_mutex_init(&p->reaping, NULL));
}

/* A reliable one, and a peer that takes what it sends. */
static void reliable_open(struct poster *p, struct link *peer)
{
	poster_open(p, IBV_QPT_RC);
	peer->peer_cq = ibv_create_cq(rdma.ctx, 8 * DEPTH, NULL, NULL, 0);
	CHECK(peer->peer_cq);
	peer->peer = make_qp(peer->peer_cq, IBV_QPT_RC);
	peer->buf = p->buf;
	peer->size = SIZE;
	peer->mr = p->mr;
	rdma_connect(&rdma, p->qp, peer->peer);
	peer_receive(peer, 4 * DEPTH);
	p->peer = peer;
}

static void datagram_receive(struct poster *p, uint32_t n)
{
	struct ibv_sge sge = { (uintptr_t)p->buf, SIZE, p->mr->lkey };
	struct ibv_recv_wr *bad, wr = { .sg_list = &sge, .num_sge = 1 };

	while (n--)
		CHECK(!ibv_post_recv(p->qp, &wr, &bad));
}

static void datagram_open(struct poster *p)
{
	struct ibv_ah_attr to = { .dlid = rdma.lid, .port_num = 1, .is_global = !rdma.lid };
	struct ibv_qp_attr a = { .qp_state = IBV_QPS_INIT, .port_num = 1, .qkey = 1 };

	poster_open(p, IBV_QPT_UD);
	if (!rdma.lid)
		CHECK(!ibv_query_gid(rdma.ctx, 1, 0, &to.grh.dgid));
	p->ah = ibv_create_ah(rdma.pd, &to);
	CHECK(p->ah);
	CHECK(!ibv_modify_qp(p->qp, &a, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_QKEY));
	a.qp_state = IBV_QPS_RTR;
	CHECK(!ibv_modify_qp(p->qp, &a, IBV_QP_STATE));
	a.qp_state = IBV_QPS_RTS;
	CHECK(!ibv_modify_qp(p->qp, &a, IBV_QP_STATE | IBV_QP_SQ_PSN));
	datagram_receive(p, 4 * DEPTH);
}

static void operation(struct poster *p, struct ibv_qp_ex *qp, uint64_t *seed)
{
	uint64_t remote = (uintptr_t)p->buf + SIZE;
	uint32_t rkey = p->mr->rkey;

	switch (dice(seed, p->ah ? 2 : 7)) {
	case 0:
		ibv_wr_send(qp);
		break;
	case 1:
		ibv_wr_send_imm(qp, 7);
		break;
	case 2:
		ibv_wr_rdma_write(qp, rkey, remote);
		break;
	case 3:
		ibv_wr_rdma_write_imm(qp, rkey, remote, 7);
		break;
	case 4:
		ibv_wr_rdma_read(qp, rkey, remote);
		ibv_wr_set_sge(qp, p->mr->lkey, (uintptr_t)p->buf, 1 + dice(seed, SIZE));
		return;
	case 5:
		ibv_wr_atomic_fetch_add(qp, rkey, remote, 1);
		ibv_wr_set_sge(qp, p->mr->lkey, (uintptr_t)p->buf, 8);
		return;
	case 6:
		ibv_wr_atomic_cmp_swp(qp, rkey, remote, 1, 2);
		ibv_wr_set_sge(qp, p->mr->lkey, (uintptr_t)p->buf, 8);
		return;
	}
	if (p->ah && dice(seed, 2)) {
		ibv_wr_set_ud_addr(qp, p->ah, p->qp->qp_num, 1);
		ibv_wr_set_inline_data(qp, p->buf, 1 + dice(seed, INLINE));
		return;
	}
	switch (dice(seed, 4)) {
	case 0:
		ibv_wr_set_sge(qp, p->mr->lkey, (uintptr_t)p->buf, dice(seed, 3) ? dice(seed, SIZE - GRH) : 0);
		break;
	case 1: {
		struct ibv_sge list[SGES];
		int n = dice(seed, SGES + 1);

		for (int i = 0; i < n; i++)
			list[i] = (struct ibv_sge){ (uintptr_t)p->buf, dice(seed, SIZE / SGES - GRH), p->mr->lkey };
		ibv_wr_set_sge_list(qp, n, list);
		break;
	}
	case 2:
		ibv_wr_set_inline_data(qp, p->buf, dice(seed, INLINE + 1));
		break;
	case 3: {
		struct ibv_data_buf list[SGES];

		for (int i = 0; i < SGES; i++)
			list[i] = (struct ibv_data_buf){ p->buf, dice(seed, INLINE / SGES + 1) };
		ibv_wr_set_inline_data_list(qp, SGES, list);
		break;
	}
	}
	if (p->ah)
		ibv_wr_set_ud_addr(qp, p->ah, p->qp->qp_num, 1);
}

/* One bracket, and all its completions. */
static void bracket(struct poster *p, uint64_t *seed)
{
	struct ibv_qp_ex *qp = ibv_qp_to_qp_ex(p->qp);
	uint32_t n = dice(seed, 4) ? 1 + dice(seed, 3) : dice(seed, LONG_BRACKET + 1);
	uint32_t fate = dice(seed, 30);
	uint64_t target;
	struct ibv_wc wc;
	int got, err;

	if (fate == 1)
		n = TOO_LONG;	/* there is no room for so many */
	ibv_wr_start(qp);
	for (uint32_t i = 0; i < n; i++) {
		qp->wr_id = (uint64_t)p->qp->qp_num << 32 | (p->posted + i);
		qp->wr_flags = IBV_SEND_SIGNALED | (dice(seed, 4) ? 0 : IBV_SEND_FENCE) |
			       (dice(seed, 4) ? 0 : IBV_SEND_SOLICITED);
		/* A bracket that two threads wait for has all of it signalled. */
		if (p != &two && i + 1 < n && dice(seed, 2))
			qp->wr_flags &= ~IBV_SEND_SIGNALED;
		operation(p, qp, seed);
	}
	if (fate == 2) {
		ibv_wr_abort(qp);
		return;
	}
	if (fate != 1)
		p->posted += n;	/* the lock is ours until wr_complete returns */
	target = p->posted;
	err = ibv_wr_complete(qp);
	CHECK(fate == 1 ? err == ENOMEM : !err);
	while (__atomic_load_n(&p->completed, __ATOMIC_ACQUIRE) < target) {
		CHECK(!pthread_mutex_lock(&p->reaping));
		got = ibv_poll_cq(p->cq, 1, &wc);
		CHECK(got >= 0 && (!got || wc.status == IBV_WC_SUCCESS));
		if (got && wc.opcode & IBV_WC_RECV)
			datagram_receive(p, 1);
		else if (got)	/* and all that were posted before */
			__atomic_store_n(&p->completed, (uint32_t)wc.wr_id + 1, __ATOMIC_RELEASE);
		if (p->peer)
			peer_drain(p->peer);
		CHECK(!pthread_mutex_unlock(&p->reaping));
	}
}

static void *second(void *arg)
{
	uint64_t seed = *(uint64_t *)arg + 1;

	while (!stop) {
		bracket(&two, &seed);
		sleep_ns(pause_ns);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	uint64_t count, seed, start;
	pthread_t thread;

	options(argc, argv);
	count = number("count", 0);
	start = seed = number("seed", 1);
	pause_ns = number("pause", 0);
	options_done();
	CHECK(signal(SIGTERM, on_term) != SIG_ERR);
	rdma_open(&rdma);
	reliable_open(&one, &peers[0]);
	reliable_open(&two, &peers[1]);
	datagram_open(&datagrams);
	CHECK(!pthread_create(&thread, NULL, second, &start));
	running();
	for (uint64_t i = 0; !stop && (!count || i < count); i++) {
		bracket(&one, &seed);
		bracket(&two, &seed);
		bracket(&datagrams, &seed);
		if (pause_ns)
			sleep_ns(pause_ns);
	}
	stop = 1;
	CHECK(!pthread_join(thread, NULL));
	return 0;
}
