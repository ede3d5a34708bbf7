/*
 * The truth log: what really became of every request, for a profiler's
 * findings to be compared with.  README.md documents its columns.
 */
#ifndef SOFTMLX5_TRUTH_H
#define SOFTMLX5_TRUTH_H

#include "nic.h"

/* Create PATH; returns false, with errno, when that cannot be. */
bool truth_open(const char *path);

/* A send request ended; cqe_index is -1 when it has no completion entry. */
void truth_send(const struct qp *q, const struct wr *w, ns_t t_cqe, int64_t cqe_index);

/* A receive completed; t_arr is 0 and error true when it was only flushed. */
void truth_recv(const struct qp *q, unsigned idx, uint32_t bytes, bool error, ns_t t_arr,
		ns_t t_cqe, uint32_t cqe_index);

/* A completion event was raised, with the arm sequence number it answers. */
void truth_event(const struct cq *c, int sn, ns_t t, ns_t injected);

/* Hand what is buffered to the kernel. */
void truth_flush(void);

#endif
