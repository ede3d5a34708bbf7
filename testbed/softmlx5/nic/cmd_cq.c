/* Commands for completion queues, channels and shared receive queues. */
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>
#include "control.h"
#include "cq.h"

int cmd_create_chan(struct ctx *c, const struct sm5_req *q, int fd, struct sm5_rep *r)
{
	(void)q;
	if (fd < 0)
		return EINVAL;
	for (int i = 0; i < MAX_CHAN; i++) {
		if (chans[i].ctx)
			continue;
		chans[i] = (struct chan){ c, dup(fd) };
		r->handle = i;
		return 0;
	}
	return ENOMEM;
}

int cmd_destroy_chan(struct ctx *c, const struct sm5_req *q, int fd, struct sm5_rep *r)
{
	(void)fd, (void)r;
	if (q->handle >= MAX_CHAN || chans[q->handle].ctx != c)
		return EINVAL;
	chan_free(&chans[q->handle]);
	return 0;
}

int cmd_create_cq(struct ctx *c, const struct sm5_req *q, int fd, struct sm5_rep *r)
{
	static int hint;
	struct cq *n;
	int k;

	(void)fd;
	if (!power_of_two(q->cq.ncqe) || (q->cq.cqe_size != 64 && q->cq.cqe_size != 128) ||
	    !in_queue_area(q->cq.buf, (uint64_t)q->cq.ncqe * q->cq.cqe_size) ||
	    !in_queue_area(q->cq.db, 8) ||
	    (q->cq.chan >= 0 && (q->cq.chan >= MAX_CHAN || chans[q->cq.chan].ctx != c)))
		return EINVAL;
	k = slot_find((void **)cqs, MAX_OBJ, &hint);
	n = k < 0 ? NULL : calloc(1, sizeof(*n));
	if (!n)
		return ENOMEM;
	n->ctx = c;
	n->cqn = k + CQN_BASE;
	n->ncqe = q->cq.ncqe;
	n->cqe_size = q->cq.cqe_size;
	n->buf = c->bar + q->cq.buf;
	n->db = (void *)(c->bar + q->cq.db);
	n->db[1] = htobe32(CQ_ARM_NONE);
	n->ignore_overrun = q->cq.ignore_overrun;
	n->chan = q->cq.chan;
	n->user_handle = q->cq.user_handle;
	n->fired_sn = -1;
	cqs[k] = n;
	act_cq[nact_cq++] = n;
	r->handle = r->id = n->cqn;
	return 0;
}

int cmd_destroy_cq(struct ctx *c, const struct sm5_req *q, int fd, struct sm5_rep *r)
{
	struct cq *n = cq_find(c, q->handle);

	(void)fd;
	if (!n)
		return EINVAL;
	for (int i = 0; i < nact_qp; i++)
		if (act_qp[i]->scq == n || act_qp[i]->rcq == n)
			return EBUSY;
	r->extra = n->events;
	cq_free(n);
	return 0;
}

int cmd_create_srq(struct ctx *c, const struct sm5_req *q, int fd, struct sm5_rep *r)
{
	static int hint;
	struct srq *n;
	int k;

	(void)fd;
	if (!power_of_two(q->srq.cnt) || q->srq.cnt > 65536 ||
	    q->srq.shift < 5 || q->srq.shift > 12 ||
	    !in_queue_area(q->srq.buf, (uint64_t)q->srq.cnt << q->srq.shift) ||
	    !in_queue_area(q->srq.db, 8))
		return EINVAL;
	k = slot_find((void **)srqs, MAX_OBJ, &hint);
	n = k < 0 ? NULL : calloc(1, sizeof(*n));
	if (!n)
		return ENOMEM;
	n->ctx = c;
	n->srqn = k + SRQN_BASE;
	n->cnt = q->srq.cnt;
	n->shift = q->srq.shift;
	n->buf = c->bar + q->srq.buf;
	n->db = (void *)(c->bar + q->srq.db);
	n->limit = q->srq.limit;
	n->user_handle = q->srq.user_handle;
	srqs[k] = n;
	r->handle = r->id = n->srqn;
	return 0;
}

int cmd_modify_srq(struct ctx *c, const struct sm5_req *q, int fd, struct sm5_rep *r)
{
	struct srq *n = srq_find(c, q->handle);

	(void)fd, (void)r;
	if (!n)
		return EINVAL;
	n->limit = q->srq.limit;
	return 0;
}

int cmd_query_srq(struct ctx *c, const struct sm5_req *q, int fd, struct sm5_rep *r)
{
	struct srq *n = srq_find(c, q->handle);

	(void)fd;
	if (!n)
		return EINVAL;
	r->srq.max_wr = n->cnt - 1;
	r->srq.max_sge = (1u << n->shift) / 16 - 1;
	r->srq.srq_limit = n->limit;
	return 0;
}

int cmd_destroy_srq(struct ctx *c, const struct sm5_req *q, int fd, struct sm5_rep *r)
{
	struct srq *n = srq_find(c, q->handle);

	(void)fd;
	if (!n)
		return EINVAL;
	for (int i = 0; i < nact_qp; i++)
		if (act_qp[i]->srq == n)
			return EBUSY;
	r->extra = n->events;
	srq_free(n);
	return 0;
}
