/* The receiving side. */
#include <endian.h>
#include <string.h>
#include "cq.h"
#include "memory.h"
#include "recv.h"
#include "truth.h"

/* The largest payload that travels in a 64 byte CQE. */
#define CQE_SCATTER_MAX 32

bool recv_posted(const struct qp *q)
{
	if (q->srq)
		return q->srq->taken != (uint16_t)be32toh(q->srq->db[0]);
	return q->rq_cnt && q->rq_ci != (uint16_t)be32toh(q->db[MLX5_RCV_DBR]);
}

/* A receive taken from its queue. */
struct receive {
	const struct mlx5_wqe_data_seg *seg;
	unsigned nseg;
	unsigned idx;           /* what its completion entry will name it by */
};

static void take_own(struct qp *q, struct receive *r)
{
	r->idx = q->rq_ci++;
	r->nseg = (1u << q->rq_shift) / sizeof(*r->seg);
	r->seg = (void *)(q->rq + ((size_t)(r->idx & (q->rq_cnt - 1)) << q->rq_shift));
}

static void take_shared(struct srq *s, struct receive *r)
{
	struct mlx5_wqe_srq_next_seg *e = (void *)(s->buf + ((size_t)s->head << s->shift));
	unsigned left;

	r->idx = s->head;
	r->nseg = (1u << s->shift) / sizeof(*r->seg) - 1;
	r->seg = (void *)(e + 1);
	s->head = be16toh(e->next_wqe_index) & (s->cnt - 1);
	s->taken++;
	left = (uint16_t)(be32toh(s->db[0]) - s->taken);
	if (left < s->limit) {
		s->limit = 0;           /* once for each time it is set */
		s->events += async_event(s->ctx, s->user_handle, IBV_EVENT_SRQ_LIMIT_REACHED);
	}
}

static void cqe_init(struct mlx5_cqe64 *e, const struct qp *q, unsigned idx)
{
	memset(e, 0, sizeof(*e));
	e->srqn_uidx = htobe32(q->uidx);
	e->wqe_counter = htobe16(idx);
	e->sop_drop_qpn = htobe32(q->qpn);
}

/* Log before the event: a reader of the log then finds cause before effect. */
static void push(struct qp *q, struct mlx5_cqe64 *e, uint8_t op, uint8_t fmt, bool solicited,
		 unsigned idx, uint32_t len, ns_t t_arr)
{
	uint32_t pi = q->rcq->pi;
	ns_t t = cq_push(q->rcq, e, op, fmt, solicited);

	truth_recv(q, idx, len, op == MLX5_CQE_RESP_ERR, t_arr, t, pi);
	cq_check_arm(q->rcq, t);
}

static void push_error(struct qp *q, unsigned idx, uint8_t syndrome, uint32_t len, ns_t t_arr)
{
	struct mlx5_cqe64 e;
	struct mlx5_err_cqe *err = (void *)&e;

	cqe_init(&e, q, idx);
	err->syndrome = syndrome;
	push(q, &e, MLX5_CQE_RESP_ERR, 0, true, idx, len, t_arr);
}

void recv_flush(struct qp *q)
{
	if (q->srq) {
		/* What is posted there is not this QP's to flush. */
		if (!q->last_wqe)
			q->events += async_event(q->ctx, q->user_handle,
						 IBV_EVENT_QP_LAST_WQE_REACHED);
		q->last_wqe = true;
		return;
	}
	while (recv_posted(q))
		push_error(q, q->rq_ci++, MLX5_CQE_SYNDROME_WR_FLUSH_ERR, 0, 0);
}

/* Copy into the receive's memory; returns what did not fit or was forbidden. */
static uint32_t fill(const struct qp *q, const struct receive *r, const uint8_t *buf,
		     uint32_t left)
{
	for (unsigned i = 0; i < r->nseg && left; i++) {
		uint32_t n = be32toh(r->seg[i].byte_count), key = be32toh(r->seg[i].lkey);
		uint64_t a;

		if (key == MLX5_INVALID_LKEY)
			break;
		if (n > left)
			n = left;
		a = mr_map(q->ctx, key, be64toh(r->seg[i].addr), n, IBV_ACCESS_LOCAL_WRITE);
		if (!a || !mem_write(q->ctx, a, buf, n))
			break;
		buf += n;
		left -= n;
	}
	return left;
}

bool recv_deliver(struct qp *q, const struct message *m)
{
	struct mlx5_cqe64 e;
	struct receive r;
	/* libmlx5 copies it to its place when it polls the entry. */
	bool in_cqe = param.scatter && q->scatter_cqe && q->type == IBV_QPT_RC && m->buf &&
		      m->len && m->len <= CQE_SCATTER_MAX;

	if (q->srq)
		take_shared(q->srq, &r);
	else
		take_own(q, &r);
	if (m->buf && !in_cqe && fill(q, &r, m->buf, m->len)) {
		push_error(q, r.idx, MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR, m->len, m->wr->t_arr);
		return false;
	}
	cqe_init(&e, q, r.idx);
	e.slid = htobe16(SM5_LID);
	e.flags_rqpn = htobe32((m->grh && param.link == LINK_ETH ? 1u << 28 : 0) | m->from->qpn);
	if (in_cqe)
		memcpy(&e, m->buf, m->len);
	e.imm_inval_pkey = m->wr->imm;  /* already big endian */
	e.byte_cnt = htobe32(m->len);
	push(q, &e, m->op, in_cqe ? MLX5_INLINE_SCATTER_32 : 0, m->wr->solicited, r.idx, m->len,
	     m->wr->t_arr);
	return true;
}
