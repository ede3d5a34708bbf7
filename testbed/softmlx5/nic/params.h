/* The parameters of the device: KEY=VALUE, documented in README.md. */
#ifndef SOFTMLX5_PARAMS_H
#define SOFTMLX5_PARAMS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum jitter_kind { JITTER_NONE, JITTER_UNIFORM, JITTER_EXP };
enum slow_stage {
	STAGE_WIRE,             /* late on its way there */
	STAGE_CQE,              /* executed in time, completed late */
	STAGE_EVENT,            /* completed in time, only the event is late */
	STAGE_RNR,              /* told once that no receive is posted */
	STAGE_RETRANSMIT,       /* lost once */
	STAGE_STAMP,            /* stamped in time, its entry is written late */
	STAGE_CONGESTION,       /* held back, as notified of congestion */
};
enum poll_mode { POLL_SLEEP, POLL_SPIN };
enum link_kind { LINK_IB, LINK_ETH };
enum clock_format { CLOCK_FREE, CLOCK_REAL };

/* SLOW_OP=any; the others are the opcode of the WQE. */
#define SLOW_ANY (-1)

/* Times are nanoseconds unless the name says otherwise. */
struct params {
	int64_t lat;            /* one way, first byte */
	int64_t ack;            /* way back of the acknowledgement */
	int64_t byte_ps;        /* picoseconds on the wire per byte */
	enum jitter_kind jitter;
	int64_t jitter_ns;      /* width or mean */

	int64_t slow_every;     /* every Nth request of a QP is slow; 0: none */
	int64_t slow_ns;        /* by how much */
	int64_t slow_stage;     /* enum slow_stage */
	int64_t slow_op;        /* opcode it is limited to, or SLOW_ANY */
	int64_t burst;          /* so many in a row are slow */
	int64_t err_every;      /* every Nth request fails; 0: none */
	int64_t rnr;            /* pause before a message without receive is repeated */

	int64_t poll;           /* enum poll_mode */
	int64_t poll_ns;        /* sleep between looks at the doorbells */
	int64_t spin_ns;        /* spin, rather than sleep, towards a deadline */
	int64_t linger_ns;      /* keep spinning so long after the last work */
	int64_t busy_ns;        /* but leave the CPU for a moment this often */
	int64_t cpu;            /* -1: not bound */
	int64_t rt;             /* SCHED_FIFO priority; 0: none */

	int64_t clock_offset;   /* device clock minus CLOCK_MONOTONIC */
	int64_t clock_drift;    /* parts per billion */
	int64_t clock_hz;       /* of the free-running counter */
	int64_t clock_format;   /* enum clock_format */
	int64_t clock_step_at;  /* after the start */
	int64_t clock_step;     /* how far the clock jumps then */

	int64_t link;           /* enum link_kind */
	int64_t scatter;        /* small received payload travels in the CQE */
	int64_t log_mb;         /* the truth log ends at this size */
	int64_t seed;           /* of the jitter; never 0 */
};

extern struct params param;

enum param_phase { AT_START, WHILE_RUNNING };

/*
 * Set one parameter of *p.  Returns NULL, or what is wrong with it: a
 * sentence that names the key (in a static buffer).
 */
const char *param_set(struct params *p, const char *key, const char *value,
		      enum param_phase when);

/* The same for "KEY=VALUE". */
const char *param_set_pair(struct params *p, const char *pair, enum param_phase when);

/*
 * What *p holds, then SOFTMLX5_KEY of the environment, then the file
 * DIR/params (none when dir is NULL): the last one wins.
 * Returns NULL or what is wrong; *p is changed only when nothing is.
 */
const char *params_load(struct params *p, const char *dir, enum param_phase when);

/* All of them as KEY=VALUE lines. */
void params_print(FILE *f, const struct params *p);

#endif
