/* Completion queues, queue pairs and shared receive queues. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <infiniband/verbs.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/ib_user_ioctl_verbs.h>
#include <rdma/mlx5-abi.h>
#include "shim.h"

static struct queue *queue_add(struct sm5_ctx *c)
{
	struct queue *n;

	for (size_t i = 0; i < c->nqueues; i++)
		if (c->queues[i].kind == Q_NONE)
			return &c->queues[i];
	n = realloc(c->queues, (c->nqueues + 1) * sizeof(*n));
	if (!n)
		return NULL;
	c->queues = n;
	memset(&n[c->nqueues], 0, sizeof(*n));
	return &n[c->nqueues++];
}

static struct queue *queue_find(struct sm5_ctx *c, enum queue_kind kind, uint32_t handle)
{
	for (size_t i = 0; i < c->nqueues; i++)
		if (c->queues[i].kind == kind && c->queues[i].handle == handle)
			return &c->queues[i];
	return NULL;
}

/*
 * What the creations have in common: share the LEN bytes of the buffer and
 * the doorbell record, whose offsets go into *buf and *db of the request, and
 * ask the daemon.  0 or an errno.
 */
static int queue_create(struct sm5_ctx *c, const struct queue *want, size_t len,
			struct sm5_req *q, uint64_t *buf, uint64_t *db, struct sm5_rep *r)
{
	struct queue *o = queue_add(c);
	int err;

	if (!o)
		return ENOMEM;
	err = share_range(c, want->buf, len, buf);
	if (err)
		return err;
	err = share_range(c, want->db, 8, db);
	if (err) {
		unshare_range(c, want->buf);
		return err;
	}
	err = rpc(c, q, r);
	if (err) {
		unshare_range(c, want->buf);
		unshare_range(c, want->db);
		return err;
	}
	*o = *want;
	o->handle = r->handle;
	return 0;
}

/*
 * And the destructions.  *events is how many events of the object were taken
 * out by the application: its library waits until as many are acknowledged.
 */
static int queue_destroy(struct sm5_ctx *c, enum queue_kind kind, enum sm5_op op,
			 uint32_t handle, uint32_t *events)
{
	struct sm5_req q = { .op = op, .handle = handle };
	struct queue *o = queue_find(c, kind, handle);
	struct sm5_rep r;
	int err = o ? rpc(c, &q, &r) : EINVAL;

	if (err)
		return err;
	*events = r.extra - (kind == Q_CQ ? drop_events(c, o->chan_rfd, o->user_handle) :
			     drop_async(c, o->user_handle));
	unshare_range(c, o->buf);
	unshare_range(c, o->db);
	o->kind = Q_NONE;
	return 0;
}

int create_cq(struct call *k)
{
	struct sm5_ctx *c = k->c;
	struct mlx5_ib_create_cq u;
	struct mlx5_ib_create_cq_resp ur = {};
	struct sm5_req q = { .op = SM5_CREATE_CQ };
	struct sm5_rep r;
	struct ib_uverbs_attr *ch = attr(k, UVERBS_ATTR_CREATE_CQ_COMP_CHANNEL);
	uint32_t cqe = in_u64(k, UVERBS_ATTR_CREATE_CQ_CQE);
	struct queue want = { .kind = Q_CQ, .chan_rfd = -1 };
	int err;

	in(k, UVERBS_ATTR_UHW_IN, &u, sizeof(u));
	want.buf = u.buf_addr;
	want.db = u.db_addr;
	want.user_handle = in_u64(k, UVERBS_ATTR_CREATE_CQ_USER_HANDLE);
	q.cq.ncqe = cqe + 1;
	q.cq.cqe_size = u.cqe_size;
	q.cq.user_handle = want.user_handle;
	q.cq.ignore_overrun = !!(in_u64(k, UVERBS_ATTR_CREATE_CQ_FLAGS) &
				 IB_UVERBS_CQ_FLAGS_IGNORE_OVERRUN);
	q.cq.chan = -1;
	for (int i = 0; ch && i < c->nchans; i++)
		if (c->chans[i].rfd == (int)ch->data_s64) {
			q.cq.chan = c->chans[i].id;
			want.chan_rfd = c->chans[i].rfd;
		}
	err = queue_create(c, &want, (size_t)q.cq.ncqe * u.cqe_size, &q, &q.cq.buf, &q.cq.db, &r);
	if (err)
		return err;
	ur.cqn = r.id;
	out(k, UVERBS_ATTR_UHW_OUT, &ur, sizeof(ur));
	out(k, UVERBS_ATTR_CREATE_CQ_RESP_CQE, &cqe, sizeof(cqe));
	out_obj(k, UVERBS_ATTR_CREATE_CQ_HANDLE, r.handle);
	return 0;
}

int destroy_cq(struct call *k)
{
	struct ib_uverbs_destroy_cq_resp d = {};
	int err = queue_destroy(k->c, Q_CQ, SM5_DESTROY_CQ,
				in_u64(k, UVERBS_ATTR_DESTROY_CQ_HANDLE),
				&d.comp_events_reported);

	if (!err)
		out(k, UVERBS_ATTR_DESTROY_CQ_RESP, &d, sizeof(d));
	return err;
}

int create_qp(struct call *k)
{
	struct mlx5_ib_create_qp u;
	struct mlx5_ib_create_qp_resp ur = {};
	struct sm5_req q = { .op = SM5_CREATE_QP };
	struct sm5_rep r;
	uint32_t type = in_u64(k, UVERBS_ATTR_CREATE_QP_TYPE);
	struct queue want = { .kind = Q_QP, .chan_rfd = -1 };
	size_t len;
	int err;

	in(k, UVERBS_ATTR_UHW_IN, &u, sizeof(u));
	if ((type != IBV_QPT_RC && type != IBV_QPT_UC && type != IBV_QPT_UD) ||
	    u.flags & MLX5_QP_FLAG_SIGNATURE) {
		dbg("QP type %u, flags %#x: not emulated", type, u.flags);
		return EOPNOTSUPP;
	}
	want.buf = u.buf_addr;
	want.db = u.db_addr;
	want.user_handle = in_u64(k, UVERBS_ATTR_CREATE_QP_USER_HANDLE);
	in(k, UVERBS_ATTR_CREATE_QP_CAP, &q.qp.cap, sizeof(q.qp.cap));
	q.qp.sq_cnt = u.sq_wqe_count;
	q.qp.rq_cnt = u.rq_wqe_count;
	q.qp.rq_shift = u.rq_wqe_shift;
	q.qp.uidx = u.uidx;
	q.qp.uar = u.bfreg_index;
	q.qp.type = type;
	q.qp.scatter_cqe = !!(u.flags & MLX5_QP_FLAG_SCATTER_CQE);
	q.qp.user_handle = want.user_handle;
	q.qp.send_cq = in_u64(k, UVERBS_ATTR_CREATE_QP_SEND_CQ_HANDLE);
	q.qp.recv_cq = in_u64(k, UVERBS_ATTR_CREATE_QP_RECV_CQ_HANDLE);
	q.qp.pd = in_u64(k, UVERBS_ATTR_CREATE_QP_PD_HANDLE);
	q.qp.has_srq = attr(k, UVERBS_ATTR_CREATE_QP_SRQ_HANDLE) != NULL;
	q.qp.srq = in_u64(k, UVERBS_ATTR_CREATE_QP_SRQ_HANDLE);
	q.qp.sig_all = in_u64(k, UVERBS_ATTR_CREATE_QP_FLAGS) & IB_UVERBS_QP_CREATE_SQ_SIG_ALL;
	len = ((size_t)u.rq_wqe_count << u.rq_wqe_shift) + ((size_t)u.sq_wqe_count << 6);
	err = queue_create(k->c, &want, len, &q, &q.qp.buf, &q.qp.db, &r);
	if (err)
		return err;
	ur.bfreg_index = u.bfreg_index;
	out(k, UVERBS_ATTR_UHW_OUT, &ur, sizeof(ur));
	out(k, UVERBS_ATTR_CREATE_QP_RESP_CAP, &q.qp.cap, sizeof(q.qp.cap));
	out(k, UVERBS_ATTR_CREATE_QP_RESP_QP_NUM, &r.id, sizeof(r.id));
	out_obj(k, UVERBS_ATTR_CREATE_QP_HANDLE, r.handle);
	return 0;
}

int destroy_qp(struct call *k)
{
	struct ib_uverbs_destroy_qp_resp d = {};
	int err = queue_destroy(k->c, Q_QP, SM5_DESTROY_QP,
				in_u64(k, UVERBS_ATTR_DESTROY_QP_HANDLE), &d.events_reported);

	if (!err)
		out(k, UVERBS_ATTR_DESTROY_QP_RESP, &d, sizeof(d));
	return err;
}

int create_srq(struct call *k)
{
	struct mlx5_ib_create_srq u;
	struct mlx5_ib_create_srq_resp ur = {};
	struct sm5_req q = { .op = SM5_CREATE_SRQ };
	struct sm5_rep r;
	uint32_t max_wr = in_u64(k, UVERBS_ATTR_CREATE_SRQ_MAX_WR);
	uint32_t max_sge = in_u64(k, UVERBS_ATTR_CREATE_SRQ_MAX_SGE);
	struct queue want = { .kind = Q_SRQ, .chan_rfd = -1 };
	int err;

	in(k, UVERBS_ATTR_UHW_IN, &u, sizeof(u));
	if (in_u64(k, UVERBS_ATTR_CREATE_SRQ_TYPE) != IBV_SRQT_BASIC ||
	    u.flags & MLX5_SRQ_FLAG_SIGNATURE) {
		dbg("only the basic type of SRQ is emulated");
		return EOPNOTSUPP;
	}
	want.buf = u.buf_addr;
	want.db = u.db_addr;
	want.user_handle = in_u64(k, UVERBS_ATTR_CREATE_SRQ_USER_HANDLE);
	/* The library has already rounded both: a power of two less one
	 * entries, of a power of two bytes with the link segment. */
	q.srq.cnt = max_wr + 1;
	while (1ull << q.srq.shift < 16 + 16ull * max_sge)
		q.srq.shift++;
	q.srq.limit = in_u64(k, UVERBS_ATTR_CREATE_SRQ_LIMIT);
	q.srq.user_handle = want.user_handle;
	err = queue_create(k->c, &want, (size_t)q.srq.cnt << q.srq.shift, &q, &q.srq.buf,
			   &q.srq.db, &r);
	if (err)
		return err;
	ur.srqn = r.id;
	out(k, UVERBS_ATTR_UHW_OUT, &ur, sizeof(ur));
	out(k, UVERBS_ATTR_CREATE_SRQ_RESP_MAX_WR, &max_wr, sizeof(max_wr));
	out(k, UVERBS_ATTR_CREATE_SRQ_RESP_MAX_SGE, &max_sge, sizeof(max_sge));
	out(k, UVERBS_ATTR_CREATE_SRQ_RESP_SRQ_NUM, &r.id, sizeof(r.id));
	out_obj(k, UVERBS_ATTR_CREATE_SRQ_HANDLE, r.handle);
	return 0;
}

int destroy_srq(struct call *k)
{
	struct ib_uverbs_destroy_srq_resp d = {};
	int err = queue_destroy(k->c, Q_SRQ, SM5_DESTROY_SRQ,
				in_u64(k, UVERBS_ATTR_DESTROY_SRQ_HANDLE), &d.events_reported);

	if (!err)
		out(k, UVERBS_ATTR_DESTROY_SRQ_RESP, &d, sizeof(d));
	return err;
}
