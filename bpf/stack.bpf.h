/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * User stacks.  A site, where a thread posts, was switched out or sampled, is
 * recognised by its instruction, stack and frame pointer; the first time, the
 * raw stack above it goes to user space, which unwinds it with .eh_frame.  Frame
 * pointers alone give one frame in programs as distributions build them.
 */
#ifndef RDMATRACE_STACK_BPF_H
#define RDMATRACE_STACK_BPF_H

/*
 * Stacks of posting sites taken in one run, at most: code that runs on many
 * stacks (fibers) has a site for each, and they would drown everything else.
 */
const volatile __u32 stacks_max = 2048;
__u32 stacks_taken;

/* User space has forgotten the stacks of threads of the rounds before. */
volatile __u32 stacks_round;

#define STACK_CHUNK 1024	/* larger reads fail as a whole near the stack's end */

struct site_key {
	__u64 ip;	/* of a post the return address into its caller */
	__u64 sp;
	__u64 fp;
	__u32 pid;
	__u32 round;	/* of a thread's stack */
};

/* Where threads are is another matter than where they post: neither drives the other out. */
struct sites {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 8192);
	__type(key, struct site_key);
	__type(value, __u64);
};

struct sites sites SEC(".maps");
struct sites left_sites SEC(".maps");

/* splitmix64's finaliser over the key's words: equal sites have equal ids, also after they were forgotten. */
static __always_inline __u64 site_mix(__u64 h, __u64 v)
{
	h ^= v;
	h = (h ^ (h >> 30)) * 0xbf58476d1ce4e5b9ULL;
	h = (h ^ (h >> 27)) * 0x94d049bb133111ebULL;
	return h ^ (h >> 31);
}

static __always_inline __u64 site_id(const struct site_key *k)
{
	__u64 id = site_mix(site_mix(site_mix(site_mix(0x9e3779b97f4a7c15ULL, k->ip), k->sp), k->fp), k->pid);

	return id ? id : 1;
}

static __always_inline void stack_registers(struct stack_record *rec, struct pt_regs *ctx)
{
#if defined(__TARGET_ARCH_x86)
	rec->regs[0] = ctx->bx;
	rec->regs[1] = ctx->bp;
	rec->regs[2] = ctx->r12;
	rec->regs[3] = ctx->r13;
	rec->regs[4] = ctx->r14;
	rec->regs[5] = ctx->r15;
#else
	struct user_pt_regs *r = (struct user_pt_regs *)ctx;

	rec->regs[0] = r->regs[30];
	rec->regs[1] = r->regs[19];
	rec->regs[2] = r->regs[20];
	rec->regs[3] = r->regs[21];
	rec->regs[4] = r->regs[22];
	rec->regs[5] = r->regs[23];
#endif
}

/*
 * A thread's stack is taken 64 times in 0.13 s on a CPU, at most, and while its
 * ring is not filling up: where code is switched out or sampled differs from
 * time to time.
 */
#define STACK_WINDOW_SHIFT	27
#define STACKS_IN_WINDOW	64

static __always_inline bool thread_stack_due(struct out *o, __u64 now)
{
	struct cpu_state *c = cpu_here();

	if (!c || !o->ring || bpf_ringbuf_query(o->ring, BPF_RB_AVAIL_DATA) > wake_bytes)
		return false;
	if (c->stacks_window != now >> STACK_WINDOW_SHIFT) {
		c->stacks_window = now >> STACK_WINDOW_SHIFT;
		c->stacks_taken = 0;
	}
	return c->stacks_taken++ < STACKS_IN_WINDOW;
}

/* Whether a stack may be taken; counts those that may not. */
static __always_inline bool stack_due(struct out *o, __u32 flags, __u64 now)
{
	if (flags & STACK_OF_THREAD) {
		if (thread_stack_due(o, now))
			return true;
		count(COUNT_STACKS_FULL);
		return false;
	}
	if (stacks_taken >= stacks_max) {
		count(COUNT_SITES_FULL);
		return false;
	}
	__sync_fetch_and_add(&stacks_taken, 1);
	return true;
}

/*
 * Copies the stack from sp, rounded down to a chunk, upwards: aligned chunks
 * lie in one page each, so each read succeeds or fails as a whole.
 */
static __always_inline bool stack_emit(struct pt_regs *regs, __u64 id, __u32 flags, __u64 time)
{
	__u64 sp = PT_REGS_SP(regs);
	__u64 base = sp & ~(__u64)(STACK_CHUNK - 1);
	struct stack_record *rec;
	struct out o;
	__u32 i;

	out_open(&o);
	if (!stack_due(&o, flags, time))
		return false;
	rec = out_reserve(&o, sizeof(*rec) + STACK_BYTES_MAX, RECORD_STACK, time);
	if (!rec)
		return false;
	header_fill(&rec->h, &o, RECORD_STACK, time, flags);
	rec->id = id;
	rec->ip = PT_REGS_IP(regs);
	rec->sp = sp;
	rec->fp = PT_REGS_FP(regs);
	stack_registers(rec, regs);
	rec->pad = 0;
	for (i = 0; i < STACK_BYTES_MAX / STACK_CHUNK; i++) {
		if (bpf_probe_read_user(rec->bytes + i * STACK_CHUNK, STACK_CHUNK,
					(void *)(base + i * STACK_CHUNK)))
			break;
	}
	if (!i)
		count(COUNT_STACK_CUT);
	rec->size = i * STACK_CHUNK;
	out_submit(&o, rec);
	return true;
}

/*
 * The frame pointer, if it can be one: code without frame pointers keeps
 * anything there, and a loop counter would make every call a site of its own.
 */
static __always_inline __u64 site_fp(struct pt_regs *regs)
{
	__u64 fp = PT_REGS_FP(regs), sp = PT_REGS_SP(regs);

	return fp >= sp && fp - sp < (1 << 20) ? fp : 0;
}

/*
 * The id of a site of which ip and round are set, with the registers there: its
 * stack is emitted the first time.  0: it was not taken.
 */
static __always_inline __u64 site_of(struct pt_regs *regs, struct site_key *key, void *known, struct site_cache *cache,
				     __u32 flags, __u64 time)
{
	__u64 id, *seen;

	key->sp = PT_REGS_SP(regs);
	key->fp = site_fp(regs);
	if (cache->id && cache->ip == key->ip && cache->sp == key->sp && cache->fp == key->fp &&
	    cache->round == key->round)
		return cache->id;
	key->pid = current_tgid();
	seen = bpf_map_lookup_elem(known, key);
	if (seen) {
		id = *seen;
	} else {
		id = site_id(key);
		if (!stack_emit(regs, id, flags, time))
			return 0;
		/* Should this fail, the stack is taken once more, with the same id. */
		bpf_map_update_elem(known, key, &id, BPF_ANY);
	}
	cache->ip = key->ip;
	cache->sp = key->sp;
	cache->fp = key->fp;
	cache->round = key->round;
	cache->id = id;
	return id;
}

/* Where the probed function, at its entry, will return to; 0: unreadable. */
static __always_inline __u64 return_address(struct pt_regs *ctx)
{
#if defined(__TARGET_ARCH_x86)
	__u64 ra = 0;

	if (bpf_probe_read_user(&ra, sizeof(ra), (void *)PT_REGS_SP(ctx)))
		return 0;
	return ra;
#else
	return PT_REGS_RET(ctx);
#endif
}

/* The stack at the entry of a function that posts. */
static __always_inline __u64 post_stack(struct pt_regs *ctx, struct thread *t, __u64 time)
{
	struct site_key key = { .ip = return_address(ctx) };

	return site_of(ctx, &key, &sites, &t->post_site, 0, time);
}

#define PF_EXITING 0x4

/*
 * Where the current thread was in its own code when it entered the kernel last,
 * be it by a system call, a fault or an interrupt, if it is one that posts or
 * polls.  Others are many, and nobody waits for them.
 */
static __always_inline __u64 thread_stack(struct task_struct *task, struct thread *t, __u64 time)
{
	struct site_key key = { .round = stacks_round };
	struct pt_regs *regs;

	if (!t->uses_verbs || task->flags & PF_EXITING)
		return 0;
	regs = (struct pt_regs *)bpf_task_pt_regs(task);
	key.ip = PT_REGS_IP(regs);
	return site_of(regs, &key, &left_sites, &t->left_site, STACK_OF_THREAD, time);
}

#endif
