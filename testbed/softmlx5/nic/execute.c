/* What the responder does with a request. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "counters.h"
#include "execute.h"
#include "memory.h"
#include "model.h"
#include "qp.h"
#include "recv.h"

/* rnr_retry: this many are without end (InfiniBand spec., vol. 1, 9.7.5.2.8). */
#define RNR_RETRY_FOREVER 7

#define GRH 40

/* How an opcode is executed, and what it takes. */
struct operation {
	unsigned access;        /* of the remote key; 0: it has none */
	bool takes_receive;
	uint8_t resp_op;        /* MLX5_CQE_RESP_* of that receive */
	/* Returns the error syndrome, or 0. */
	int (*run)(struct qp *q, struct qp *peer, struct wr *w, uint64_t addr);
};

static const struct operation *operation_of(const struct wr *w);

static int run_write(struct qp *q, struct qp *peer, struct wr *w, uint64_t addr)
{
	const struct operation *op = operation_of(w);
	uint8_t *b = bounce_get(w->bytes);
	int err = gather(q, w, b);

	if (err)
		return err;
	if (!mem_write(peer->ctx, addr, b, w->bytes))
		return MLX5_CQE_SYNDROME_REMOTE_OP_ERR;
	if (op->takes_receive)
		recv_deliver(peer, &(struct message){ .wr = w, .from = q, .len = w->bytes,
						      .op = op->resp_op });
	return 0;
}

static uint8_t *response(struct wr *w)
{
	w->resp = malloc(w->bytes + 1);
	if (!w->resp) {
		fprintf(stderr, "softmlx5d: no memory for %u bytes read\n", w->bytes);
		abort();
	}
	return w->resp;
}

static int run_read(struct qp *q, struct qp *peer, struct wr *w, uint64_t addr)
{
	(void)q;
	return mem_read(peer->ctx, addr, response(w), w->bytes) ? 0 :
	       MLX5_CQE_SYNDROME_REMOTE_OP_ERR;
}

/*
 * Atomic among requests, as no other thread executes any; not against the
 * peer's own processor (nor is a NIC's, with IBV_ATOMIC_HCA).
 */
static int run_atomic(struct qp *q, struct qp *peer, struct wr *w, uint64_t addr)
{
	uint64_t old, new;

	(void)q;
	if (!mem_read(peer->ctx, addr, &old, 8))
		return MLX5_CQE_SYNDROME_REMOTE_OP_ERR;
	memcpy(response(w), &old, 8);
	if (w->opcode == MLX5_OPCODE_ATOMIC_FA)
		new = old + w->swap_add;
	else
		new = old == w->compare ? w->swap_add : old;
	return mem_write(peer->ctx, addr, &new, 8) ? 0 : MLX5_CQE_SYNDROME_REMOTE_OP_ERR;
}

static int run_send(struct qp *q, struct qp *peer, struct wr *w, uint64_t addr)
{
	unsigned grh = q->type == IBV_QPT_UD ? GRH : 0;
	uint8_t *b = bounce_get(w->bytes + grh);
	int err;

	(void)addr;
	memset(b, 0, grh);
	err = gather(q, w, b + grh);
	if (err)
		return err;
	if (recv_deliver(peer, &(struct message){ .wr = w, .from = q, .buf = b,
						  .len = w->bytes + grh, .grh = grh,
						  .op = operation_of(w)->resp_op }))
		return 0;
	if (q->type != IBV_QPT_RC)
		return 0;               /* nobody tells the sender */
	qp_error(peer);
	return MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR;
}

static const struct operation operations[] = {
	[MLX5_OPCODE_RDMA_WRITE] = { .access = IBV_ACCESS_REMOTE_WRITE, .run = run_write },
	[MLX5_OPCODE_RDMA_WRITE_IMM] = { .access = IBV_ACCESS_REMOTE_WRITE, .run = run_write,
					 .takes_receive = true,
					 .resp_op = MLX5_CQE_RESP_WR_IMM },
	[MLX5_OPCODE_RDMA_READ] = { .access = IBV_ACCESS_REMOTE_READ, .run = run_read },
	[MLX5_OPCODE_ATOMIC_CS] = { .access = IBV_ACCESS_REMOTE_ATOMIC, .run = run_atomic },
	[MLX5_OPCODE_ATOMIC_FA] = { .access = IBV_ACCESS_REMOTE_ATOMIC, .run = run_atomic },
	[MLX5_OPCODE_SEND] = { .run = run_send, .takes_receive = true,
			       .resp_op = MLX5_CQE_RESP_SEND },
	[MLX5_OPCODE_SEND_IMM] = { .run = run_send, .takes_receive = true,
				   .resp_op = MLX5_CQE_RESP_SEND_IMM },
	[MLX5_OPCODE_SEND_INVAL] = { .run = run_send, .takes_receive = true,
				     .resp_op = MLX5_CQE_RESP_SEND_INV },
};

/* Never NULL for a request that wqe_decode() did not refuse, NOP excepted. */
static const struct operation *operation_of(const struct wr *w)
{
	return &operations[w->opcode];
}

/* No receive is posted: try again later, fail, or drop the message. */
static bool not_ready(struct qp *q, struct wr *w, ns_t now)
{
	bool forever = q->attr.rnr_retry == RNR_RETRY_FOREVER;

	if (q->type != IBV_QPT_RC) {
		count_undelivered(w->bytes);
		return true;
	}
	stats.rnr++;
	if (!forever && w->rnr >= q->attr.rnr_retry) {
		w->syndrome = MLX5_CQE_SYNDROME_RNR_RETRY_EXC_ERR;
		return true;
	}
	w->rnr = forever ? 1 : w->rnr + 1;
	count_rnr();
	model_postpone(w, now + param.rnr);
	return false;
}

static bool reachable(const struct qp *q, const struct qp *peer)
{
	return peer && peer->type == q->type && peer->state >= IBV_QPS_RTR &&
	       peer->state <= IBV_QPS_RTS;
}

bool execute(struct qp *q, struct wr *w, ns_t now)
{
	struct qp *peer = qp_find(w->dqpn);
	const struct operation *op = operation_of(w);
	uint64_t addr = 0;

	w->t_exec = now;
	if (q->state == IBV_QPS_ERR && !w->syndrome)
		w->syndrome = MLX5_CQE_SYNDROME_WR_FLUSH_ERR;
	if (w->syndrome || w->opcode == MLX5_OPCODE_NOP)
		return true;
	if (!reachable(q, peer)) {
		count_undelivered(w->bytes);
		if (q->type == IBV_QPT_RC)
			w->syndrome = MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR;
		return true;
	}
	if (model_strikes(q, w))
		return false;
	if (op->takes_receive && !recv_posted(peer))
		return not_ready(q, w, now);
	if (op->access && w->bytes) {
		addr = mr_map(peer->ctx, w->rkey, w->raddr, w->bytes, op->access);
		if (!addr) {
			w->syndrome = MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR;
			return true;
		}
	}
	w->syndrome = op->run(q, peer, w, addr);
	if (!w->syndrome)
		count_message(w->bytes);
	return true;
}
