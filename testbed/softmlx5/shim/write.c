/*
 * The old write() commands: libibverbs sends those that have no ioctl of
 * their own as UVERBS_METHOD_INVOKE_WRITE, without the command's header.
 */
#include <errno.h>
#include <infiniband/verbs.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/mlx5-abi.h>
#include "shim.h"

static int alloc_pd(struct call *k)
{
	struct ib_uverbs_alloc_pd_resp d = { .pd_handle = ++k->c->next_handle };
	struct mlx5_ib_alloc_pd_resp u = { .pdn = d.pd_handle };

	out(k, UVERBS_ATTR_CORE_OUT, &d, sizeof(d));
	out(k, UVERBS_ATTR_UHW_OUT, &u, sizeof(u));
	return 0;
}

static int create_ah(struct call *k)
{
	struct ib_uverbs_create_ah_resp d = { .ah_handle = ++k->c->next_handle };
	struct mlx5_ib_create_ah_resp u = { .response_length = sizeof(u) };

	out(k, UVERBS_ATTR_CORE_OUT, &d, sizeof(d));
	out(k, UVERBS_ATTR_UHW_OUT, &u, sizeof(u));
	return 0;
}

static int reg_mr(struct call *k)
{
	struct ib_uverbs_reg_mr m;
	struct ib_uverbs_reg_mr_resp d = {};
	struct sm5_req q = { .op = SM5_REG_MR };
	struct sm5_rep r;
	int err;

	in(k, UVERBS_ATTR_CORE_IN, &m, sizeof(m));
	q.mr.start = m.start;
	q.mr.length = m.length;
	q.mr.hca_va = m.hca_va;
	q.mr.access = m.access_flags;
	q.mr.pd = m.pd_handle;
	err = rpc(k->c, &q, &r);
	if (err)
		return err;
	d.mr_handle = r.handle;
	d.lkey = d.rkey = r.id;
	out(k, UVERBS_ATTR_CORE_OUT, &d, sizeof(d));
	return 0;
}

static int modify_qp(struct call *k)
{
	struct mlx5_ib_modify_qp_resp u = { .response_length = sizeof(u) };
	struct ib_uverbs_ex_modify_qp_resp d = { .response_length = sizeof(d) };
	struct sm5_req q = { .op = SM5_MODIFY_QP };
	struct sm5_rep r;
	int err;

	in(k, UVERBS_ATTR_CORE_IN, &q.mod.attr, sizeof(q.mod.attr));
	q.handle = q.mod.attr.qp_handle;
	q.mod.mask = q.mod.attr.attr_mask;
	err = rpc(k->c, &q, &r);
	if (err)
		return err;
	out(k, UVERBS_ATTR_CORE_OUT, &d, sizeof(d));
	out(k, UVERBS_ATTR_UHW_OUT, &u, sizeof(u));
	return 0;
}

static int query_qp(struct call *k)
{
	struct ib_uverbs_query_qp m;
	struct sm5_req q = { .op = SM5_QUERY_QP };
	struct sm5_rep r;
	int err;

	in(k, UVERBS_ATTR_CORE_IN, &m, sizeof(m));
	q.handle = m.qp_handle;
	err = rpc(k->c, &q, &r);
	if (!err)
		out(k, UVERBS_ATTR_CORE_OUT, &r.query, sizeof(r.query));
	return err;
}

static int modify_srq(struct call *k)
{
	struct ib_uverbs_modify_srq m;
	struct sm5_req q = { .op = SM5_MODIFY_SRQ };
	struct sm5_rep r;

	in(k, UVERBS_ATTR_CORE_IN, &m, sizeof(m));
	if (m.attr_mask & IBV_SRQ_MAX_WR)
		return EINVAL;          /* as mlx5: no resizing */
	if (!(m.attr_mask & IBV_SRQ_LIMIT))
		return 0;
	q.handle = m.srq_handle;
	q.srq.limit = m.srq_limit;
	return rpc(k->c, &q, &r);
}

static int query_srq(struct call *k)
{
	struct ib_uverbs_query_srq m;
	struct sm5_req q = { .op = SM5_QUERY_SRQ };
	struct sm5_rep r;
	int err;

	in(k, UVERBS_ATTR_CORE_IN, &m, sizeof(m));
	q.handle = m.srq_handle;
	err = rpc(k->c, &q, &r);
	if (!err)
		out(k, UVERBS_ATTR_CORE_OUT, &r.srq, sizeof(r.srq));
	return err;
}

#define EX(cmd) (IB_USER_VERBS_CMD_FLAG_EXTENDED | (cmd))

static const struct {
	unsigned cmd;
	call_fn *run;
} commands[] = {
	{ IB_USER_VERBS_CMD_QUERY_DEVICE, query_device },
	{ EX(IB_USER_VERBS_EX_CMD_QUERY_DEVICE), query_device_ex },
	{ IB_USER_VERBS_CMD_ALLOC_PD, alloc_pd },
	{ IB_USER_VERBS_CMD_CREATE_AH, create_ah },
	{ IB_USER_VERBS_CMD_REG_MR, reg_mr },
	{ IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL, create_channel },
	{ IB_USER_VERBS_CMD_MODIFY_QP, modify_qp },
	{ EX(IB_USER_VERBS_EX_CMD_MODIFY_QP), modify_qp },
	{ IB_USER_VERBS_CMD_QUERY_QP, query_qp },
	{ IB_USER_VERBS_CMD_MODIFY_SRQ, modify_srq },
	{ IB_USER_VERBS_CMD_QUERY_SRQ, query_srq },
};

int invoke_write(struct call *k)
{
	unsigned cmd = in_u64(k, UVERBS_ATTR_WRITE_CMD);

	for (size_t i = 0; i < sizeof(commands) / sizeof(*commands); i++)
		if (commands[i].cmd == cmd)
			return commands[i].run(k);
	dbg("write command %#x is not emulated", cmd);
	return EOPNOTSUPP;
}
