/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * User stacks.  A site, where a thread posts, was switched out or sampled, is
 * recognised by its instruction, stack and frame pointer; the first time, the
 * raw stack above it goes to user space, which unwinds it with .eh_frame.  Frame
 * pointers alone give one frame in programs as distributions build them.
 *
 * Many ways may lead to a site: callers whose frames have the same size.  Which
 * words of the stack are return addresses only unwinding tells, so user space
 * adds the way to the site, by the next callers; where none that is known leads
 * here, the stack is taken as well.  Until user space has answered, all that is
 * not known is taken for the latest.
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

#define SITE_WAYS 8

struct site {
	__u64 latest;	/* id of the stack that was taken last */
	__u32 taken;
	__u32 ways;	/* written by user space; as many as were taken: it has answered */
	struct site_way way[SITE_WAYS];
};

const struct site new_site = {};

/* As many as stacks may be taken. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 2048);
	__type(key, struct site_key);
	__type(value, struct site);
} post_sites SEC(".maps");

/* Where threads are is another matter than where they post: neither drives the other out. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, struct site_key);
	__type(value, struct site);
} thread_sites SEC(".maps");

/* splitmix64's finaliser. */
static __always_inline __u64 site_mix(__u64 h, __u64 v)
{
	h ^= v;
	h = (h ^ (h >> 30)) * 0xbf58476d1ce4e5b9ULL;
	h = (h ^ (h >> 27)) * 0x94d049bb133111ebULL;
	return h ^ (h >> 31);
}

/* An id for a stack of the current thread that is taken now. */
static __always_inline __u64 stack_id(__u64 time)
{
	__u64 id = site_mix(site_mix(0x9e3779b97f4a7c15ULL, bpf_get_current_pid_tgid()), time);

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
 * A thread's stack is taken so many times in 0.13 s on a CPU, at most, and while
 * its ring is not filling up: where code is switched out or sampled differs from
 * time to time.  User space makes it the fewer the more CPUs there are, as one
 * thread of it unwinds them all.
 */
#define STACK_WINDOW_SHIFT	27
const volatile __u32 stacks_in_window = 64;

static __always_inline bool thread_stack_due(struct out *o, __u64 now)
{
	struct cpu_state *c = cpu_here();

	if (!c || !o->ring || bpf_ringbuf_query(o->ring, BPF_RB_AVAIL_DATA) > wake_bytes)
		return false;
	if (c->stacks_window != now >> STACK_WINDOW_SHIFT) {
		c->stacks_window = now >> STACK_WINDOW_SHIFT;
		c->stacks_taken = 0;
	}
	return c->stacks_taken++ < stacks_in_window;
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
static __always_inline bool stack_emit(struct pt_regs *regs, const struct site_key *key, __u64 id, __u32 flags,
				       __u64 time)
{
	__u64 sp = PT_REGS_SP(regs);
	__u64 base = sp & ~(__u64)(STACK_CHUNK - 1);
	struct stack_record *rec;
	struct out o;
	__u32 i;

	/* Ways that are alike until user space answers are the fewer the sooner it does. */
	if (flags & STACK_OF_THREAD)
		out_open(&o);
	else
		out_open_urgent(&o);
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
	rec->site = *key;
	rec->pad = 0;
	for (i = 0; i < STACK_BYTES_MAX / STACK_CHUNK; i++) {
		if (bpf_probe_read_user(rec->bytes + i * STACK_CHUNK, STACK_CHUNK,
					(void *)(base + i * STACK_CHUNK)))
			break;
	}
	if (!i) /* a thread's is not always in memory when it is switched out */
		count(flags & STACK_OF_THREAD ? COUNT_STACKS_FULL : COUNT_STACK_CUT);
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

/* The mask shows the verifier the bound, whatever the compiler makes of i. */
static __always_inline struct site_way *site_way_at(struct site *site, __u32 i)
{
	barrier_var(i);
	return &site->way[i & (SITE_WAYS - 1)];
}

/*
 * Whether a way leads here.  One read of some hundred bytes takes half as long as
 * one of each word.  A global function, see post_send_one.
 */
__noinline int way_leads(const struct site_way *w, struct site_cache *cache, __u64 sp)
{
	__u32 i, size;

	if (!w || !cache)
		return 0;
	size = w->words * sizeof(cache->word[0]);
	if (size > sizeof(cache->word) || bpf_probe_read_user(cache->word, size, (void *)(sp + w->from)))
		return 0;
	for (i = 0; i < SITE_CALLERS && i < w->callers; i++) {
		if (cache->word[w->at[i] & (SITE_WORDS - 1)] != w->caller[i])
			return 0;
	}
	return 1;
}

/* The stack by a way that is not known; 0: it was not taken. */
static __always_inline __u64 way_new(struct pt_regs *regs, const struct site_key *key, struct site *site, void *known,
				     __u32 flags, __u64 time)
{
	__u64 id = stack_id(time);

	if (site && site->taken > site->ways)
		return site->latest;
	if (site && site->ways >= SITE_WAYS) {
		count(COUNT_WAYS_FULL);
		return 0;
	}
	if (!site) {
		/* Should this fail, the stack is taken each time. */
		bpf_map_update_elem(known, key, &new_site, BPF_NOEXIST);
		site = bpf_map_lookup_elem(known, key);
	}
	if (!stack_emit(regs, key, id, flags, time))
		return 0;
	if (site) {
		site->latest = id;
		site->taken = site->ways + 1;
	}
	return id;
}

/*
 * The id of the stack at a site of which ip and round are set, with the
 * registers there: it is emitted the first time.  0: it was not taken.
 */
static __always_inline __u64 site_of(struct pt_regs *regs, struct site_key *key, void *known, struct site_cache *cache,
				     __u32 flags, __u64 time)
{
	struct site_way *w;
	struct site *site;
	__u32 i;

	key->sp = PT_REGS_SP(regs);
	key->fp = site_fp(regs);
	if (cache->way.id && cache->ip == key->ip && cache->sp == key->sp && cache->fp == key->fp &&
	    cache->round == key->round && way_leads(&cache->way, cache, key->sp))
		return cache->way.id;
	key->pid = current_tgid();
	site = bpf_map_lookup_elem(known, key);
	for (i = 0; site && i < SITE_WAYS && i < site->ways; i++) {
		w = site_way_at(site, i);
		if (!way_leads(w, cache, key->sp))
			continue;
		cache->ip = key->ip;
		cache->sp = key->sp;
		cache->fp = key->fp;
		cache->round = key->round;
		cache->way = *w;
		return w->id;
	}
	return way_new(regs, key, site, known, flags, time);
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

	return site_of(ctx, &key, &post_sites, &t->post_site, 0, time);
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
	return site_of(regs, &key, &thread_sites, &t->thread_site, STACK_OF_THREAD, time);
}

#endif
