/* Completion queues. */
#include <endian.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include "clock.h"
#include "cq.h"
#include "truth.h"

#define PI_MASK 0xffffff        /* producer and consumer indices have 24 bits */

static void check_overrun(struct cq *c)
{
	if (c->ignore_overrun || c->overrun ||
	    ((c->pi - be32toh(c->db[0])) & PI_MASK) < c->ncqe)
		return;
	c->overrun = true;
	fprintf(stderr, "softmlx5d: completion queue %u overrun\n", c->cqn);
}

/*
 * The stamp is a part of the entry, so it is taken before that becomes visible,
 * and taken again where the machine below ours ran something else meanwhile.
 * Right before the owner bit that shows only afterwards.
 */
#define STAMP_NS 200            /* what taking it takes, at most */
#define STAMP_TRIES 8           /* on a machine where it takes longer */
#define HELD_NS 1000

ns_t cq_push(struct cq *c, struct mlx5_cqe64 *e, uint8_t op, uint8_t fmt, bool solicited)
{
	size_t n = c->pi & (c->ncqe - 1);
	/* Of a 128 byte entry, the second half is what everybody reads. */
	uint8_t *dst = c->buf + n * c->cqe_size + (c->cqe_size - sizeof(*e));
	int tries = STAMP_TRIES;
	uint64_t last;
	ns_t t;

	check_overrun(c);
	e->op_own = op << 4 | fmt | !!(c->pi & c->ncqe);
	memcpy(&last, (char *)e + 56, 8);
	memcpy(dst, e, 56);
	do {
		t = now_ns();
		if (op < MLX5_CQE_REQ_ERR)      /* an error entry has its syndrome there */
			((struct mlx5_cqe64 *)dst)->timestamp = htobe64(clock_stamp(t));
	} while (now_ns() - t > STAMP_NS && --tries);
	while (now_ns() - t < c->stall)
		;
	c->stall = 0;
	/* The last 8 bytes hold the owner bit. */
	__atomic_store_n((uint64_t *)(dst + 56), last, __ATOMIC_RELEASE);
	/* The entry has left the store buffer before the clock is read again, and
	 * goes before the look at the arm word, as an application arms before its
	 * last look at the queue: one of the two sees. */
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
	c->held = now_ns() - t > HELD_NS;
	c->pi = (c->pi + 1) & PI_MASK;
	c->last_cqe = t;
	if (solicited) {
		c->any_sol = true;
		c->last_sol = c->pi;
	}
	stats.cqes++;
	return t;
}

/*
 * An entry is worth an event when it lies beyond the consumer index armed
 * with AND beyond what an earlier event already told of (the hardware keeps
 * that as the CQ context's last_notified_index): an application may arm
 * before it has polled the entry it was just notified of.
 */
static bool beyond(const struct cq *c, uint32_t pi, uint32_t ci)
{
	return ((pi - ci) & PI_MASK) - 1 < PI_MASK >> 1 &&
	       ((pi - c->notified) & PI_MASK) - 1 < PI_MASK >> 1;
}

/*
 * The arm word in the doorbell record is sn << 28 | solicited-only << 24 |
 * consumer index; libmlx5 takes a new sequence number after each event, so
 * one that already fired means not armed.
 */
void cq_check_arm(struct cq *c, ns_t now)
{
	uint32_t arm = be32toh(c->db[1]), ci = arm & PI_MASK;
	bool only_solicited = arm >> 24 & 1;
	int sn = arm >> 28 & 3;
	ns_t injected = 0;

	if (c->chan < 0 || arm == CQ_ARM_NONE || sn == c->fired_sn)
		return;
	if (only_solicited ? !c->any_sol || !beyond(c, c->last_sol, ci) :
			     !beyond(c, c->pi, ci))
		return;
	if (c->event_after) {
		if (now < c->event_after) {
			c->event_held = true;
			return;
		}
		injected = c->event_held ? c->event_fault : 0;
		c->event_after = 0;
		c->event_held = false;
	}
	c->fired_sn = sn;
	c->notified = c->pi;
	stats.events++;
	now = now_ns();
	if (write(chans[c->chan].wfd, &c->user_handle, 8) == 8)
		c->events++;
	truth_event(c, sn, now, injected);
}

void cq_delay_event(struct cq *c, ns_t t, ns_t late)
{
	c->event_after = t + late;
	c->event_fault = late;
	c->event_held = false;
}

int async_event(struct ctx *c, uint64_t user_handle, enum ibv_event_type type)
{
	struct ib_uverbs_async_event_desc e = { .element = user_handle, .event_type = type };

	return c->async_w >= 0 && write(c->async_w, &e, sizeof(e)) == sizeof(e);
}
