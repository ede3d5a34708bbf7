/* What the programs share: their options, and queue pairs that are connected. */
#ifndef ORACLE_JOB_H
#define ORACLE_JOB_H

#include "rdma.h"

/*
 * Options are KEY=VALUE. One that no call of these asks for is an error,
 * reported by options_done().
 */
void options(int argc, char **argv);
const char *option(const char *key, const char *otherwise);
uint64_t number(const char *key, uint64_t otherwise);
void options_done(void);

/* Say that traffic begins: "running" on stdout. */
void running(void);

/* Nanoseconds of CLOCK_MONOTONIC, the clock of the truth log. */
uint64_t now(void);

/* Compute for so many nanoseconds. */
void spin(uint64_t ns);

/* Sleep for so many. */
void sleep_ns(uint64_t ns);

/* A requester and its responder, both of this process. */
struct link {
	struct ibv_qp *qp, *peer;
	struct ibv_cq *cq, *peer_cq;	/* of qp; of peer */
	struct ibv_mr *mr;
	char *buf;			/* payload, then where it goes to */
	uint32_t size;
	uint32_t receives;		/* posted to peer, ever */
};

/*
 * enum ibv_qp_create_send_ops_flags of the queue pairs that link_open makes, for
 * programs that post by ibv_wr_*; 0: none.
 */
extern uint64_t link_send_ops;

/*
 * Connect a pair of queue pairs that hold depth requests of size bytes. cq is
 * used for qp if it is not NULL, else one is made, with events on ch if that is
 * not NULL.
 */
void link_open(struct rdma *r, struct link *l, struct ibv_cq *cq, struct ibv_comp_channel *ch,
	       uint32_t depth, uint32_t size);

/* A request of this link, not signalled; bytes 0 has no scatter entry. */
void link_request(struct link *l, struct ibv_send_wr *wr, struct ibv_sge *sge,
		  enum ibv_wr_opcode op, uint32_t bytes, uint64_t id);

/* Does this operation take a receive? */
bool takes_receive(enum ibv_wr_opcode op);

/* Post n receives to the peer, and take its completions. */
void peer_receive(struct link *l, uint32_t n);
void peer_drain(struct link *l);

enum ibv_wr_opcode opcode(const char *name);

#endif
