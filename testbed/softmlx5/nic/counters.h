/*
 * Port counters in sysfs, as the kernel shows them: ports/1/counters and
 * ports/1/hw_counters.
 */
#ifndef SOFTMLX5_COUNTERS_H
#define SOFTMLX5_COUNTERS_H

#include "nic.h"

/* The payload of an executed request: over the port and back into it. */
void count_message(uint32_t bytes);

/* The payload that was sent but reached nobody. */
void count_undelivered(uint32_t bytes);

/* Sent once more. */
void count_retransmission(uint32_t bytes);

/* A message found no receive, and is to be repeated. */
void count_rnr(void);

/* A lost message was noticed by the gap, or by the requester's timer. */
void count_sequence_error(void);
void count_timeout(void);

/* A message met congestion, of which its sender was notified: once a message. */
void count_congestion(void);

/* Create the files, all zero; DIR is that of the port. */
void counters_open(const char *dir);

/* Write what changed, ten times a second at most. */
void counters_tick(ns_t t);

/* Write what changed. */
void counters_flush(void);

#endif
