/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * What led to a wakeup: the device line that raised the softirq that woke the
 * kernel thread that ... wakes a thread of a target.  Each context knows what led
 * to it: a softirq what raised it, a kernel thread what woke it.  A task of user
 * space begins a chain anew: what woke it once says little about what it does now.
 *
 * A kernel thread that still runs when new work comes for it is not woken for
 * that: its chain is that of the work before.
 */
#ifndef RDMATRACE_CHAIN_BPF_H
#define RDMATRACE_CHAIN_BPF_H

#define PF_WQ_WORKER	0x20
#define PF_KTHREAD	0x00200000

/*
 * What woke kernel threads and threads of targets last.  Task storage would have
 * to be allocated under the wakee's lock, so this is an array: a thread whose
 * place another has taken has no chain.
 */
#define WOKEN_SLOTS 4096

struct woken {
	__u32 tid;	/* 0 while it is written */
	__u32 pad;
	struct chain by;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, WOKEN_SLOTS);
	__type(key, __u32);
	__type(value, struct woken);
} woken SEC(".maps");

static __always_inline struct woken *woken_of(__u32 tid)
{
	__u32 slot = tid % WOKEN_SLOTS;

	return bpf_map_lookup_elem(&woken, &slot);
}

/* Kworkers take any work: what one is working on says more than its name. */
static __always_inline void thread_name(struct task_struct *task, __u8 *comm)
{
	struct task_struct___old *old = (void *)task;
	char name[16] = "wq:";
	struct workqueue_struct *wq;
	struct kthread *kthread;

	bpf_get_current_comm(comm, 16);
	if (!(task->flags & PF_WQ_WORKER))
		return;
	if (bpf_core_field_exists(task->worker_private))
		kthread = BPF_CORE_READ(task, worker_private);
	else
		kthread = (void *)BPF_CORE_READ(old, set_child_tid);
	wq = BPF_CORE_READ(kthread, data, current_pwq, wq);
	if (!wq || bpf_probe_read_kernel_str(name + 3, sizeof(name) - 3, wq->name) <= 1)
		return;
	__builtin_memcpy(comm, name, sizeof(name));
}

/* "irq/24-mlx5_comp" is the threaded handler of line 24. */
static __always_inline bool interrupt_thread(const __u8 *comm, __u32 *line)
{
	__u32 n = 0, i;

	if (comm[0] != 'i' || comm[1] != 'r' || comm[2] != 'q' || comm[3] != '/')
		return false;
	for (i = 4; i < 15 && comm[i] >= '0' && comm[i] <= '9'; i++)
		n = n * 10 + (comm[i] - '0');
	*line = n;
	return true;
}

/* The last link of the chain, after which another one has room: the first one is forgotten for it. */
static __always_inline struct waker_link *chain_add(struct chain *c)
{
	__u32 n = c->n;

	if (n >= WAKERS_MOST) {
		__builtin_memmove(&c->link[0], &c->link[1], sizeof(c->link[0]) * (WAKERS_MOST - 1));
		n = WAKERS_MOST - 1;
	}
	c->n = n + 1;
	barrier_var(n);
	return &c->link[n & (WAKERS_MOST - 1)];
}

/* Appends the task that runs, when no interrupt does. */
static __always_inline void chain_add_task(struct chain *chain, struct cpu_state *c)
{
	struct task_struct *task = bpf_get_current_task_btf();
	struct waker_link *link;
	struct woken *w;

	chain->n = 0;
	chain->idle_since = 0;
	if (task->flags & PF_KTHREAD) {
		w = woken_of(task->pid);
		if (w && w->tid == (__u32)task->pid) {
			__builtin_memcpy(chain, &w->by, sizeof(*chain));
			barrier();
			if (w->tid != (__u32)task->pid)
				chain->n = 0;
		}
	}
	link = chain_add(chain);
	thread_name(task, link->name);
	link->begin = 0;
	link->kind = INTERRUPT_NONE;
	link->vec = task->pid;
	if (task->flags & PF_KTHREAD && interrupt_thread(link->name, &link->vec)) {
		link->kind = INTERRUPT_THREAD;
		link->begin = c->since;
	}
}

/* What happens here and now, with what led to it: the innermost interrupt, or the task. */
static __always_inline void chain_here(struct chain *chain)
{
	struct cpu_state *c = cpu_here();
	struct interrupt_state *s;
	struct waker_link *link;
	__u32 d;

	chain->n = 0;
	if (!c)
		return;
	d = c->depth - 1;
	if (d >= INTERRUPT_NEST) {
		chain_add_task(chain, c);
		return;
	}
	s = interrupt_slot(c, d);
	barrier_var(d);
	__builtin_memcpy(chain, &c->led[d & (INTERRUPT_NEST - 1)], sizeof(*chain));
	if (!chain->n) /* it begins here */
		chain->idle_since = (__u32)bpf_get_current_pid_tgid() ? 0 : c->since;
	link = chain_add(chain);
	__builtin_memset(link->name, 0, sizeof(link->name));
	link->kind = s->kind;
	link->vec = s->vec;
	link->begin = s->begin;
}

/*
 * Which pending softirq was raised by what; the first time counts, up to its
 * handler.  One that raises itself, to go on later, has been led to by the same.
 */
SEC("tp_btf/softirq_raise")
int BPF_PROG(softirq_raise, unsigned int vec)
{
	struct interrupt_state *s;
	struct cpu_state *c;
	__u32 d;

	if (!open)
		return 0;
	c = cpu_here();
	if (!c || vec >= SOFTIRQS)
		return 0;
	barrier_var(vec);
	if (vec >= SOFTIRQS || c->raised[vec].n)
		return 0;
	d = c->depth - 1;
	s = interrupt_slot(c, d);
	if (d < INTERRUPT_NEST && s->kind == INTERRUPT_SOFTIRQ && s->vec == vec) {
		barrier_var(d);
		__builtin_memcpy(&c->raised[vec], &c->led[d & (INTERRUPT_NEST - 1)], sizeof(c->raised[vec]));
	} else {
		chain_here(&c->raised[vec]);
	}
	return 0;
}

/* A softirq's handler begins: what raised it led to it. d is its place among the interrupts. */
static __always_inline void chain_softirq(struct cpu_state *c, __u32 d, __u32 vec)
{
	struct chain *led;

	barrier_var(d);
	led = &c->led[d & (INTERRUPT_NEST - 1)];
	barrier_var(vec);
	if (vec >= SOFTIRQS) {
		led->n = 0;
		return;
	}
	__builtin_memcpy(led, &c->raised[vec], sizeof(*led));
	barrier();
	c->raised[vec].n = 0;
}

/* Nothing is known to lead to an interrupt that a device or a timer raises. */
static __always_inline void chain_none(struct cpu_state *c, __u32 d)
{
	barrier_var(d);
	c->led[d & (INTERRUPT_NEST - 1)].n = 0;
}

#define IRQ_WAKE_THREAD 2

/*
 * A line's handler that leaves the work to its thread has returned before that is
 * woken (__handle_irq_event_percpu): without this the task that it interrupted
 * would seem to wake it.
 */
static __always_inline void chain_threaded(struct cpu_state *c, __u32 line)
{
	struct interrupt_state *s;
	__u32 d = c->depth - 1;

	if (d >= INTERRUPT_NEST)
		return;
	s = interrupt_slot(c, d);
	if (s->kind != INTERRUPT_DEVICE || s->vec != line)
		return;
	c->threaded_line = line;
	c->threaded_begin = s->begin;
}

/* The wakee is the thread that a line's handler has just asked for. */
static __always_inline bool chain_wakes_handler(struct task_struct *task, struct chain *chain)
{
	struct cpu_state *c = cpu_here();
	__u8 comm[16] = {};
	__u32 line = 0;

	if (!c || !c->threaded_begin)
		return false;
	if (bpf_probe_read_kernel(comm, sizeof(comm), task->comm))
		return false;
	if (!interrupt_thread(comm, &line) || line != c->threaded_line)
		return false;
	chain->n = 1;
	chain->idle_since = (__u32)bpf_get_current_pid_tgid() ? 0 : c->since;
	__builtin_memset(&chain->link[0], 0, sizeof(chain->link[0]));
	chain->link[0].begin = c->threaded_begin;
	chain->link[0].kind = INTERRUPT_DEVICE;
	chain->link[0].vec = line;
	c->threaded_begin = 0;
	return true;
}

/* Notes what wakes a task, if it is one that may lead to another's wakeup. */
static __always_inline struct chain *chain_wakes(struct task_struct *task, bool target)
{
	struct woken *w;

	if (!target && !(task->flags & PF_KTHREAD))
		return NULL;
	w = woken_of(task->pid);
	if (!w)
		return NULL;
	w->tid = 0;
	barrier();
	if (!chain_wakes_handler(task, &w->by))
		chain_here(&w->by);
	barrier();
	w->tid = task->pid;
	return &w->by;
}

#endif
