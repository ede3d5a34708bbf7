/* Queue pairs: the way of a request from the doorbell to its completion. */
#ifndef SOFTMLX5_QP_H
#define SOFTMLX5_QP_H

#include "nic.h"

void fifo_init(struct fifo *f);

/* Fetch what the doorbell record says is posted. */
void qp_doorbell(struct qp *q);

/*
 * Run what is due; sets *any when there was something.  Returns when the QP
 * next needs a look, 0: not by itself.
 */
ns_t qp_run(struct qp *q, ns_t now, bool *any);

/* Into the error state: what is posted is flushed. */
void qp_error(struct qp *q);

/* Forget the requests in flight. */
void qp_drop(struct qp *q);

/* Back to the state after creation. */
void qp_reset(struct qp *q);

#endif
