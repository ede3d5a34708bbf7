/*
 * The objects of the emulated NIC.  One thread owns them all: there is no
 * locking.  Queues, doorbell records and UAR pages are shared memory (see
 * proto.h); message payload is reached with process_vm_readv/writev.
 */
#ifndef SOFTMLX5_NIC_H
#define SOFTMLX5_NIC_H

#include <stdbool.h>
#include <stdint.h>
#include <stddef.h>
#include <sys/types.h>
#include <time.h>
#include <infiniband/verbs.h>
#include <infiniband/mlx5dv.h>
#include "../proto.h"
#include "params.h"

/* CLOCK_MONOTONIC, the clock of bpf_ktime_get_ns() too. */
typedef uint64_t ns_t;

#define SEC 1000000000ull

static inline ns_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * SEC + t.tv_nsec;
}

/* ds, a WQE's length in segments of 16 bytes, has 6 bits. */
#define WQE_MAX_SEG   63
#define WQE_BB        64        /* basic block: what a WQE index counts */

/* A piece of a request's local data. */
struct seg {
	uint64_t addr;          /* in the process; when inl: in the request's inl[] */
	uint32_t len;
	uint32_t lkey;
	bool inl;               /* the data was in the WQE itself */
};

/* A send request in flight. */
struct wr {
	struct wr *next;

	/* What the WQE says. */
	uint16_t idx;           /* index of its first basic block */
	uint8_t opcode;         /* MLX5_OPCODE_* */
	uint8_t nseg;
	bool signaled, solicited;
	uint32_t imm;           /* big endian */
	uint32_t bytes;         /* of payload */
	uint32_t inl_len;       /* how much of it was inline */
	uint32_t dqpn;          /* the peer's QP number */
	uint32_t rkey;
	uint64_t raddr;
	uint64_t swap_add, compare;
	uint32_t batch;         /* its place among the requests of one doorbell */

	/* What is to become of it. */
	bool slow;              /* it is to meet a fault */
	bool struck;            /* it met it: STAGE_RNR and STAGE_RETRANSMIT */
	enum slow_stage stage;  /* where */
	ns_t fault;             /* and how long it costs */
	uint8_t syndrome;       /* nonzero: completes with this error */
	uint32_t rnr;           /* how often no receive was posted */
	ns_t t_db;              /* doorbell seen */
	ns_t t_wire;            /* first byte on the wire */
	ns_t t_arr;             /* due at the peer */
	ns_t t_exec;            /* executed at the peer */
	ns_t t_cqe_due;
	ns_t injected;          /* jitter and fault */

	uint8_t *resp;          /* RDMA READ or atomic: data on its way back */
	struct seg seg[WQE_MAX_SEG];
	uint8_t inl[WQE_MAX_SEG * 16];
};

/* Requests in the order of their posts; tail is where the next link goes. */
struct fifo {
	struct wr *head, **tail;
};

/* An open device context of a process. */
struct ctx {
	int sock;
	pid_t pid;
	int async_w;            /* asynchronous events go here; -1: nowhere */
	uint8_t *bar;           /* the memfd; NULL before SM5_HELLO */
};

/* A completion channel: the write end of a pipe. */
struct chan {
	struct ctx *ctx;        /* NULL: this place is free */
	int wfd;
};

struct cq {
	struct ctx *ctx;
	uint32_t cqn;
	uint32_t ncqe, cqe_size;
	uint8_t *buf;
	volatile uint32_t *db;  /* [0] consumer index, [1] arm */
	int chan;               /* index in chans[], -1: none */
	uint64_t user_handle;
	bool ignore_overrun;

	uint32_t pi;            /* producer index, 24 bits */
	uint32_t last_sol;      /* the producer index behind the last solicited entry */
	bool any_sol;           /* there was one */
	bool overrun;           /* was reported */
	uint32_t notified;      /* producer index at the last event */
	int fired_sn;           /* arm sequence number of the last event */
	uint32_t events;        /* raised in all */
	ns_t event_after;       /* the next event is held back until then; 0: is not */
	ns_t event_fault;       /* because of an injected delay so long */
	bool event_held;        /* it did hold one back */
	ns_t stall;             /* the next entry is written so long after its stamp */
	ns_t last_cqe;
	bool held;              /* it became visible over HELD_NS after its stamp */
};

/*
 * A shared receive queue: a list of entries, linked by the application in the
 * order of its posts; the doorbell record counts the posts.
 */
struct srq {
	struct ctx *ctx;
	uint32_t srqn, cnt, shift;
	uint8_t *buf;
	volatile uint32_t *db;
	uint64_t user_handle;
	uint16_t head;          /* the next entry to take */
	uint16_t taken;         /* how many were */
	uint32_t limit;         /* raise an event when fewer are left; 0: none */
	uint32_t events;
};

struct qp {
	struct ctx *ctx;
	uint32_t qpn, uidx, uar, pd;
	uint32_t type;          /* enum ibv_qp_type */
	uint32_t sq_cnt;        /* basic blocks */
	uint32_t rq_cnt, rq_shift;
	uint8_t *rq, *sq;
	volatile uint32_t *db;  /* [0] receive, [1] send: producer indices */
	struct cq *scq, *rcq;
	struct srq *srq;        /* receives come from there, not from rq */
	uint64_t user_handle;
	struct ib_uverbs_modify_qp attr;
	struct ib_uverbs_qp_cap cap;
	bool sig_all, scatter_cqe;

	uint8_t state;          /* enum ibv_qp_state */
	bool last_wqe;          /* IBV_EVENT_QP_LAST_WQE_REACHED was raised */
	uint32_t events;
	uint16_t sq_ci, rq_ci;  /* consumer indices */
	struct fifo wire;       /* requests on their way to the peer */
	struct fifo ack;        /* and those executed, not completed */
	ns_t last_arr, last_cqe;        /* of a request due: order is kept */
	ns_t stale_since;       /* the doorbell record is ahead since; 0: is not */
	uint64_t count;         /* requests fetched */
	uint64_t slow_count;    /* those SLOW_EVERY counts */
};

struct mr {
	struct ctx *ctx;
	uint64_t start, len;
	uint64_t va;            /* the address by which requests name start */
	uint32_t access, key, pd;
};

struct uar {
	struct ctx *ctx;        /* NULL: this place is free */
	volatile uint64_t *page;
};

#define MAX_CTX   256
#define MAX_OBJ   65536         /* QPs, CQs, SRQs, memory regions, each */
#define MAX_CHAN  1024

/* An object's number is its place in the table and this. */
#define QPN_BASE  0x100
#define SRQN_BASE 0x200
#define CQN_BASE  0x400

/* objects.c: by number, NULL where there is none. */
extern struct ctx *ctxs[MAX_CTX];
extern int nctx;
extern struct qp *qps[MAX_OBJ];
extern struct cq *cqs[MAX_OBJ];
extern struct srq *srqs[MAX_OBJ];
extern struct mr *mrs[MAX_OBJ];
extern struct chan chans[MAX_CHAN];
extern struct uar uars[SM5_MAX_UAR];

/* Dense lists of what the engine has to look at on each round. */
extern struct qp *act_qp[MAX_OBJ];
extern int nact_qp;
extern struct cq *act_cq[MAX_OBJ];
extern int nact_cq;
extern int act_uar[SM5_MAX_UAR], nact_uar;

struct qp *qp_find(uint32_t qpn);
struct cq *cq_find(struct ctx *c, uint32_t cqn);
struct srq *srq_find(struct ctx *c, uint32_t srqn);

/* A free place of the table, not one freed just now; -1: none. */
int slot_find(void **tab, int n, int *hint);

void qp_free(struct qp *q);
void cq_free(struct cq *c);
void srq_free(struct srq *s);
void uar_free(int id);
void chan_free(struct chan *ch);

/* Free a context with all it owns. */
void ctx_free(struct ctx *c);

/* Totals, printed at the end. */
struct stats {
	uint64_t doorbells, wrs, bytes, cqes, events, rnr;
	uint64_t missed;        /* doorbell record moved, nothing was rung */
	uint64_t bf_lost;       /* rings that named no QP of their context */
};
extern struct stats stats;

#endif
