/*
 * The device's own clock: what CQE timestamps, the core clock page and the
 * clock info page read.  By default it is CLOCK_MONOTONIC in nanoseconds.
 */
#ifndef SOFTMLX5_CLOCK_H
#define SOFTMLX5_CLOCK_H

#include "nic.h"

/* The clock's drift and step count from START. */
void clock_start(ns_t start);

/*
 * The reading at time T.  Free running: ticks of CLOCK_HZ since the clock's
 * zero, two's complement before it; real: seconds << 32 | nanoseconds.
 */
uint64_t clock_stamp(ns_t t);

/* Show time T in the pages of a context that libmlx5 maps. */
void clock_show(struct ctx *c, ns_t t);

/* The same for all contexts; the clock info page once a second only. */
void clock_tick(ns_t t);

#endif
