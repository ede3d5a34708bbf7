/* What the programs share. */
#include <string.h>
#include <time.h>
#include "job.h"

static char **args;
static int nargs;
static uint64_t asked;	/* a bit for each argument */

void options(int argc, char **argv)
{
	args = argv + 1;
	nargs = argc - 1;
	CHECK(nargs <= 64);
}

const char *option(const char *key, const char *otherwise)
{
	size_t n = strlen(key);

	for (int i = 0; i < nargs; i++) {
		if (!strncmp(args[i], key, n) && args[i][n] == '=') {
			asked |= 1ull << i;
			otherwise = args[i] + n + 1;
		}
	}
	return otherwise;
}

uint64_t number(const char *key, uint64_t otherwise)
{
	const char *text = option(key, NULL);
	char *end;

	if (!text)
		return otherwise;
	otherwise = strtoull(text, &end, 10);
	CHECK(*text && !*end);
	return otherwise;
}

void options_done(void)
{
	for (int i = 0; i < nargs; i++) {
		if (!(asked >> i & 1)) {
			fprintf(stderr, "unknown option %s\n", args[i]);
			exit(2);
		}
	}
}

void running(void)
{
	puts("running");
	CHECK(!fflush(stdout));
}

uint64_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ull + t.tv_nsec;
}

void spin(uint64_t ns)
{
	uint64_t end = now() + ns;

	while (now() < end)
		;
}

void sleep_ns(uint64_t ns)
{
	struct timespec t = { ns / 1000000000, ns % 1000000000 };

	nanosleep(&t, NULL);
}

uint64_t link_send_ops;

static struct ibv_qp *make_qp(struct rdma *r, struct ibv_cq *send, struct ibv_cq *recv,
			      uint32_t depth)
{
	struct ibv_qp_init_attr_ex a = {
		.pd = r->pd,
		.send_cq = send,
		.recv_cq = recv,
		.cap = { .max_send_wr = depth, .max_recv_wr = depth,
			 .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
		.comp_mask = IBV_QP_INIT_ATTR_PD |
			     (link_send_ops ? IBV_QP_INIT_ATTR_SEND_OPS_FLAGS : 0),
		.send_ops_flags = link_send_ops,
	};
	struct ibv_qp *q = ibv_create_qp_ex(r->ctx, &a);

	CHECK(q);
	return q;
}

void link_open(struct rdma *r, struct link *l, struct ibv_cq *cq, struct ibv_comp_channel *ch,
	       uint32_t depth, uint32_t size)
{
	uint32_t room = size ? size : 1;

	l->cq = cq ? cq : ibv_create_cq(r->ctx, depth, NULL, ch, 0);
	l->peer_cq = ibv_create_cq(r->ctx, depth, NULL, NULL, 0);
	CHECK(l->cq && l->peer_cq);
	l->qp = make_qp(r, l->cq, l->cq, depth);
	l->peer = make_qp(r, l->peer_cq, l->peer_cq, depth);
	l->size = size;
	l->receives = 0;
	l->buf = aligned_alloc(4096, (2 * (size_t)room + 4095) & ~4095ul);
	CHECK(l->buf);
	memset(l->buf, 0, 2 * (size_t)room);
	l->mr = ibv_reg_mr(r->pd, l->buf, 2 * (size_t)room, ACCESS_ALL);
	CHECK(l->mr);
	rdma_connect(r, l->qp, l->peer);
}

void link_request(struct link *l, struct ibv_send_wr *wr, struct ibv_sge *sge,
		  enum ibv_wr_opcode op, uint32_t bytes, uint64_t id)
{
	*sge = (struct ibv_sge){ .addr = (uintptr_t)l->buf, .length = bytes, .lkey = l->mr->lkey };
	*wr = (struct ibv_send_wr){
		.wr_id = id,
		.sg_list = sge,
		.num_sge = bytes ? 1 : 0,
		.opcode = op,
		.wr.rdma = { .remote_addr = (uintptr_t)l->buf + l->size, .rkey = l->mr->rkey },
	};
}

bool takes_receive(enum ibv_wr_opcode op)
{
	return op == IBV_WR_SEND || op == IBV_WR_SEND_WITH_IMM || op == IBV_WR_RDMA_WRITE_WITH_IMM;
}

void peer_receive(struct link *l, uint32_t n)
{
	struct ibv_sge sge = { .addr = (uintptr_t)l->buf + l->size, .length = l->size,
			       .lkey = l->mr->lkey };
	struct ibv_recv_wr *bad, wr = { .sg_list = &sge, .num_sge = 1 };

	for (; n; n--) {
		CHECK(!ibv_post_recv(l->peer, &wr, &bad));
		l->receives++;
	}
}

void peer_drain(struct link *l)
{
	struct ibv_wc wc[16];
	int n;

	do {
		n = ibv_poll_cq(l->peer_cq, 16, wc);
		CHECK(n >= 0);
		for (int i = 0; i < n; i++)
			CHECK(wc[i].status == IBV_WC_SUCCESS);
		peer_receive(l, n);
	} while (n == 16);
}

enum ibv_wr_opcode opcode(const char *name)
{
	static const struct {
		const char *name;
		enum ibv_wr_opcode op;
	} known[] = {
		{ "write", IBV_WR_RDMA_WRITE },
		{ "write_imm", IBV_WR_RDMA_WRITE_WITH_IMM },
		{ "send", IBV_WR_SEND },
		{ "read", IBV_WR_RDMA_READ },
	};

	for (size_t i = 0; i < sizeof(known) / sizeof(*known); i++) {
		if (!strcmp(known[i].name, name))
			return known[i].op;
	}
	fprintf(stderr, "unknown operation %s\n", name);
	exit(2);
}
