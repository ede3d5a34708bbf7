/* Completion queues: entries, events, asynchronous events. */
#ifndef SOFTMLX5_CQ_H
#define SOFTMLX5_CQ_H

#include "nic.h"

/*
 * Append an entry; op is MLX5_CQE_*, fmt MLX5_INLINE_SCATTER_32 or 0.
 * Returns the time it became visible, of which its timestamp field tells.
 */
ns_t cq_push(struct cq *c, struct mlx5_cqe64 *e, uint8_t op, uint8_t fmt, bool solicited);

/* Raise the event of an armed CQ that has something to tell. */
void cq_check_arm(struct cq *c, ns_t now);

/* Hold back the next event until LATE ns after T. */
void cq_delay_event(struct cq *c, ns_t t, ns_t late);

/* Returns how many were raised: 1, or 0 when nobody can hear it. */
int async_event(struct ctx *c, uint64_t user_handle, enum ibv_event_type type);

/* What creation leaves in the arm word; the library never writes it. */
#define CQ_ARM_NONE 0xffffffffu

#endif
