/*
 * The model of time.  All QPs share one port, full duplex: what a message
 * occupies is its bytes times BYTE_PS, out for all but READ, whose bytes come
 * in.
 *
 *   t_wire = max(doorbell, out is free)
 *   t_arr  = t_wire + bytes + LAT + jitter + fault
 *   t_cqe  = t_arr + ACK                     RC
 *            t_wire + bytes                  UC, UD: sent is done
 *            max(t_arr, in is free) + bytes + ACK    READ
 *
 * Arrivals and completions of a QP keep their order.
 */
#include <math.h>
#include "counters.h"
#include "model.h"

static uint64_t rng = 1;
static ns_t out_free, in_free;

void model_seed(void)
{
	rng = param.seed;
}

/* xorshift64 (Marsaglia 2003) */
static double uniform01(void)
{
	rng ^= rng << 13;
	rng ^= rng >> 7;
	rng ^= rng << 17;
	return (rng >> 11) * 0x1p-53;
}

static ns_t draw_jitter(void)
{
	switch (param.jitter) {
	case JITTER_UNIFORM:
		return uniform01() * param.jitter_ns;
	case JITTER_EXP:
		return -log(1.0 - uniform01()) * param.jitter_ns;
	default:
		return 0;
	}
}

static bool takes_receive(const struct wr *w)
{
	switch (w->opcode) {
	case MLX5_OPCODE_SEND:
	case MLX5_OPCODE_SEND_IMM:
	case MLX5_OPCODE_SEND_INVAL:
	case MLX5_OPCODE_RDMA_WRITE_IMM:
		return true;
	default:
		return false;
	}
}

/* Could this request meet the fault at all?  SLOW_EVERY counts those only. */
static bool eligible(const struct qp *q, const struct wr *w)
{
	if (param.slow_op != SLOW_ANY && param.slow_op != w->opcode)
		return false;
	switch (param.slow_stage) {
	case STAGE_STAMP:
		return w->signaled;
	case STAGE_EVENT:
		return w->signaled && q->scq->chan >= 0;
	case STAGE_RNR:
		return q->type == IBV_QPT_RC && takes_receive(w);
	case STAGE_CONGESTION:
		return q->type == IBV_QPT_RC;
	case STAGE_RETRANSMIT:
		return q->type == IBV_QPT_RC && w->opcode != MLX5_OPCODE_NOP;
	default:
		return true;
	}
}

/* Of every SLOW_EVERY, the last BURST are slow. */
static bool is_slow(struct qp *q, const struct wr *w)
{
	if (!param.slow_every || !eligible(q, w))
		return false;
	return q->slow_count++ % param.slow_every >=
	       (uint64_t)(param.slow_every > param.burst ? param.slow_every - param.burst : 0);
}

static ns_t later(ns_t a, ns_t b)
{
	return a > b ? a : b;
}

void model_plan(struct qp *q, struct wr *w)
{
	ns_t occupied = w->bytes * (uint64_t)param.byte_ps / 1000;
	bool read = w->opcode == MLX5_OPCODE_RDMA_READ;
	ns_t jitter = draw_jitter();

	q->count++;
	w->slow = is_slow(q, w);
	if (param.err_every && q->count % param.err_every == 0 && !w->syndrome)
		w->syndrome = MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR;
	w->stage = param.slow_stage;
	w->fault = w->slow ? param.slow_ns : 0;
	w->injected = jitter + w->fault;

	w->t_wire = later(w->t_db, out_free);
	w->t_arr = w->t_wire + param.lat + jitter;
	if (w->stage == STAGE_WIRE || w->stage == STAGE_CONGESTION)
		w->t_arr += w->fault;
	if (w->stage == STAGE_CONGESTION && w->slow)
		count_congestion();
	if (!read) {
		out_free = w->t_wire + occupied;
		w->t_arr += occupied;
	}
	w->t_arr = q->last_arr = later(w->t_arr, q->last_arr);

	if (q->type != IBV_QPT_RC) {
		w->t_cqe_due = w->t_wire + occupied;
	} else if (read) {
		in_free = later(w->t_arr, in_free) + occupied;
		w->t_cqe_due = in_free + param.ack;
	} else {
		w->t_cqe_due = w->t_arr + param.ack;
	}
	if (w->stage == STAGE_CQE)
		w->t_cqe_due += w->fault;
	w->t_cqe_due = q->last_cqe = later(w->t_cqe_due, q->last_cqe);
}

bool model_strikes(struct qp *q, struct wr *w)
{
	if (!w->slow || w->struck)
		return false;
	switch (w->stage) {
	case STAGE_RNR:
		w->rnr++;
		count_rnr();
		break;
	case STAGE_RETRANSMIT:
		/* The peer notices a gap when more follows; else only the
		 * requester's timer can. */
		if (w->next)
			count_sequence_error();
		else
			count_timeout();
		count_retransmission(w->bytes);
		break;
	default:
		return false;
	}
	w->struck = true;
	model_postpone(w, w->t_arr + w->fault);
	q->last_arr = later(q->last_arr, w->t_arr);
	q->last_cqe = later(q->last_cqe, w->t_cqe_due);
	return true;
}

void model_postpone(struct wr *w, ns_t t)
{
	w->t_cqe_due += t - w->t_arr;
	w->t_arr = t;
}
