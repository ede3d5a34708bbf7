//go:build ignore
/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * All programs of rdmatrace, in one object.  User space loads those that the
 * kernel and the target call for, attaches the uprobes to the target's address
 * space, and opens the gate (see config.bpf.h) when all are in.
 */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <bpf/bpf_core_read.h>

#include "event.h"
#include "verbs.h"
#include "core.bpf.h"
#include "config.bpf.h"
#include "stats.bpf.h"
#include "ring.bpf.h"
#include "cpu.bpf.h"
#include "thread.bpf.h"
#include "quota.bpf.h"
#include "wait.bpf.h"
#include "stack.bpf.h"
#include "mlx5.bpf.h"
#include "post.bpf.h"
#include "build.bpf.h"
#include "poll.bpf.h"
#include "look.bpf.h"
#include "pollpath.bpf.h"
#include "object.bpf.h"
#include "cqe.bpf.h"
#include "chain.bpf.h"
#include "interrupt.bpf.h"
#include "uverbs.bpf.h"
#include "sched.bpf.h"
#include "sample.bpf.h"
#include "task.bpf.h"

/* Keeps the types that user space shares in the object's BTF, from which the Go bindings are made. */
const struct {
	enum record_kind record_kind;
	enum interrupt_kind interrupt_kind;
	enum object_event object_event;
	enum task_event task_event;
	enum counter counter;
	enum build_setter build_setter;
	enum poll_mode poll_mode;
	enum build_mode build_mode;
	union {
		struct wr_record wr;
		struct post_end_record post_end;
		struct completion_record completion;
		struct cqe_record cqe;
		struct cq_event_record cq_event;
		struct arm_record arm;
		struct switch_record sched_switch;
		struct quota_record quota;
		struct migration_record migration;
		struct sample_record sample;
		struct waking_record waking;
		struct interrupt_record interrupt;
		struct qp_record qp;
		struct cq_record cq;
		struct device_context_record device_context;
		struct task_record task;
		struct library_record library;
		struct stack_record stack;
		struct site site;
		struct trial_hit_record trial_hit;
		struct trial_poll_record trial_poll;
	} record;
} *shared_types __attribute__((unused));

char LICENSE[] SEC("license") = "Dual BSD/GPL";
