/* Tables of the NIC's objects: finding and freeing them. */
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
#include "nic.h"
#include "qp.h"

struct ctx *ctxs[MAX_CTX];
int nctx;
struct qp *qps[MAX_OBJ];
struct cq *cqs[MAX_OBJ];
struct srq *srqs[MAX_OBJ];
struct mr *mrs[MAX_OBJ];
struct chan chans[MAX_CHAN];
struct uar uars[SM5_MAX_UAR];
struct qp *act_qp[MAX_OBJ];
int nact_qp;
struct cq *act_cq[MAX_OBJ];
int nact_cq;
int act_uar[SM5_MAX_UAR], nact_uar;
struct stats stats;

struct qp *qp_find(uint32_t qpn)
{
	return qpn >= QPN_BASE && qpn - QPN_BASE < MAX_OBJ ? qps[qpn - QPN_BASE] : NULL;
}

struct cq *cq_find(struct ctx *c, uint32_t cqn)
{
	struct cq *q = cqn >= CQN_BASE && cqn - CQN_BASE < MAX_OBJ ? cqs[cqn - CQN_BASE] : NULL;

	return q && q->ctx == c ? q : NULL;
}

struct srq *srq_find(struct ctx *c, uint32_t srqn)
{
	struct srq *s = srqn >= SRQN_BASE && srqn - SRQN_BASE < MAX_OBJ ?
			srqs[srqn - SRQN_BASE] : NULL;

	return s && s->ctx == c ? s : NULL;
}

int slot_find(void **tab, int n, int *hint)
{
	for (int i = 0; i < n; i++) {
		int k = (*hint + i) % n;

		if (!tab[k]) {
			*hint = k + 1;
			return k;
		}
	}
	return -1;
}

/* Take an item out of a dense list whose order does not matter. */
#define REMOVE(list, n, item) do { \
	for (int i_ = 0; i_ < (n); i_++) \
		if ((list)[i_] == (item)) { \
			(list)[i_] = (list)[--(n)]; \
			break; \
		} \
} while (0)

void qp_free(struct qp *q)
{
	REMOVE(act_qp, nact_qp, q);
	qp_drop(q);
	qps[q->qpn - QPN_BASE] = NULL;
	free(q);
}

void cq_free(struct cq *c)
{
	REMOVE(act_cq, nact_cq, c);
	cqs[c->cqn - CQN_BASE] = NULL;
	free(c);
}

void srq_free(struct srq *s)
{
	srqs[s->srqn - SRQN_BASE] = NULL;
	free(s);
}

void uar_free(int id)
{
	REMOVE(act_uar, nact_uar, id);
	uars[id].ctx = NULL;
}

void chan_free(struct chan *ch)
{
	close(ch->wfd);
	ch->wfd = -1;           /* a CQ may still name it */
	ch->ctx = NULL;
}

void ctx_free(struct ctx *c)
{
	for (int i = 0; i < MAX_OBJ; i++)
		if (qps[i] && qps[i]->ctx == c)
			qp_free(qps[i]);
	for (int i = 0; i < MAX_OBJ; i++) {
		if (cqs[i] && cqs[i]->ctx == c)
			cq_free(cqs[i]);
		if (srqs[i] && srqs[i]->ctx == c)
			srq_free(srqs[i]);
		if (mrs[i] && mrs[i]->ctx == c) {
			free(mrs[i]);
			mrs[i] = NULL;
		}
	}
	for (int i = 1; i < SM5_MAX_UAR; i++)
		if (uars[i].ctx == c)
			uar_free(i);
	for (int i = 0; i < MAX_CHAN; i++)
		if (chans[i].ctx == c)
			chan_free(&chans[i]);
	if (c->bar)
		munmap(c->bar, SM5_BAR_SIZE);
	if (c->async_w >= 0)
		close(c->async_w);
	close(c->sock);
	REMOVE(ctxs, nctx, c);
	free(c);
}
