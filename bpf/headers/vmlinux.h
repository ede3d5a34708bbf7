/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The kernel types and members that the programs read, and nothing else.
 * Offsets come from the running kernel's BTF at load time (CO-RE); a member
 * that a kernel may lack is tested with bpf_core_field_exists before its use.
 */
#ifndef __VMLINUX_H__
#define __VMLINUX_H__

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef int __s32;
typedef unsigned int __u32;
typedef long long __s64;
typedef unsigned long long __u64;
typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __u64 u64;
typedef __s32 s32;
typedef __s64 s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u64 __be64;
typedef __u32 __wsum;
typedef _Bool bool;
enum { false = 0, true = 1 };

/* include/uapi/linux/bpf.h: numbers that never change. */
enum bpf_map_type {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_PERCPU_ARRAY = 6,
	BPF_MAP_TYPE_LRU_HASH = 9,
	BPF_MAP_TYPE_ARRAY_OF_MAPS = 12,
	BPF_MAP_TYPE_RINGBUF = 27,
	BPF_MAP_TYPE_TASK_STORAGE = 29,
};
enum { BPF_ANY = 0, BPF_NOEXIST = 1 };
enum { BPF_F_NO_PREALLOC = 1 };
enum { BPF_LOCAL_STORAGE_GET_F_CREATE = 1 };
enum { BPF_RB_NO_WAKEUP = 1, BPF_RB_FORCE_WAKEUP = 2 };
enum { BPF_RB_AVAIL_DATA = 0 };

/*
 * User registers as a uprobe sees them.  These layouts are ABI (bpf_user_pt_regs_t
 * on arm64, the register area of struct user on x86), not subject to CO-RE.
 */
#if defined(__TARGET_ARCH_x86)
struct pt_regs {
	unsigned long r15, r14, r13, r12, bp, bx;
	unsigned long r11, r10, r9, r8, ax, cx, dx, si, di;
	unsigned long orig_ax;
	unsigned long ip, cs, flags, sp, ss;
};
typedef struct pt_regs bpf_user_pt_regs_t;
#elif defined(__TARGET_ARCH_arm64)
struct user_pt_regs {
	__u64 regs[31];
	__u64 sp;
	__u64 pc;
	__u64 pstate;
};
/* The kernel's own frame: behind the user registers it keeps the system call number. */
struct pt_regs {
	__u64 regs[31];
	__u64 sp;
	__u64 pc;
	__u64 pstate;
	__u64 orig_x0;
	__s32 syscallno;
} __attribute__((preserve_access_index));
typedef struct user_pt_regs bpf_user_pt_regs_t;
#else
#error "unknown target architecture"
#endif

/* Context of perf_event programs: ABI too. */
struct bpf_perf_event_data {
	bpf_user_pt_regs_t regs;
	__u64 sample_period;
	__u64 addr;
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct kernfs_node {
	u64 id;
};

struct cgroup {
	struct kernfs_node *kn;
};

struct css_set {
	struct cgroup *dfl_cgrp;
};

struct cfs_rq {
	int throttle_count;
};

struct sched_entity {
	struct cfs_rq *cfs_rq;
};

struct thread_info {
	u32 cpu; /* where CONFIG_THREAD_INFO_IN_TASK keeps it, since 5.16 */
};

struct mm_struct;

struct task_struct {
	struct thread_info thread_info;
	unsigned int __state; /* "state" before 5.14 */
	int on_cpu;
	int prio; /* as it is scheduled now, lent ones included */
	struct sched_entity se;
	bool throttled; /* since the per-task throttling of 6.18 */
	struct mm_struct *mm;
	unsigned int flags;
	int pid;
	int tgid;
	int softirq_disable_cnt; /* PREEMPT_RT only */
	void *worker_private; /* of a kernel thread: its struct kthread; since 5.17 */
	char comm[16];
	struct css_set *cgroups;
};

/* Older kernels: other members under the same name of the structure. */
struct task_struct___old {
	long state;	  /* before 5.14 */
	unsigned int cpu; /* before 5.16 */
	int *set_child_tid; /* before 5.17 that of worker_private */
};

struct workqueue_struct {
	char name[16];
};

struct pool_workqueue {
	struct workqueue_struct *wq;
};

struct worker {
	struct pool_workqueue *current_pwq;
};

struct kthread {
	struct worker *data; /* of a kworker */
};

/* Of the RDMA modules: who made a CQ, and what its user calls it (the ibv_cq's address, see ibv_cmd_create_cq). */
struct rdma_restrack_entry {
	struct task_struct *task;
};

struct ib_uobject {
	u64 user_handle;
};

struct ib_uevent_object {
	struct ib_uobject uobject;
};

struct ib_ucq_object {
	struct ib_uevent_object uevent;
};

struct ib_cq {
	struct ib_ucq_object *uobject;
	struct rdma_restrack_entry res;
};

/* Shared with librxe: rdma/rdma_user_rxe.h. */
struct rxe_queue_buf {
	u32 index_mask;
	u32 producer_index;
	u32 consumer_index;
	u8 data[];
};

struct rxe_queue {
	struct rxe_queue_buf *buf;
	unsigned int log2_elem_size;
	u32 index_mask;
};

struct rxe_cq {
	struct ib_cq ibcq;
	struct rxe_queue *queue;
};

struct irqaction {
	const char *name;
};

struct linux_binprm;

struct seq_file;

struct bpf_iter_meta {
	struct seq_file *seq;
};

struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
};

#pragma clang attribute pop

#endif
