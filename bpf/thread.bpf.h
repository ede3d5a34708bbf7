/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What is remembered of a thread of a target between two probes, in task
 * storage: a uprobe program can be preempted, so nothing per CPU will do.
 */
#ifndef RDMATRACE_THREAD_BPF_H
#define RDMATRACE_THREAD_BPF_H

#define BUILD_MAX 64	/* WRs of one wr_start .. wr_complete */

/* A posting call of a list (post_send, post_recv, post_srq_recv). */
struct post_state {
	__u64 begin;	/* 0: not inside */
	__u64 qp;
	__u64 list;
	__u64 bad_wr;	/* where the function will say which WR was refused */
	__u32 call;
	__u32 count;
};

/*
 * A record of WRs while it is made: only then is it known how many it has, and
 * what is reserved in a ring is of a size that the verifier knows.
 */
struct wr_chunk {
	struct wr_record head;
	struct wr_entry wr[WR_CHUNK];
};

/* A bracket's WQEs while they are read, see wqe.bpf.h. */
struct wqe_walk {
	__u64 ring;
	__u64 wrid;	/* the ids of its WRs, by block */
	__u64 last_id;
	__u32 blocks;	/* in the ring, a power of two */
	__u32 at;	/* index of the next WQE */
	__u32 end;	/* index past the last */
	__u32 wrs;	/* that the library counted */
	__u32 qp_num;
	__s32 transport;	/* units of 16 bytes behind the control segment, -1: unknown */
};

/* wr_start .. wr_complete or wr_abort. */
struct build_state {
	__u64 begin;	/* 0: not inside */
	__u64 qp;
	__u32 count;
	__u32 traps;
	__u32 call;	/* set at wr_complete */
	__u32 started;	/* a wr_start was seen */
	__u8 slot;	/* of the library, + 1 */
	__u8 mode;	/* enum build_mode as it was at wr_start */
	__u8 verdict;	/* enum build_verdict, if wr_complete posts it */
	__u8 pad[5];
	__u32 first;	/* index of its first WQE, while that is learned */
	__u32 are_begin;	/* bits of words, see build_look */
	__u32 are_count;
	__u32 umrs;	/* calls that the WQE alone does not tell: */
	__u32 umr;	/* of which read */
	__u32 pad2;
	__u64 invalidates;	/* a bit for each that is local_inv, else bind_mw */
	struct wqe_walk walk;
	struct wr_entry wr[BUILD_MAX];
};

struct poll_state {
	__u64 begin;	/* 0: not inside */
	__u64 cq;
	__u64 wc;
	__u64 sp;
	__s32 want;
	__u32 hits;	/* of the site that is tried */
	__u8 slot;	/* of the poll function, + 1 */
	__u8 mode;	/* enum poll_mode as it was at the entry */
	__u8 trial;	/* it is part of a trial */
	__u8 ex;	/* its completion is the current one of an extended CQ */
	__u8 pad[4];
};

/* Arguments of a control function, until it returns. */
struct control_state {
	__u64 object;	/* 0: not inside */
	__u64 attr;
	__u64 mask;
};

#define LOOKS 8	/* queues that a thread takes completions from, a power of two */

#define SITE_CALLERS 8
#define SITE_WORDS 64	/* a power of two */

/* A way that leads to a site: which return addresses lie above its stack pointer, and where. */
struct site_way {
	__u64 id;	/* of its stack */
	__u64 caller[SITE_CALLERS];
	__u8 at[SITE_CALLERS];	/* in words */
	__u32 from;	/* the first word, in bytes from the stack pointer */
	__u16 words;
	__u16 callers;
};

struct site_cache {
	__u64 ip;
	__u64 sp;
	__u64 fp;
	__u32 round;
	__u32 pad;
	struct site_way way;	/* without an id: nothing is cached */
	__u64 word[SITE_WORDS];	/* of the stack, while they are compared */
};

struct thread {
	__u32 calls;		/* posting calls, counted */
	__u32 waiting;		/* CPU + 1 on whose run queue it waits, 0: it doesn't */
	__u64 waiter;		/* its task_struct, if it is among those of that CPU; else 0 */
	__u32 waiter_slot;	/* there */
	__u32 throttled;	/* by its quota, as it was told last where it is not among those */
	__u32 cq_vector;	/* comp_vector + 1 of the CQ being created, 0: unknown */
	__u16 looks_next;
	__u16 uses_verbs;	/* it was seen to post or poll */
	__u64 looks[LOOKS];	/* queues to look at, see look.bpf.h; 0: none */
	__u64 look_latest;	/* the one that it took a completion from last */
	__u64 look_came;	/* a completion came while it was looked for one */
	__u64 look_longer;	/* it was looked for longer */
	__u64 posted;		/* begin of its latest call that posts sends */
	struct post_state post;
	struct wr_chunk chunk;	/* of the call that posts */
	struct poll_state poll;
	struct control_state create;
	struct control_state modify;
	struct site_cache post_site;
	struct site_cache thread_site;	/* where it was switched out or sampled last */
	struct build_state build;
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct thread);
} threads SEC(".maps");

#endif
