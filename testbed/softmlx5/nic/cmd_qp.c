/* Commands for queue pairs. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "control.h"
#include "qp.h"
#include "recv.h"

int cmd_create_qp(struct ctx *c, const struct sm5_req *q, int fd, struct sm5_rep *r)
{
	static int hint;
	uint64_t rq_size = (uint64_t)q->qp.rq_cnt << (q->qp.rq_shift & 31);
	uint64_t sq_size = (uint64_t)q->qp.sq_cnt * WQE_BB;
	struct cq *scq = cq_find(c, q->qp.send_cq), *rcq = cq_find(c, q->qp.recv_cq);
	struct srq *srq = q->qp.has_srq ? srq_find(c, q->qp.srq) : NULL;
	struct qp *n;
	int k;

	(void)fd;
	if (!scq || !rcq || (q->qp.has_srq && !srq) ||
	    !in_queue_area(q->qp.buf, rq_size + sq_size) || !in_queue_area(q->qp.db, 8) ||
	    (q->qp.sq_cnt && !power_of_two(q->qp.sq_cnt)) ||
	    (q->qp.rq_cnt && !power_of_two(q->qp.rq_cnt)))
		return EINVAL;
	k = slot_find((void **)qps, MAX_OBJ, &hint);
	n = k < 0 ? NULL : calloc(1, sizeof(*n));
	if (!n)
		return ENOMEM;
	n->ctx = c;
	n->qpn = k + QPN_BASE;
	n->uidx = q->qp.uidx;
	n->type = q->qp.type;
	n->pd = q->qp.pd;
	n->sq_cnt = q->qp.sq_cnt;
	n->rq_cnt = q->qp.rq_cnt;
	n->rq_shift = q->qp.rq_shift;
	n->uar = q->qp.uar;
	n->rq = c->bar + q->qp.buf;
	n->sq = n->rq + rq_size;
	n->db = (void *)(c->bar + q->qp.db);
	n->scq = scq;
	n->rcq = rcq;
	n->srq = srq;
	n->user_handle = q->qp.user_handle;
	n->cap = q->qp.cap;
	n->sig_all = q->qp.sig_all;
	n->scatter_cqe = q->qp.scatter_cqe;
	fifo_init(&n->wire);
	fifo_init(&n->ack);
	qps[k] = n;
	act_qp[nact_qp++] = n;
	r->handle = r->id = n->qpn;
	return 0;
}

static struct qp *own_qp(struct ctx *c, uint32_t qpn)
{
	struct qp *q = qp_find(qpn);

	return q && q->ctx == c ? q : NULL;
}

/* The attributes that are kept as they are given. */
static void set_attributes(struct ib_uverbs_modify_qp *to, uint32_t mask,
			   const struct ib_uverbs_modify_qp *a)
{
#define TAKE(bit, field) \
	if (mask & (bit)) \
		to->field = a->field
	TAKE(IBV_QP_AV, dest);
	TAKE(IBV_QP_DEST_QPN, dest_qp_num);
	TAKE(IBV_QP_RNR_RETRY, rnr_retry);
	TAKE(IBV_QP_RETRY_CNT, retry_cnt);
	TAKE(IBV_QP_TIMEOUT, timeout);
	TAKE(IBV_QP_PATH_MTU, path_mtu);
	TAKE(IBV_QP_RQ_PSN, rq_psn);
	TAKE(IBV_QP_SQ_PSN, sq_psn);
	TAKE(IBV_QP_QKEY, qkey);
	TAKE(IBV_QP_PORT, port_num);
	TAKE(IBV_QP_ACCESS_FLAGS, qp_access_flags);
	TAKE(IBV_QP_MIN_RNR_TIMER, min_rnr_timer);
	TAKE(IBV_QP_MAX_QP_RD_ATOMIC, max_rd_atomic);
	TAKE(IBV_QP_MAX_DEST_RD_ATOMIC, max_dest_rd_atomic);
#undef TAKE
}

int cmd_modify_qp(struct ctx *c, const struct sm5_req *q, int fd, struct sm5_rep *r)
{
	struct qp *n = own_qp(c, q->handle);

	(void)fd, (void)r;
	if (!n)
		return EINVAL;
	set_attributes(&n->attr, q->mod.mask, &q->mod.attr);
	if (!(q->mod.mask & IBV_QP_STATE))
		return 0;
	if (q->mod.attr.qp_state > IBV_QPS_ERR)
		return EINVAL;
	n->state = q->mod.attr.qp_state;
	if (n->state == IBV_QPS_RESET)
		qp_reset(n);
	if (n->state == IBV_QPS_ERR) {
		qp_error(n);
		qp_doorbell(n);       /* to be flushed too */
	}
	return 0;
}

int cmd_query_qp(struct ctx *c, const struct sm5_req *q, int fd, struct sm5_rep *r)
{
	struct qp *n = own_qp(c, q->handle);
	struct ib_uverbs_query_qp_resp *a = &r->query;

	(void)fd;
	if (!n)
		return EINVAL;
	a->dest = n->attr.dest;
	a->max_send_wr = n->cap.max_send_wr;
	a->max_recv_wr = n->cap.max_recv_wr;
	a->max_send_sge = n->cap.max_send_sge;
	a->max_recv_sge = n->cap.max_recv_sge;
	a->max_inline_data = n->cap.max_inline_data;
	a->qkey = n->attr.qkey;
	a->rq_psn = n->attr.rq_psn;
	a->sq_psn = n->attr.sq_psn;
	a->dest_qp_num = n->attr.dest_qp_num;
	a->qp_access_flags = n->attr.qp_access_flags;
	a->qp_state = a->cur_qp_state = n->state;
	a->path_mtu = n->attr.path_mtu;
	a->max_rd_atomic = n->attr.max_rd_atomic;
	a->max_dest_rd_atomic = n->attr.max_dest_rd_atomic;
	a->min_rnr_timer = n->attr.min_rnr_timer;
	a->port_num = n->attr.port_num;
	a->timeout = n->attr.timeout;
	a->retry_cnt = n->attr.retry_cnt;
	a->rnr_retry = n->attr.rnr_retry;
	a->sq_sig_all = n->sig_all;
	return 0;
}

int cmd_destroy_qp(struct ctx *c, const struct sm5_req *q, int fd, struct sm5_rep *r)
{
	struct qp *n = own_qp(c, q->handle);

	(void)fd;
	if (!n)
		return EINVAL;
	r->extra = n->events;
	qp_free(n);
	return 0;
}
