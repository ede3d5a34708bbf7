/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The records that travel from the kernel to user space: one definition each.
 * Go types are generated from these (see gen.go); nothing mirrors them by hand.
 *
 * All times are CLOCK_MONOTONIC nanoseconds (bpf_ktime_get_ns).  All fields
 * are in host byte order.  No padding is implicit: every struct is a multiple
 * of eight bytes with its holes spelt out.
 */
#ifndef RDMATRACE_EVENT_H
#define RDMATRACE_EVENT_H

enum record_kind {
	RECORD_WR = 1,		/* struct wr_record and its struct wr_entry */
	RECORD_POST_END,	/* struct post_end_record */
	RECORD_COMPLETION,	/* struct completion_record */
	RECORD_ARM,		/* struct arm_record */
	RECORD_SWITCH,		/* struct switch_record */
	RECORD_WAKING,		/* struct waking_record */
	RECORD_INTERRUPT,	/* struct interrupt_record */
	RECORD_QP,		/* struct qp_record */
	RECORD_CQ,		/* struct cq_record */
	RECORD_DEVICE_CONTEXT,	/* struct device_context_record */
	RECORD_TASK,		/* struct task_record */
	RECORD_STACK,		/* struct stack_record */
	RECORD_LIBRARY,		/* struct library_record */
	RECORD_TRIAL_HIT,	/* struct trial_hit_record */
	RECORD_TRIAL_POLL,	/* struct trial_poll_record */
	RECORD_CQE,		/* struct cqe_record */
	RECORD_SAMPLE,		/* struct sample_record */
	RECORD_CQ_EVENT,	/* struct cq_event_record */
	RECORD_QUOTA,		/* struct quota_record */
	RECORD_MIGRATION,	/* struct migration_record */
	RECORD_KINDS,
};

/* Begins every record.  tid and pid are those of the thread that ran. */
struct record_header {
	__u64 time;
	__u32 pid;		/* thread group id */
	__u32 tid;
	__u16 kind;		/* enum record_kind */
	__u16 cpu;
	__u32 flags;		/* the record's own, see each */
};

#define WR_RECEIVE	0x1	/* posted to a receive queue or SRQ */
#define WR_BUILDER	0x2	/* by ibv_wr_*, not by a list of ibv_send_wr */
#define WR_TRUNCATED	0x4	/* the list went on past what could be read */
#define WR_UNREADABLE	0x8	/* user memory faulted: wr_id to bytes unknown */
#define WR_SRQ		0x10	/* qp is an ibv_srq pointer */
#define WR_WQE_VALID	0x20	/* wqe holds the verified send queue index */
#define WR_SGE_TRUNCATED 0x40	/* more scatter entries than were read: bytes are too few */

/* One work request. */
struct wr_entry {
	__u64 wr_id;
	__u32 bytes;		/* sum of sge lengths or of inline data */
	__u32 send_flags;	/* enum ibv_send_flags */
	__u32 remote_qpn;	/* UD only */
	__u16 num_sge;
	__u16 wqe;		/* 16-bit index of its first basic block */
	__u8 opcode;		/* enum ibv_wr_opcode; 0 for receives */
	__u8 flags;		/* WR_*, beside those of all */
	__u8 pad[6];
};

#define WR_CHUNK	8	/* work requests of one record, at most */

/*
 * Work requests of one call, at the entry of the posting function (header.time is
 * its post_begin), or, for builders, at wr_complete with post_begin in begin.
 * Their wr_entry structs follow.
 */
struct wr_record {
	struct record_header h;	/* flags: WR_* of all of them */
	__u64 begin;		/* post_begin */
	__u64 qp;		/* struct ibv_qp *, or ibv_srq * with WR_SRQ */
	__u64 stack;		/* id of a stack_record, 0: none */
	__u32 qp_num;
	__u32 call;		/* the thread's posting calls, counted */
	__u16 first;		/* place of the first one within the call, from 0 */
	__u16 count;		/* of those that follow */
	__u32 pad;
};

/* Return of a posting call (header.time is post_end). */
struct post_end_record {
	struct record_header h;
	__u64 qp;
	__u64 begin;		/* post_begin of the same call */
	__u32 call;
	__s32 result;		/* the function's return value */
	__u32 count;		/* WR records written for this call */
	__s32 bad_index;	/* index of *bad_wr in the list, -1: none or unknown */
	__u32 traps;		/* our probe hits inside the call, this one included */
	__u32 pad;
};

#define COMPLETION_HW_TIME	0x1	/* hw_time is this CQE's, verified */
#define COMPLETION_WQE_VALID	0x2	/* wqe_counter is this CQE's, verified */
#define COMPLETION_UNREADABLE	0x4	/* the ibv_wc could not be read */
#define COMPLETION_EX		0x8	/* by ibv_start_poll / ibv_next_poll */
#define COMPLETION_NO_EMPTY	0x10	/* empty polls are not observed: last_empty means nothing */
#define COMPLETION_LOST		0x20	/* the poll returned an error: this many (count) may be lost */
#define COMPLETION_ENTRY_VALID	0x40	/* entry is the place of its entry in a ring that the kernel writes, verified */

/* One work completion, when the poll that returned it returned (header.time is reap). */
struct completion_record {
	struct record_header h;
	__u64 cq;
	__u64 begin;		/* entry of the poll that returned it */
	__u64 last_empty;	/* entry of the latest poll of this CQ that found it empty, 0: none seen */
	__u64 wr_id;
	__u64 hw_time;		/* raw timestamp field of the CQE */
	__u32 last_empty_tid;	/* who made that empty poll; 0: the programs looked themselves, see look.bpf.h */
	__u32 qp_num;
	__u32 status;		/* enum ibv_wc_status */
	__u32 opcode;		/* enum ibv_wc_opcode; undefined when status is not 0 */
	__u32 vendor_err;
	__u32 byte_len;
	__u32 src_qp;
	__u32 wc_flags;
	__u16 index;		/* place within its poll */
	__u16 count;		/* completions the poll returned */
	__u16 wqe_counter;
	__u16 traps;		/* our probe hits in this poll */
	__u32 empty_polls;	/* polls of this CQ that found it empty since the previous completion record */
	__u16 entry;		/* in 65536ths of its ring */
	__u16 pad;
};

/*
 * The kernel wrote a completion entry (the NIC is software): it became visible
 * between header.time and end.  header.pid is the queue's owner, tid the task
 * that the kernel wrote it on.  Places are in 65536ths of the ring, so that
 * their differences wrap as places do, whatever its size.
 */
struct cqe_record {
	struct record_header h;
	__u64 cq;		/* struct ibv_cq * in the owner */
	__u64 end;
	__u64 wr_id;
	__u32 qp_num;
	__u32 status;		/* enum ibv_wc_status */
	__u32 opcode;		/* enum ibv_wc_opcode; undefined when status is not 0 */
	__u32 ahead;		/* entries of the queue not yet reaped at header.time */
	__u16 entry;		/* the first place that it may be at */
	__u16 entries;		/* how many, if others were written meanwhile */
	__u32 pad;
};

/*
 * The kernel tells a CQ's completion channel that something completed: from here
 * on a read of the channel returns it.  header.pid is the queue's owner, tid the
 * task that this runs on.
 */
struct cq_event_record {
	struct record_header h;
	__u64 cq;		/* struct ibv_cq * in the owner */
};

#define ARM_STEPPED	0x1	/* the instruction that is probed is single-stepped */

/* ibv_req_notify_cq. */
struct arm_record {
	struct record_header h;	/* flags: ARM_* */
	__u64 cq;
	__u32 solicited_only;
	__u32 pad;
};

#define SWITCH_PREV_TARGET	0x1	/* prev is a thread of a target */
#define SWITCH_NEXT_TARGET	0x2
#define SWITCH_PREV_EXITED	0x4
#define SWITCH_THROTTLED	0x8	/* prev's cfs_rq was throttled by its quota */
#define SWITCH_PREEMPT		0x10	/* the tracepoint's preempt argument */
#define SWITCH_INFERRED		0x20	/* next was found running, its switch was not seen: prev is unknown, the time an upper bound */
#define SWITCH_RESERVED		0x40	/* was once that of a migration, and captures of then have it: never to be given again */

/* sched_switch on header.cpu; header.tid is prev. */
struct switch_record {
	struct record_header h;
	__u32 prev_tid;
	__u32 prev_pid;
	__u32 next_tid;
	__u32 next_pid;
	__u32 prev_state;	/* 0: still runnable (preempted or yielded) */
	__s32 syscall;		/* the system call prev is in, -1: none (interrupted in user mode) */
	__u64 syscall_arg;	/* its first argument */
	__u8 prev_comm[16];
	__u8 next_comm[16];
	__u64 next_cgroup;	/* cgroup v2 id, 0 unknown */
	__u64 prev_cgroup;
	__u64 prev_stack;	/* id of a stack_record: prev's own code, if it posts or polls; 0: none */
};

#define QUOTA_BEGIN	0x1	/* the thread cannot run: its cgroup's quota is used up */
#define QUOTA_END	0x2

/* A thread of a target waits for header.cpu, and what keeps it changes. */
struct quota_record {
	struct record_header h;
};

/* A thread of a target waits for header.cpu from now on, before for from_cpu. */
struct migration_record {
	struct record_header h;
	__u32 from_cpu;
	__u32 pad;
};

/* A thread that posts or polls ran, seen at regular times. */
struct sample_record {
	struct record_header h;
	__u64 stack;		/* id of a stack_record, 0: none */
	__u64 period;		/* ns between two samples of a CPU */
};

enum interrupt_kind {
	INTERRUPT_NONE = 0,
	INTERRUPT_DEVICE,	/* irq_handler_entry: vec is the line */
	INTERRUPT_SOFTIRQ,	/* vec is the softirq number */
	INTERRUPT_TIMER,	/* local timer vector */
	INTERRUPT_IPI,		/* reschedule, function call, irq work, ... : vec is the vector or kind */
	INTERRUPT_THREAD,	/* threaded handler: vec is the line */
};

#define WAKERS_MOST	4	/* that a wakeup is followed back */

/* What led to a waker: an interrupt, or a kernel thread (kind INTERRUPT_NONE, vec is its pid). */
struct waker_link {
	__u64 begin;		/* entry of the interrupt; 0 of a thread */
	__u32 kind;		/* enum interrupt_kind */
	__u32 vec;
	__u8 name[16];		/* of a thread: see waker_comm */
};

/* sched_waking of a thread of a target, in the waker's context (header.tid: who was current). */
struct waking_record {
	struct record_header h;
	__u32 wakee_tid;
	__u32 wakee_pid;
	__u32 wakee_cpu;	/* where it ran last: select_task_rq comes later */
	__u32 interrupt;	/* enum interrupt_kind the waker runs in; innermost */
	__u32 vec;
	__u32 links;		/* how many of before are set */
	__u64 interrupt_begin;	/* entry of that interrupt */
	__u64 idle_since;	/* the first interrupt of the chain came to a CPU that idled from then on, 0: it did not idle */
	__u64 cq;		/* the wakee's CQ whose event woke it, see cq_event_record; 0: none, or not known */
	__u8 waker_comm[16];	/* of a kworker: "wq:" and its workqueue */
	struct waker_link before[WAKERS_MOST - 1];	/* what led to the waker, the first thing first */
};

/* An interrupt that ran on top of a thread of a target; header.time is its end. */
struct interrupt_record {
	struct record_header h;
	__u64 begin;
	__u64 nested;		/* nanoseconds of it in which others ran: interrupts nested inside, threads (PREEMPT_RT); to be subtracted */
	__u32 kind;		/* enum interrupt_kind */
	__u32 vec;
	__u8 name[32];		/* device line: the irqaction's name */
};

enum object_event {
	OBJECT_CREATED = 1,
	OBJECT_MODIFIED,
	OBJECT_DESTROYED,
	OBJECT_FOUND,		/* it existed when the gate opened */
};

struct qp_record {
	struct record_header h;	/* flags: enum object_event */
	__u64 qp;
	__u64 context;		/* struct ibv_context * */
	__u64 send_cq;
	__u64 recv_cq;
	__u64 srq;
	__u32 qp_num;
	__u32 qp_type;
	__u32 state;		/* enum ibv_qp_state after the event */
	__u32 attr_mask;	/* MODIFIED: which of the following were set */
	__u32 dest_qp_num;
	__u32 max_send_wr;
	__u8 sq_sig_all;	/* 0, 1, or 2: unknown */
	__u8 path_mtu;		/* enum ibv_mtu */
	__u8 timeout;
	__u8 retry_cnt;
	__u8 rnr_retry;
	__u8 min_rnr_timer;
	__u8 max_rd_atomic;
	__u8 port_num;
	__u16 dlid;
	__u8 dgid[16];
	__u8 pad[6];
};

struct cq_record {
	struct record_header h;	/* flags: enum object_event */
	__u64 cq;
	__u64 context;
	__u64 channel;		/* struct ibv_comp_channel *, 0: polled only */
	__s32 channel_fd;	/* -1: none */
	__u32 cqe;
	__u32 comp_vector;
	__u32 pad;
};

struct device_context_record {
	struct record_header h;	/* flags: enum object_event */
	__u64 context;
	__u8 device[64];	/* "mlx5_0" */
};

enum task_event {
	TASK_STARTED = 1,	/* new thread or process of a target */
	TASK_EXEC,
	TASK_EXITED,
	TASK_FOUND,		/* its state when the gate opened */
};

struct task_record {
	struct record_header h;	/* flags: enum task_event; tid/pid: the task */
	__u32 parent_pid;
	__u32 state;		/* FOUND: 0 running or runnable, else its sleep state */
	__s32 syscall;		/* FOUND asleep: the system call it sleeps in, else -1 */
	__u32 pad;
	__u64 syscall_arg;	/* its first argument */
	__u8 comm[16];
};

/* Where code posts, or was switched out or sampled. */
struct site_key {
	__u64 ip;		/* of a post the return address into its caller */
	__u64 sp;
	__u64 fp;		/* 0: it is none */
	__u32 pid;
	__u32 round;		/* of a thread's stack, see stacks_round */
};

#define STACK_OF_THREAD	0x1	/* where a thread was switched out or sampled, not a posting site */

/*
 * A user stack, the first time that its site is met: raw bytes from sp upwards,
 * to be unwound in user space.  size bytes follow.
 */
#define STACK_BYTES_MAX 16384
struct stack_record {
	struct record_header h;	/* flags: STACK_* */
	__u64 id;
	__u64 ip;		/* of the probe, or where the thread was */
	__u64 sp;
	__u64 fp;
	__u64 regs[6];		/* x86-64: rbx, rbp, r12-r15; arm64: x30 (lr), x19-x23 */
	struct site_key site;
	__u32 size;
	__u32 pad;
	__u8 bytes[];
};

/* A file was mapped executable by a target: time to look for new libraries. */
struct library_record {
	struct record_header h;
	__u64 inode;
	__u8 name[64];
};

/*
 * While a poll function's path that consumes completions is tried: a hit at
 * it, with all the places where the addresses of queue and completion may be.
 */
#define TRIAL_REGISTERS	32	/* in the machine's order: x86-64 rax rcx rdx rbx rsp rbp rsi rdi r8-r15, 16 unused; arm64 x0-x30 sp */
#define TRIAL_STACK	24	/* words from the stack pointer upwards */
#define TRIAL_FRAME	24	/* words below the frame pointer, the last one nearest */
struct trial_hit_record {
	struct record_header h;
	__u64 begin;		/* entry of the poll */
	__u32 slot;
	__u32 index;		/* of the hit in its poll */
	__u32 consumed;		/* the CQ's consumer index here */
	__u32 consumed_known;
	__u64 wr_id;		/* of an extended CQ's current completion here */
	__u32 status;
	__u32 pad;
	__u64 registers[TRIAL_REGISTERS];
	__u64 stack[TRIAL_STACK];
	__u64 frame[TRIAL_FRAME];
};

/* The return of a poll that is part of a trial and hit or returned any. */
struct trial_poll_record {
	struct record_header h;
	__u64 begin;
	__u64 cq;
	__u64 wc;
	__u64 sp;		/* at its entry: of the return address */
	__s32 want;
	__s32 got;		/* completions; negative: it failed */
	__u32 slot;
	__u32 hits;		/* more than were recorded, if it was many */
	__u32 consumed;
	__u32 consumed_known;
	__u32 consumed_mask;	/* bits of it that count */
	__u32 status;		/* of an extended CQ's current completion */
	__u64 wr_id;
};

#endif
