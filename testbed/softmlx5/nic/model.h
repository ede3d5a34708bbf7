/* The model of time on the wire, and the faults. */
#ifndef SOFTMLX5_MODEL_H
#define SOFTMLX5_MODEL_H

#include "nic.h"

/* Start the jitter's sequence again from SEED. */
void model_seed(void);

/* When a request just fetched arrives and completes, and which fault is its. */
void model_plan(struct qp *q, struct wr *w);

/*
 * A request is due at the peer.  Returns true when its fault strikes there
 * (SLOW_STAGE=rnr or retransmit): then it is due again later.
 */
bool model_strikes(struct qp *q, struct wr *w);

/* Move a request's arrival, and its completion with it, to T. */
void model_postpone(struct wr *w, ns_t t);

#endif
