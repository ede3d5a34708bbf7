/* What the test programs share: opening the device, connecting QPs. */
#ifndef SOFTMLX5_TESTS_RDMA_H
#define SOFTMLX5_TESTS_RDMA_H

#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* End the program when x does not hold. */
#define CHECK(x) do { \
	if (!(x)) { \
		fprintf(stderr, "%s: line %d: %s\n", __FILE__, __LINE__, #x); \
		exit(1); \
	} \
} while (0)

#define ACCESS_ALL (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | \
		    IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)

struct rdma {
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	uint16_t lid;           /* 0: RoCE */
};

/* Open the first device; ends the program when there is none. */
void rdma_open(struct rdma *r);
void rdma_close(struct rdma *r);

/* Connect two reliable QPs of this process to each other. */
void rdma_connect(struct rdma *r, struct ibv_qp *a, struct ibv_qp *b);

/*
 * Poll one completion of any status.  Gives up, ending the program, after a
 * time that only a hung device takes.
 */
void rdma_poll(struct ibv_cq *cq, struct ibv_wc *wc);

#endif
