/* The receiving side: receive queues, and messages delivered into them. */
#ifndef SOFTMLX5_RECV_H
#define SOFTMLX5_RECV_H

#include "nic.h"

/* Is a receive posted that a message to this QP could take? */
bool recv_posted(const struct qp *q);

/* What the QP holds posted is flushed: it went into the error state. */
void recv_flush(struct qp *q);

/* A message as it arrives. */
struct message {
	const struct wr *wr;    /* the request that sent it */
	const struct qp *from;
	const uint8_t *buf;     /* NULL: the receive is consumed, its memory not used */
	uint32_t len;           /* with the 40 bytes of GRH, where there are */
	uint8_t op;             /* MLX5_CQE_RESP_* */
	bool grh;
};

/*
 * Deliver a message into the next receive, which must be posted, and complete
 * it; false when the receive is too short or its memory is not accessible.
 */
bool recv_deliver(struct qp *q, const struct message *m);

#endif
