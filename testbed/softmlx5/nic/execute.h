/* What the responder does with a request. */
#ifndef SOFTMLX5_EXECUTE_H
#define SOFTMLX5_EXECUTE_H

#include "nic.h"

/*
 * Execute a request that has arrived: memory is read and written, a receive
 * completed, w->syndrome set when it failed.  Returns false when it is to be
 * tried again, at w->t_arr.
 */
bool execute(struct qp *q, struct wr *w, ns_t now);

#endif
