// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#include "fixture.h"

/* Each function has a body of its own, so that none is merged with another. */
#define F(name) static int name(void *x, ...) { static int count; return x ? ++count : __LINE__; }

F(my_post_send) F(my_post_recv) F(my_post_srq_recv) F(my_poll_cq) F(my_poll_cq_v1)
F(my_alloc_mw) F(gen2_post_send) F(gen2_post_recv) F(gen2_poll_cq)
F(my_start) F(my_complete) F(my_complete_error) F(my_abort)
F(rc_send) F(ud_send) F(rc_write) F(rc_read) F(rc_set_sge) F(ud_set_sge) F(xrc_set_sge) F(set_ud_addr)
F(set_xrc_srqn) F(set_inline) F(unrelated)

int ibv_cmd_req_notify_cq(void *cq, int solicited);

static const struct verbs_context_ops common = {
	.alloc_mw = my_alloc_mw, .poll_cq = my_poll_cq, .post_recv = my_post_recv, .post_send = my_post_send,
	.post_srq_recv = my_post_srq_recv, .req_notify_cq = (function *)ibv_cmd_req_notify_cq,
};
static const struct verbs_context_ops version1 = { .poll_cq = my_poll_cq_v1 };

/* A generation's table inside a structure that only data points to. */
struct generation { long number; struct verbs_context_ops ops; };
static const struct generation second = { 2, {
	.poll_cq = gen2_poll_cq, .post_recv = gen2_post_recv, .post_send = gen2_post_send } };
struct match { long id; const struct generation *generation; };
const struct match matches[] = { { 7, &second }, { 0 } };

/* Something that is no table: it must not be taken for one. */
struct other { function *a; long number; function *b, *c; };
const struct other others[] = { { unrelated, 1, unrelated, unrelated }, { 0 } };

struct my_context { struct verbs_context verbs; const struct generation *generation; };

int open_context(struct my_context *c, int cqe_version, const struct match *m)
{
	verbs_set_ops(&c->verbs, &common);
	if (cqe_version == 1)
		verbs_set_ops(&c->verbs, &version1);
	if (m->generation) {
		c->generation = m->generation;
		verbs_set_ops(&c->verbs, &c->generation->ops);
	}
	return cqe_version;
}

/* The ibv_qp is not the first member, as in libmlx5. */
struct my_qp { long kind; struct ibv_qp_ex ex; function *private[8]; };

int fill_builders(struct my_qp *qp, unsigned long flags, int type)
{
	struct ibv_qp_ex *x = &qp->ex;

	if (flags >> 10)
		return 95;
	x->wr_start = my_start;
	x->wr_complete = my_complete;
	x->wr_abort = my_abort;
	x->wr_set_inline_data = set_inline;
	switch (type) {
	case 2:
		x->wr_send = rc_send;
		x->wr_rdma_write = rc_write;
		x->wr_rdma_read = rc_read;
		x->wr_set_sge = rc_set_sge;
		break;
	case 3:
		x->wr_send = rc_send;
		x->wr_rdma_write = rc_write;
		x->wr_set_sge = rc_set_sge;
		break;
	case 4:
		x->wr_send = ud_send;
		x->wr_set_ud_addr = set_ud_addr;
		x->wr_set_sge = ud_set_sge;
		break;
	case 9:
		x->wr_send = rc_send;
		x->wr_set_xrc_srqn = set_xrc_srqn;
		x->wr_set_sge = xrc_set_sge;
		break;
	case 8:
		qp->private[1] = unrelated;
		break;
	default:
		return 95;
	}
	return 0;
}

void not_ready(struct my_qp *qp)
{
	if (qp->ex.wr_complete)
		qp->ex.wr_complete = my_complete_error;
}
