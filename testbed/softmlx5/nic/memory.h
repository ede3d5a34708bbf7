/* The memory of the processes: checking keys, moving payload. */
#ifndef SOFTMLX5_MEMORY_H
#define SOFTMLX5_MEMORY_H

#include "nic.h"

/* Both return false when the process has no such memory (any more). */
bool mem_read(const struct ctx *c, uint64_t addr, void *dst, size_t len);
bool mem_write(const struct ctx *c, uint64_t addr, const void *src, size_t len);

/*
 * The address in the process for an access of LEN bytes at VA through KEY, or
 * 0 when the key does not allow it; need is of enum ibv_access_flags.
 */
uint64_t mr_map(const struct ctx *c, uint32_t key, uint64_t va, uint64_t len, unsigned need);

/* A buffer of N bytes for a message in transit; valid until the next call. */
uint8_t *bounce_get(size_t n);

/* Copy a request's payload from its segments; an error syndrome, or 0. */
int gather(const struct qp *q, const struct wr *w, uint8_t *dst);

/* Copy a response into the request's segments; an error syndrome, or 0. */
int scatter(const struct qp *q, const struct wr *w, const uint8_t *src, uint32_t len);

#endif
