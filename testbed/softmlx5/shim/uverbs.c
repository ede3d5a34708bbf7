/* The uverbs ioctl: which method is whose. */
#include <errno.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include <rdma/mlx5_user_ioctl_cmds.h>
#include <rdma/mlx5_user_ioctl_verbs.h>
#include "shim.h"

static int alloc_uar(struct call *k)
{
	struct sm5_req q = { .op = SM5_ALLOC_UAR };
	struct sm5_rep r;
	uint64_t off, len = SM5_PAGE;
	int err = rpc(k->c, &q, &r);

	if (err)
		return err;
	off = SM5_UAR_OFF + r.id * SM5_PAGE;
	out(k, MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_OFFSET, &off, sizeof(off));
	out(k, MLX5_IB_ATTR_UAR_OBJ_ALLOC_MMAP_LENGTH, &len, sizeof(len));
	out(k, MLX5_IB_ATTR_UAR_OBJ_ALLOC_PAGE_ID, &r.id, sizeof(r.id));
	out_obj(k, MLX5_IB_ATTR_UAR_OBJ_ALLOC_HANDLE, r.id);
	return 0;
}

/* A command that is nothing but an object's handle. */
static int forward(struct call *k, enum sm5_op op, unsigned id)
{
	struct sm5_req q = { .op = op, .handle = in_u64(k, id) };
	struct sm5_rep r;

	return rpc(k->c, &q, &r);
}

static int free_uar(struct call *k)
{
	return forward(k, SM5_FREE_UAR, MLX5_IB_ATTR_UAR_OBJ_DESTROY_HANDLE);
}

static int dereg_mr(struct call *k)
{
	return forward(k, SM5_DEREG_MR, UVERBS_ATTR_DESTROY_MR_HANDLE);
}

static int nothing(struct call *k)
{
	(void)k;
	return 0;
}

/* DEVX, the raw firmware commands: libmlx5 and UCX do without. */
static int refuse(struct call *k)
{
	(void)k;
	return EOPNOTSUPP;
}

static const struct {
	uint16_t object, method;
	call_fn *run;
} methods[] = {
	{ UVERBS_OBJECT_DEVICE, UVERBS_METHOD_INVOKE_WRITE, invoke_write },
	{ UVERBS_OBJECT_DEVICE, UVERBS_METHOD_GET_CONTEXT, get_context },
	{ UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_PORT, query_port },
	{ UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_GID_ENTRY, query_gid_entry },
	{ UVERBS_OBJECT_DEVICE, UVERBS_METHOD_QUERY_GID_TABLE, query_gid_table },
	{ UVERBS_OBJECT_ASYNC_EVENT, UVERBS_METHOD_ASYNC_EVENT_ALLOC, async_fd },
	{ UVERBS_OBJECT_CQ, UVERBS_METHOD_CQ_CREATE, create_cq },
	{ UVERBS_OBJECT_CQ, UVERBS_METHOD_CQ_DESTROY, destroy_cq },
	{ UVERBS_OBJECT_QP, UVERBS_METHOD_QP_CREATE, create_qp },
	{ UVERBS_OBJECT_QP, UVERBS_METHOD_QP_DESTROY, destroy_qp },
	{ UVERBS_OBJECT_SRQ, UVERBS_METHOD_SRQ_CREATE, create_srq },
	{ UVERBS_OBJECT_SRQ, UVERBS_METHOD_SRQ_DESTROY, destroy_srq },
	{ UVERBS_OBJECT_MR, UVERBS_METHOD_MR_DESTROY, dereg_mr },
	{ UVERBS_OBJECT_MR, UVERBS_METHOD_ADVISE_MR, nothing },
	{ UVERBS_OBJECT_PD, UVERBS_METHOD_PD_DESTROY, nothing },
	{ UVERBS_OBJECT_AH, UVERBS_METHOD_AH_DESTROY, nothing },
	{ MLX5_IB_OBJECT_UAR, MLX5_IB_METHOD_UAR_OBJ_ALLOC, alloc_uar },
	{ MLX5_IB_OBJECT_UAR, MLX5_IB_METHOD_UAR_OBJ_DESTROY, free_uar },
	{ MLX5_IB_OBJECT_DEVX, MLX5_IB_METHOD_DEVX_OTHER, refuse },
};

int uverbs_ioctl(struct sm5_ctx *c, struct ib_uverbs_ioctl_hdr *h)
{
	struct call k = { c, h };

	for (size_t i = 0; i < sizeof(methods) / sizeof(*methods); i++)
		if (methods[i].object == h->object_id && methods[i].method == h->method_id)
			return methods[i].run(&k);
	dbg("object %#x method %#x is not emulated", h->object_id, h->method_id);
	return EPROTONOSUPPORT;
}
