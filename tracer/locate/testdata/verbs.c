// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
#include "fixture.h"

#define SET(to, name) do { if (ops->name) { priv->ops.name = ops->name; (to)->name = ops->name; } } while (0)
#define SET_PRIVATE(name) do { if (ops->name) priv->ops.name = ops->name; } while (0)

void verbs_set_ops(struct verbs_context *vctx, const struct verbs_context_ops *ops)
{
	struct private *priv = vctx->priv;
	struct ibv_context *ctx = &vctx->context;

	SET(vctx, advise_mr);
	SET(&ctx->ops, alloc_mw);
	SET_PRIVATE(alloc_td);
	SET(&ctx->ops, bind_mw);
	SET_PRIVATE(create_qp);
	SET(vctx, create_qp_ex);
	SET(&ctx->ops, dealloc_mw);
	SET_PRIVATE(dealloc_td);
	SET_PRIVATE(modify_qp);
	SET(vctx, open_qp);
	SET(&ctx->ops, poll_cq);
	SET(&ctx->ops, post_recv);
	SET(&ctx->ops, post_send);
	SET(vctx, post_srq_ops);
	SET(&ctx->ops, post_srq_recv);
	SET_PRIVATE(query_qp);
	SET(&ctx->ops, req_notify_cq);
	SET_PRIVATE(resize_cq);
}

/* The old and the new version of one name, as 33 names of libibverbs are. */
int open_old(void *x) { return x ? 1 : 2; }
int open_new(void *x) { return x ? 3 : 4; }
__asm__(".symver open_old, ibv_open_device@IBVERBS_1.0");
__asm__(".symver open_new, ibv_open_device@@IBVERBS_1.1");

int ibv_cmd_req_notify_cq(void *cq, int solicited) { return cq ? solicited : 5; }
