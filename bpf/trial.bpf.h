/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * How a poll function is observed.  At first by its entry and its return. Then
 * the path on which it consumes a completion is tried: everything that is seen
 * at the path's sites goes to user space, with the poll's arguments and result,
 * until user space knows where queue and completion are found there.  From
 * then on the sites alone report completions, and empty polls cost nothing.
 */
#ifndef RDMATRACE_TRIAL_BPF_H
#define RDMATRACE_TRIAL_BPF_H

#define POLL_SLOTS 128	/* poll functions, each of one process */
#define TRIAL_HITS 32	/* hits recorded of one poll */

enum poll_mode {
	POLL_RETURN,	/* the return reports completions */
	POLL_TRY,	/* it does, and the sites are tried */
	POLL_SITE,	/* the sites report them */
	POLL_LEAVE,	/* the sites report those of polls that began before, the return those of others */
};

/* Written by user space only. */
struct poll_slot {
	__u32 mode;
	__u32 trials;		/* polls that may be recorded, since the start */
	__u32 cq_at;		/* index into the words of a trial_hit_record */
	__s32 cq_offset;
	__u32 wc_at;
	__s32 wc_offset;
	__u32 alone;		/* no return reports any more: a completion that passes no site is missed */
};

volatile struct poll_slot poll_slots[POLL_SLOTS];
/* What is known of a poll function. */
#define SEEN_CALLED	0x1
#define SEEN_WRITTEN	0x2	/* of a queue whose entries the kernel was seen to write */

/*
 * Written here: SEEN_*; the polls recorded; completions taken
 * at its sites, hits that were none, and completions whose CQE could not be read;
 * completions that passed no site, by the index at the next that did; looks at the
 * queues that it reports, see look.bpf.h, and those that saw the index beyond what
 * had passed a site.
 */
__u32 poll_seen[POLL_SLOTS];
__u32 poll_trials[POLL_SLOTS];
__u32 poll_taken[POLL_SLOTS];
__u32 poll_unfit[POLL_SLOTS];
__u32 poll_timeless[POLL_SLOTS];
__u32 poll_missed[POLL_SLOTS];
__u32 poll_looks[POLL_SLOTS];
__u32 poll_behind[POLL_SLOTS];

static __always_inline __u32 slot_of(struct pt_regs *ctx)
{
	return (bpf_get_attach_cookie(ctx) >> SLOT_SHIFT) & 0xff;
}

/* number is the slot's + 1. */
static __always_inline volatile struct poll_slot *slot_at(__u32 number)
{
	__u32 i = number - 1;

	if (i >= POLL_SLOTS)
		return NULL;
	barrier_var(i);
	return &poll_slots[i & (POLL_SLOTS - 1)];
}

/* Notes at a poll's entry how it is to be observed, for all of the poll. */
static __always_inline void poll_mode_of(struct pt_regs *ctx, struct poll_state *p)
{
	__u32 number = slot_of(ctx), i = (number - 1) & (POLL_SLOTS - 1);
	volatile struct poll_slot *slot = slot_at(number);

	p->mode = POLL_RETURN;
	p->trial = 0;
	p->hits = 0;
	p->slot = number;
	if (!slot)
		return;
	if (!poll_seen[i])
		poll_seen[i] = SEEN_CALLED;
	p->mode = slot->mode == POLL_LEAVE ? POLL_RETURN : slot->mode;
	p->trial = p->mode == POLL_TRY && poll_trials[i] < slot->trials;
}

static __always_inline void poll_written(__u32 number)
{
	__u32 i = (number - 1) & (POLL_SLOTS - 1);

	if (number && !(poll_seen[i] & SEEN_WRITTEN))
		poll_seen[i] = SEEN_CALLED | SEEN_WRITTEN;
}

/* The consumer's index of a CQ, and which of its bits count. */
static __always_inline bool trial_consumed(struct pt_regs *ctx, __u64 cq, __u32 *consumed, __u32 *mask)
{
	struct entry_ring ring;

	*mask = ~0;
	if (cq_consumed(cq_layout(ctx), cq, consumed))
		return true;
	if (!entry_ring_read(cq_state_of(cq), &ring))
		return false;
	*consumed = ring.consumed;
	*mask = ring.mask;
	return true;
}

/* What an extended CQ says of its current completion; 0 of others. */
static __always_inline void trial_current(struct poll_state *p, __u64 *wr_id, __u32 *status)
{
	struct verbs_cq_ex_status cur = {};

	if (p->ex && bpf_probe_read_user(&cur, sizeof(cur), (void *)(p->cq + VERBS_CQ_EX_STATUS)))
		count(COUNT_WC_UNREADABLE);
	*wr_id = verbs_cq_ex_wr_id(&cur);
	*status = cur.status;
}

/* A poll that is tried returned n. */
static __always_inline void trial_poll(struct pt_regs *ctx, struct poll_state *p, __s32 n)
{
	struct trial_poll_record *rec;
	__u64 now;
	struct out o;

	if (n <= 0 && !p->hits)
		return;
	__sync_fetch_and_add(&poll_trials[(p->slot - 1) & (POLL_SLOTS - 1)], 1);
	now = bpf_ktime_get_ns();
	out_open(&o);
	rec = out_reserve(&o, sizeof(*rec), RECORD_TRIAL_POLL, now);
	if (!rec)
		return;
	header_fill(&rec->h, &o, RECORD_TRIAL_POLL, now, 0);
	rec->begin = p->begin;
	rec->cq = p->cq;
	rec->wc = p->wc;
	rec->sp = p->sp;
	rec->want = p->want;
	rec->got = n;
	rec->slot = p->slot - 1;
	rec->hits = p->hits;
	rec->consumed = 0;
	rec->consumed_known = trial_consumed(ctx, p->cq, &rec->consumed, &rec->consumed_mask);
	trial_current(p, &rec->wr_id, &rec->status);
	out_submit(&o, rec);
}

#if defined(__TARGET_ARCH_x86)
#define TRIAL_EACH_REGISTER(R) \
	R(0, ax) R(1, cx) R(2, dx) R(3, bx) R(4, sp) R(5, bp) R(6, si) R(7, di) \
	R(8, r8) R(9, r9) R(10, r10) R(11, r11) R(12, r12) R(13, r13) R(14, r14) R(15, r15)
#else
#define TRIAL_EACH_REGISTER(R) \
	R(0, regs[0]) R(1, regs[1]) R(2, regs[2]) R(3, regs[3]) R(4, regs[4]) R(5, regs[5]) R(6, regs[6]) R(7, regs[7]) \
	R(8, regs[8]) R(9, regs[9]) R(10, regs[10]) R(11, regs[11]) R(12, regs[12]) R(13, regs[13]) R(14, regs[14]) \
	R(15, regs[15]) R(16, regs[16]) R(17, regs[17]) R(18, regs[18]) R(19, regs[19]) R(20, regs[20]) R(21, regs[21]) \
	R(22, regs[22]) R(23, regs[23]) R(24, regs[24]) R(25, regs[25]) R(26, regs[26]) R(27, regs[27]) R(28, regs[28]) \
	R(29, regs[29]) R(30, regs[30]) R(31, sp)
#endif

static __always_inline void trial_hit(struct pt_regs *ctx, struct poll_state *p)
{
	__u32 index = p->hits++, mask;
	struct trial_hit_record *rec;
	__u64 now;
	struct out o;

	if (index >= TRIAL_HITS)
		return;
	now = bpf_ktime_get_ns();
	out_open(&o);
	rec = out_reserve(&o, sizeof(*rec), RECORD_TRIAL_HIT, now);
	if (!rec)
		return;
	__builtin_memset(rec, 0, sizeof(*rec));
	header_fill(&rec->h, &o, RECORD_TRIAL_HIT, now, 0);
	rec->begin = p->begin;
	rec->slot = p->slot - 1;
	rec->index = index;
	rec->consumed_known = trial_consumed(ctx, p->cq, &rec->consumed, &mask);
	trial_current(p, &rec->wr_id, &rec->status);
#define TRIAL_COPY(i, reg) rec->registers[i] = __PT_REGS_CAST(ctx)->reg;
	TRIAL_EACH_REGISTER(TRIAL_COPY)
	/* Where these fail the words stay 0: nothing is learned from them. */
	bpf_probe_read_user(rec->stack, sizeof(rec->stack), (void *)PT_REGS_SP(ctx));
	bpf_probe_read_user(rec->frame, sizeof(rec->frame), (void *)(PT_REGS_FP(ctx) - sizeof(rec->frame)));
	out_submit(&o, rec);
}

/* The word at index at of a pollpath.Snapshot: registers, the stack upwards, and downwards below the frame pointer. */
static __always_inline bool word_at(struct pt_regs *ctx, __u32 at, __u64 *word)
{
	__u64 address;

	switch (at) {
	/* The comment differs for each, else the compiler makes one load of all, at an offset that the verifier rejects. */
#define TRIAL_READ(i, reg) \
	case i: { \
		__u64 value = __PT_REGS_CAST(ctx)->reg; \
		asm volatile("/* " #reg " */" : "+r"(value)); \
		*word = value; \
		return true; \
	}
	TRIAL_EACH_REGISTER(TRIAL_READ)
	}
	if (at < TRIAL_REGISTERS)
		return false;
	at -= TRIAL_REGISTERS;
	if (at < TRIAL_STACK)
		address = PT_REGS_SP(ctx) + 8 * at;
	else
		address = PT_REGS_FP(ctx) - 8 * (at - TRIAL_STACK + 1);
	return !bpf_probe_read_user(word, sizeof(*word), (void *)address);
}

/* The slot that polls_found counts, + 1. */
__u32 pending_slot;
/* Threads inside a poll whose return has yet to report, and whose sites have. */
__u64 polls_pending;
__u64 polls_at_sites;

/* The poll of the slot that the task is in, as far as its return was not seen. */
static __always_inline struct poll_state *pending_poll(struct task_struct *task)
{
	struct thread *t = task ? bpf_task_storage_get(&threads, task, NULL, 0) : NULL;

	return t && t->poll.begin && t->poll.slot == pending_slot ? &t->poll : NULL;
}

SEC("iter/task")
int polls_found(struct bpf_iter__task *ctx)
{
	struct poll_state *p = pending_poll(ctx->task);

	if (!p)
		return 0;
	if (p->mode == POLL_SITE)
		polls_at_sites++;
	else
		polls_pending++;
	return 0;
}

/* Run while the slot's entry and return are out: polls that began before have ended since. */
SEC("iter/task")
int polls_forgotten(struct bpf_iter__task *ctx)
{
	struct poll_state *p = pending_poll(ctx->task);

	if (p)
		p->begin = 0;
	return 0;
}

#endif
