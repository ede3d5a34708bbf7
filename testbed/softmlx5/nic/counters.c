/* Port counters in sysfs. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "counters.h"

#define PERIOD (SEC / 10)
#define MTU    4096

/*
 * Of IB's, data counts payload in units of 4 bytes (headers are left out
 * here).  The others are what mlx5_ib shows (drivers/infiniband/hw/mlx5/
 * counters.c in Linux), here for the whole port as there.
 */
enum counter {
	XMIT_DATA, RCV_DATA, XMIT_PACKETS, RCV_PACKETS,
	RNR_NAK_RETRY, OUT_OF_BUFFER, ACK_TIMEOUT, PACKET_SEQ, OUT_OF_SEQUENCE,
	SYMBOL_ERROR, RCV_ERRORS, XMIT_DISCARDS, XMIT_WAIT, LINK_DOWNED,
	DUPLICATE, IMPLIED_NAK, ADP_RETRANS, SLOW_RESTART, ECN_MARKED, CNP_SENT, CNP_HANDLED,
	NR_COUNTERS,
};

static struct {
	const char *path;
	uint64_t value, shown;
	int fd;
} counters[NR_COUNTERS] = {
	[XMIT_DATA] = { .path = "counters/port_xmit_data" },
	[RCV_DATA] = { .path = "counters/port_rcv_data" },
	[XMIT_PACKETS] = { .path = "counters/port_xmit_packets" },
	[RCV_PACKETS] = { .path = "counters/port_rcv_packets" },
	[RNR_NAK_RETRY] = { .path = "hw_counters/rnr_nak_retry_err" },
	[OUT_OF_BUFFER] = { .path = "hw_counters/out_of_buffer" },
	[ACK_TIMEOUT] = { .path = "hw_counters/local_ack_timeout_err" },
	[PACKET_SEQ] = { .path = "hw_counters/packet_seq_err" },
	[OUT_OF_SEQUENCE] = { .path = "hw_counters/out_of_sequence" },
	/* What never happens here, but is looked for. */
	[SYMBOL_ERROR] = { .path = "counters/symbol_error" },
	[RCV_ERRORS] = { .path = "counters/port_rcv_errors" },
	[XMIT_DISCARDS] = { .path = "counters/port_xmit_discards" },
	[XMIT_WAIT] = { .path = "counters/port_xmit_wait" },
	[LINK_DOWNED] = { .path = "counters/link_downed" },
	[DUPLICATE] = { .path = "hw_counters/duplicate_request" },
	[IMPLIED_NAK] = { .path = "hw_counters/implied_nak_seq_err" },
	[ADP_RETRANS] = { .path = "hw_counters/roce_adp_retrans" },
	[SLOW_RESTART] = { .path = "hw_counters/roce_slow_restart" },
	[ECN_MARKED] = { .path = "hw_counters/np_ecn_marked_roce_packets" },
	[CNP_SENT] = { .path = "hw_counters/np_cnp_sent" },
	[CNP_HANDLED] = { .path = "hw_counters/rp_cnp_handled" },
};

/* Bytes, of which the files tell the quarter. */
static uint64_t xmit_bytes, rcv_bytes;
static bool changed;

static uint64_t packets(uint32_t bytes)
{
	return bytes ? (bytes + MTU - 1) / MTU : 1;
}

static void bump(enum counter k, uint64_t n)
{
	counters[k].value += n;
	changed = true;
}

static void transmitted(uint32_t bytes)
{
	xmit_bytes += bytes;
	counters[XMIT_DATA].value = xmit_bytes / 4;
	bump(XMIT_PACKETS, packets(bytes));
}

void count_message(uint32_t bytes)
{
	transmitted(bytes);
	rcv_bytes += bytes;
	counters[RCV_DATA].value = rcv_bytes / 4;
	bump(RCV_PACKETS, packets(bytes));
}

void count_undelivered(uint32_t bytes)
{
	transmitted(bytes);
}

void count_retransmission(uint32_t bytes)
{
	transmitted(bytes);
}

void count_rnr(void)
{
	bump(RNR_NAK_RETRY, 1);
	bump(OUT_OF_BUFFER, 1);
}

void count_sequence_error(void)
{
	bump(PACKET_SEQ, 1);
	bump(OUT_OF_SEQUENCE, 1);
}

void count_congestion(void)
{
	bump(ECN_MARKED, 1);
	bump(CNP_SENT, 1);
	bump(CNP_HANDLED, 1);
}

void count_timeout(void)
{
	bump(ACK_TIMEOUT, 1);
}

static void show(enum counter k)
{
	char s[24];
	int n = snprintf(s, sizeof(s), "%lu\n", counters[k].value);

	/* In place: a counter only grows, so no old digits remain. */
	if (pwrite(counters[k].fd, s, n, 0) == n)
		counters[k].shown = counters[k].value;
}

void counters_open(const char *dir)
{
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s/counters", dir);
	mkdir(path, 0755);
	snprintf(path, sizeof(path), "%s/hw_counters", dir);
	mkdir(path, 0755);
	for (int k = 0; k < NR_COUNTERS; k++) {
		snprintf(path, sizeof(path), "%s/%s", dir, counters[k].path);
		counters[k].fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
		if (counters[k].fd < 0)
			fprintf(stderr, "softmlx5d: %s: %s\n", path, strerror(errno));
		show(k);
	}
}

void counters_flush(void)
{
	for (int k = 0; changed && k < NR_COUNTERS; k++)
		if (counters[k].value != counters[k].shown)
			show(k);
	changed = false;
}

void counters_tick(ns_t t)
{
	static ns_t last;

	if (!changed || t - last < PERIOD)
		return;
	counters_flush();
	last = t;
}
