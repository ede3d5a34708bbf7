/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Threads and processes of targets: begin, exec, end, and what they did when the gate opened. */
#ifndef RDMATRACE_TASK_BPF_H
#define RDMATRACE_TASK_BPF_H

static __always_inline void task_emit(struct task_struct *task, enum task_event event, __u32 parent_pid, __u32 state)
{
	__u64 now = bpf_ktime_get_ns();
	struct task_record *rec;
	struct out o;

	out_open_urgent(&o);
	rec = out_reserve(&o, sizeof(*rec), RECORD_TASK, now);
	if (!rec)
		return;
	rec->h.time = now;
	rec->h.pid = task->tgid;
	rec->h.tid = task->pid;
	rec->h.kind = RECORD_TASK;
	rec->h.cpu = event == TASK_FOUND ? task_cpu(task) : o.cpu;
	rec->h.flags = event;
	rec->parent_pid = parent_pid;
	rec->state = state;
	rec->syscall = -1;
	rec->pad = 0;
	rec->syscall_arg = 0;
	if (event == TASK_FOUND && state)
		rec->syscall = task_syscall(task, &rec->syscall_arg);
	bpf_probe_read_kernel(rec->comm, sizeof(rec->comm), task->comm);
	if (event == TASK_EXEC)
		hold_if_ours();
	out_submit(&o, rec);
}

static __always_inline struct thread *thread_make(struct task_struct *task)
{
	struct thread *t = bpf_task_storage_get(&threads, task, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);

	if (!t)
		count(COUNT_NO_STORAGE);
	return t;
}

/* A child process of a target becomes one, with its parent's flags. */
static __always_inline bool target_add(__u32 tgid, const struct target *parent)
{
	__u32 bit = tgid % TARGET_BITS;
	struct target child = *parent;

	if (bpf_map_update_elem(&targets, &tgid, &child, BPF_ANY)) {
		count(COUNT_TARGETS_FULL);
		return false;
	}
	__sync_fetch_and_or(&target_bits[bit / 64], 1ULL << (bit % 64));
	return true;
}

SEC("tp_btf/sched_process_fork")
int BPF_PROG(sched_process_fork, struct task_struct *parent, struct task_struct *child)
{
	struct target *target = target_of(parent->tgid);

	if (!target)
		return 0;
	if (child->tgid != parent->tgid && (!follow_forks || !target_add(child->tgid, target)))
		return 0;
	thread_make(child);
	task_emit(child, TASK_STARTED, parent->tgid, 0);
	return 0;
}

/* The new program is mapped, with its dynamic linker, and has not run yet. */
SEC("tp_btf/sched_process_exec")
int BPF_PROG(sched_process_exec, struct task_struct *task, int old_pid, struct linux_binprm *bprm)
{
	if (is_target(task->tgid))
		task_emit(task, TASK_EXEC, 0, 0);
	return 0;
}

SEC("tp_btf/sched_process_exit")
int BPF_PROG(sched_process_exit, struct task_struct *task)
{
	struct thread *t;

	if (!is_target(task->tgid))
		return 0;
	t = bpf_task_storage_get(&threads, task, NULL, 0);
	if (t && t->waiting)
		running_again(t); /* the last time that it may be seen */
	task_emit(task, TASK_EXITED, 0, 0);
	return 0;
}

/*
 * Run before the gate opens, for storage for all threads of targets, and after,
 * for what each of them does.
 */
SEC("iter/task")
int task_found(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct thread *t;
	__u32 state;

	if (!task || !is_target(task->tgid))
		return 0;
	t = thread_make(task);
	state = task_state(task);
	if (open && t && !state && bpf_core_field_exists(task->on_cpu) && !READ_INT(task, on_cpu))
		wait_begin(t, task, task_cpu(task), false);
	if (open)
		task_emit(task, TASK_FOUND, 0, state);
	return 0;
}

/*
 * Run while the probes of posts and polls are out: the return of a call that a
 * thread is in will not be seen, so none may be taken for it later.
 */
SEC("iter/task")
int calls_forgotten(struct bpf_iter__task *ctx)
{
	struct task_struct *task = ctx->task;
	struct thread *t;

	if (!task)
		return 0;
	t = bpf_task_storage_get(&threads, task, NULL, 0);
	if (!t)
		return 0;
	t->post.begin = 0;
	t->poll.begin = 0;
	t->build.begin = 0;
	t->build.started = 0;
	return 0;
}

#endif
