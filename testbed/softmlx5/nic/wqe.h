/* Work queue entries as libmlx5 writes them. */
#ifndef SOFTMLX5_WQE_H
#define SOFTMLX5_WQE_H

#include "nic.h"

/*
 * Decode the entry at the QP's consumer index into *w, which is zeroed but
 * for its data.  Returns its length in basic blocks, 0 when it makes no sense.
 * An opcode that is not emulated is decoded into a request that fails.
 */
unsigned wqe_decode(const struct qp *q, struct wr *w);

#endif
