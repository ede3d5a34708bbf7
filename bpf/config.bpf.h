/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* What user space sets before loading, the gate, and who is traced. */
#ifndef RDMATRACE_CONFIG_BPF_H
#define RDMATRACE_CONFIG_BPF_H

/* sched_switch passes prev_state as a fourth argument (since 5.18). */
const volatile bool switch_has_state = true;
/* Wake the reader when a ring holds more than this. */
const volatile __u32 wake_bytes = 1 << 20;
/* Child processes of targets become targets. */
const volatile bool follow_forks = true;

/* Nothing of the data path, scheduler or interrupts is recorded until user space sets this. */
volatile __u8 open;

/*
 * A target is a thread group id in the hash map.  The scheduler's tracepoints
 * ask about every task of the machine, so a bit per hashed id comes first: it
 * is set for every target, and never cleared.
 */
#define TARGET_BITS 4096
__u64 target_bits[TARGET_BITS / 64];

#define TARGETS_MAX 4096
struct target {
	__u32 flags;	/* TARGET_* */
	__u32 pad;
	__u64 cleaned;	/* the latest call that takes what a QP left out of its queues: it ends, or begins anew */
};
#define TARGET_HOLD	0x1	/* our own child: stop it when code appears that needs probes */

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, TARGETS_MAX);
	__type(key, __u32);
	__type(value, struct target);
} targets SEC(".maps");

static __always_inline struct target *target_of(__u32 tgid)
{
	__u32 bit = tgid % TARGET_BITS;

	if (!(target_bits[bit / 64] & (1ULL << (bit % 64))))
		return NULL;
	return bpf_map_lookup_elem(&targets, &tgid);
}

static __always_inline bool is_target(__u32 tgid)
{
	return target_of(tgid) != NULL;
}

static __always_inline __u32 current_tgid(void)
{
	return bpf_get_current_pid_tgid() >> 32;
}

#endif
