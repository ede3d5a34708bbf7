/* Queue pairs. */
#include <endian.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "cq.h"
#include "execute.h"
#include "memory.h"
#include "model.h"
#include "qp.h"
#include "recv.h"
#include "truth.h"
#include "wqe.h"

/* The vendor's code in an error entry; perftest prints it. */
#define VENDOR_SYNDROME 0x51

static struct wr *pool;

static struct wr *wr_get(void)
{
	struct wr *w = pool;

	if (w)
		pool = w->next;
	else
		w = malloc(sizeof(*w));
	if (!w) {
		fprintf(stderr, "softmlx5d: no memory for a request\n");
		abort();
	}
	memset(w, 0, offsetof(struct wr, seg));
	return w;
}

static void wr_put(struct wr *w)
{
	free(w->resp);
	w->next = pool;
	pool = w;
}

void fifo_init(struct fifo *f)
{
	f->head = NULL;
	f->tail = &f->head;
}

static void fifo_add(struct fifo *f, struct wr *w)
{
	w->next = NULL;
	*f->tail = w;
	f->tail = &w->next;
}

static struct wr *fifo_pop(struct fifo *f)
{
	struct wr *w = f->head;

	f->head = w->next;
	if (!f->head)
		f->tail = &f->head;
	return w;
}

void qp_drop(struct qp *q)
{
	while (q->wire.head)
		wr_put(fifo_pop(&q->wire));
	while (q->ack.head)
		wr_put(fifo_pop(&q->ack));
}

void qp_reset(struct qp *q)
{
	qp_drop(q);
	q->last_wqe = false;
	q->sq_ci = q->rq_ci = 0;
	q->last_arr = q->last_cqe = 0;
	q->stale_since = 0;
}

void qp_error(struct qp *q)
{
	q->state = IBV_QPS_ERR;
	recv_flush(q);
}

/* Fetch the request at the consumer index; false when it makes no sense. */
static bool fetch(struct qp *q, ns_t t_db, uint32_t batch)
{
	struct wr *w = wr_get();
	unsigned blocks = wqe_decode(q, w);

	if (!blocks) {
		wr_put(w);
		return false;
	}
	w->t_db = t_db;
	w->batch = batch;
	model_plan(q, w);
	fifo_add(&q->wire, w);
	q->sq_ci += blocks;
	stats.wrs++;
	stats.bytes += w->bytes;
	return true;
}

void qp_doorbell(struct qp *q)
{
	uint16_t pi = be32toh(q->db[MLX5_SND_DBR]);
	/* After the record is read: no request was seen before it was posted. */
	ns_t t = now_ns();
	uint32_t batch = 0;

	if (q->state != IBV_QPS_RTS && q->state != IBV_QPS_ERR)
		return;
	q->stale_since = 0;
	if (pi == q->sq_ci)
		return;
	stats.doorbells++;
	while (q->sq_ci != pi)
		if (!fetch(q, t, batch++)) {
			q->sq_ci = pi;
			qp_error(q);
			break;
		}
}

static ns_t push_cqe(struct qp *q, struct wr *w)
{
	struct mlx5_cqe64 e = {};
	struct mlx5_err_cqe *err = (void *)&e;
	struct cq *c = q->scq;
	ns_t t;

	if (w->slow && w->stage == STAGE_STAMP)
		c->stall = w->fault;
	e.srqn_uidx = htobe32(q->uidx);
	e.wqe_counter = htobe16(w->idx);
	e.sop_drop_qpn = htobe32((uint32_t)w->opcode << 24 | q->qpn);
	if (w->syndrome) {
		err->syndrome = w->syndrome;
		err->vendor_err_synd = VENDOR_SYNDROME;
		t = cq_push(c, &e, MLX5_CQE_REQ_ERR, 0, true);
	} else {
		e.byte_cnt = htobe32(w->bytes);
		t = cq_push(c, &e, MLX5_CQE_REQ, 0, false);
	}
	if (w->slow && w->stage == STAGE_EVENT)
		cq_delay_event(c, t, w->fault);
	cq_check_arm(c, t);
	return t;
}

/* The requester's side: data of a read, and the completion. */
static void complete(struct qp *q, struct wr *w)
{
	int64_t index = -1;
	ns_t t;

	if (w->resp && !w->syndrome)
		w->syndrome = scatter(q, w, w->resp, w->bytes);
	if (w->signaled || w->syndrome) {
		index = q->scq->pi;
		t = push_cqe(q, w);
	} else {
		t = now_ns();
	}
	if (w->syndrome)
		qp_error(q);
	truth_send(q, w, t, index);
	wr_put(w);
}

/* A doorbell record that moved with no ring: a real NIC would not notice. */
static void check_stale(struct qp *q, ns_t now)
{
	if (q->state != IBV_QPS_RTS || (uint16_t)be32toh(q->db[MLX5_SND_DBR]) == q->sq_ci)
		return;
	if (!q->stale_since) {
		q->stale_since = now;
	} else if (now - q->stale_since > SEC) {
		stats.missed++;
		qp_doorbell(q);
	}
}

ns_t qp_run(struct qp *q, ns_t now, bool *any)
{
	ns_t next = 0;

	while (q->wire.head && q->wire.head->t_arr <= now) {
		if (!execute(q, q->wire.head, now_ns()))
			break;
		/* What follows a failed request is flushed, not executed. */
		if (q->wire.head->syndrome && q->state == IBV_QPS_RTS)
			q->state = IBV_QPS_ERR;
		fifo_add(&q->ack, fifo_pop(&q->wire));
		*any = true;
	}
	now = now_ns();
	while (q->ack.head && q->ack.head->t_cqe_due <= now) {
		complete(q, fifo_pop(&q->ack));
		*any = true;
	}
	if (q->wire.head)
		next = q->wire.head->t_arr;
	if (q->ack.head && (!next || q->ack.head->t_cqe_due < next))
		next = q->ack.head->t_cqe_due;
	if (!next)
		check_stale(q, now);
	return next;
}
