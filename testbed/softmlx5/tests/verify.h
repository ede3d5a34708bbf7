/* Data integrity over the emulated device. */
#ifndef SOFTMLX5_TESTS_VERIFY_H
#define SOFTMLX5_TESTS_VERIFY_H

#include "rdma.h"

/* Two buffers of SIZE bytes, registered. */
#define SIZE (1 << 20)

struct buffers {
	unsigned char *src, *dst;
	struct ibv_mr *ms, *md;
};

/* Shared receive queues, their events, RNR. */
void verify_srq(struct rdma *r, struct ibv_cq *cq, struct buffers *b);

#endif
