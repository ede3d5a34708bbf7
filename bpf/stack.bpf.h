/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Call sites.  A site is recognised by its return address, stack and frame
 * pointer; the first time, the raw stack above it goes to user space, which
 * unwinds it with .eh_frame.  Frame pointers alone give one frame in programs
 * as distributions build them.
 */
#ifndef RDMATRACE_STACK_BPF_H
#define RDMATRACE_STACK_BPF_H

/*
 * Stacks taken in one run, at most: code that runs on many stacks (fibers) has
 * a site for each, and they would drown everything else.
 */
const volatile __u32 stacks_max = 2048;
__u32 stacks_taken;

#define STACK_CHUNK 1024	/* larger reads fail as a whole near the stack's end */

struct site_key {
	__u64 ip;	/* return address into the caller */
	__u64 sp;
	__u64 fp;
	__u32 pid;
	__u32 pad;
};

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 8192);
	__type(key, struct site_key);
	__type(value, __u64);
} sites SEC(".maps");

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
 * Copies the stack from sp, rounded down to a chunk, upwards: aligned chunks
 * lie in one page each, so each read succeeds or fails as a whole.
 */
static __always_inline bool stack_emit(struct pt_regs *ctx, __u64 id, __u64 time)
{
	__u64 sp = PT_REGS_SP(ctx);
	__u64 base = sp & ~(__u64)(STACK_CHUNK - 1);
	struct stack_record *rec;
	struct out o;
	__u32 i;

	if (stacks_taken >= stacks_max) {
		count(COUNT_SITES_FULL);
		return false;
	}
	__sync_fetch_and_add(&stacks_taken, 1);
	out_open(&o);
	rec = out_reserve(&o, sizeof(*rec) + STACK_BYTES_MAX, RECORD_STACK, time);
	if (!rec)
		return false;
	header_fill(&rec->h, &o, RECORD_STACK, time, 0);
	rec->id = id;
	rec->ip = PT_REGS_IP(ctx);
	rec->sp = sp;
	rec->fp = PT_REGS_FP(ctx);
	stack_registers(rec, ctx);
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
static __always_inline __u64 site_fp(struct pt_regs *ctx)
{
	__u64 fp = PT_REGS_FP(ctx), sp = PT_REGS_SP(ctx);

	return fp >= sp && fp - sp < (1 << 20) ? fp : 0;
}

/* The id of the site that called the probed function; emits its stack the first time. */
static __always_inline __u64 site_of(struct pt_regs *ctx, struct site_cache *cache, __u64 return_address, __u64 time)
{
	struct site_key key = {
		.ip = return_address,
		.sp = PT_REGS_SP(ctx),
		.fp = site_fp(ctx),
	};
	__u64 id, *known;

	if (cache->id && cache->ip == key.ip && cache->sp == key.sp && cache->fp == key.fp)
		return cache->id;
	key.pid = current_tgid();
	known = bpf_map_lookup_elem(&sites, &key);
	if (known) {
		id = *known;
	} else {
		id = site_id(&key);
		if (!stack_emit(ctx, id, time))
			return 0;
		/* Should this fail, the stack is taken once more, with the same id. */
		bpf_map_update_elem(&sites, &key, &id, BPF_ANY);
	}
	cache->ip = key.ip;
	cache->sp = key.sp;
	cache->fp = key.fp;
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

#endif
