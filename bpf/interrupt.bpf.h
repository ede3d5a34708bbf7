/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Interrupts: a small stack per CPU, so that a wakeup knows what it came from
 * and nested handlers are told apart.  Recorded when they ran on top of a
 * thread of a target.
 */
#ifndef RDMATRACE_INTERRUPT_BPF_H
#define RDMATRACE_INTERRUPT_BPF_H

/*
 * A softirq's entry runs with interrupts enabled, so another handler may come
 * and go anywhere in here: the depth is raised first, and a free slot's nested
 * time is 0, so that it finds a place above ours.
 */
static __always_inline void interrupt_enter(enum interrupt_kind kind, __u32 vec)
{
	struct interrupt_state *s;
	struct cpu_state *c;
	__u64 now;
	__u32 d;

	if (!open)
		return;
	c = cpu_here();
	if (!c)
		return;
	now = bpf_ktime_get_ns();
	d = c->depth;
	if (d >= INTERRUPT_NEST) {
		count(COUNT_INTERRUPT_DEPTH);
		return;
	}
	c->begun |= 1U << kind;
	c->depth = d + 1;
	barrier();
	s = interrupt_slot(c, d);
	s->kind = kind;
	s->vec = vec;
	s->begin = now;
	if (kind == INTERRUPT_SOFTIRQ)
		chain_softirq(c, d, vec);
	else
		chain_none(c, d);
	look_around();
	if (kind == INTERRUPT_TIMER)
		look_on(); /* before the handler, which may take longer than a flight */
}

static __always_inline void interrupt_emit(const struct interrupt_state *s, __u64 now, const struct irqaction *action)
{
	struct interrupt_record *rec;
	struct out o;

	out_open(&o);
	o.wake = BPF_RB_NO_WAKEUP; /* a wakeup is an interrupt: it must not cause the next one */
	rec = out_reserve(&o, sizeof(*rec), RECORD_INTERRUPT, now);
	if (!rec)
		return;
	__builtin_memset(rec, 0, sizeof(*rec));
	header_fill(&rec->h, &o, RECORD_INTERRUPT, now, 0);
	rec->begin = s->begin;
	rec->nested = s->nested;
	rec->kind = s->kind;
	rec->vec = s->vec;
	if (action)
		bpf_probe_read_kernel_str(rec->name, sizeof(rec->name), action->name);
	out_submit(&o, rec);
}

/* Takes the innermost interrupt of this kind off the stack; what lies above it has lost its end. */
static __always_inline bool interrupt_pop(struct cpu_state *c, enum interrupt_kind kind, __u32 vec, __u64 now,
					  struct interrupt_state *out)
{
	__u32 d = c->depth, i;

	for (i = 0; i < INTERRUPT_NEST; i++) {
		struct interrupt_state *s;

		if (!d || d > INTERRUPT_NEST)
			break;
		d--;
		s = interrupt_slot(c, d);
		*out = *s;
		s->nested = 0;
		if (out->kind != kind || out->vec != vec)
			continue;
		if (d)
			interrupt_slot(c, d - 1)->nested += now - out->begin;
		barrier();
		c->depth = d;
		return true;
	}
	c->depth = 0;
	return false;
}

static __always_inline void interrupt_exit(enum interrupt_kind kind, __u32 vec, const struct irqaction *action)
{
	struct interrupt_state s;
	struct cpu_state *c;
	__u64 now;

	if (!open)
		return;
	c = cpu_here();
	if (!c)
		return;
	now = bpf_ktime_get_ns();
	if (!interrupt_pop(c, kind, vec, now, &s)) {
		/*
		 * Else it began before the gate opened: no handler interrupts one of
		 * its own kind, but of another, so those that came since tell nothing.
		 */
		if (c->begun & 1U << kind)
			count(COUNT_INTERRUPT_STRAY);
		return;
	}
	if (!is_target(current_tgid()))
		return;
	interrupt_emit(&s, now, action);
	look_around();
}

/*
 * PREEMPT_RT runs softirqs in threads with their per-CPU lock held, which may be
 * switched out inside one; they come back to the same CPU (kernel/softirq.c).
 */
static __always_inline void softirq_leaves(struct cpu_state *c, struct task_struct *prev, __u64 now)
{
	struct interrupt_state *s = interrupt_slot(c, 0);
	struct switched_out *out;
	__u32 i;

	if (!c->depth || s->kind != INTERRUPT_SOFTIRQ || !READ_INT(prev, softirq_disable_cnt))
		return;
	for (i = 0; i < SWITCHED_OUT; i++) {
		out = switched_out_slot(c, i);
		if (out->tid)
			continue;
		out->tid = prev->pid;
		out->since = now;
		out->interrupt = *s;
		__builtin_memcpy(&out->led, &c->led[0], sizeof(out->led));
		return;
	}
	count(COUNT_SOFTIRQS_OUT);
}

static __always_inline void softirq_comes_back(struct cpu_state *c, struct task_struct *next, __u64 now)
{
	struct interrupt_state *s;
	struct switched_out *out;
	__u32 i;

	for (i = 0; i < SWITCHED_OUT; i++) {
		out = switched_out_slot(c, i);
		if (!out->tid || out->tid != (__u32)next->pid)
			continue;
		out->tid = 0;
		if (!READ_INT(next, softirq_disable_cnt))
			return; /* its end was missed */
		s = interrupt_slot(c, 0);
		*s = out->interrupt;
		s->nested += now - out->since;
		__builtin_memcpy(&c->led[0], &out->led, sizeof(out->led));
		c->depth = 1;
		return;
	}
}

/* No other handler lets another task run: what is left on the stack has lost its end. */
static __always_inline void interrupts_switch(struct cpu_state *c, struct task_struct *prev, struct task_struct *next,
					      __u64 now)
{
	bool threads = bpf_core_field_exists(prev->softirq_disable_cnt);
	__u32 d;

	if (threads)
		softirq_leaves(c, prev, now);
	for (d = 0; d < INTERRUPT_NEST && d < c->depth; d++)
		interrupt_slot(c, d)->nested = 0;
	c->depth = 0;
	if (threads)
		softirq_comes_back(c, next, now);
}

SEC("tp_btf/irq_handler_entry")
int BPF_PROG(irq_handler_entry, int irq, struct irqaction *action)
{
	interrupt_enter(INTERRUPT_DEVICE, irq);
	return 0;
}

SEC("tp_btf/irq_handler_exit")
int BPF_PROG(irq_handler_exit, int irq, struct irqaction *action, int ret)
{
	struct cpu_state *c;

	if (open && ret == IRQ_WAKE_THREAD) {
		c = cpu_here();
		if (c)
			chain_threaded(c, irq);
	}
	interrupt_exit(INTERRUPT_DEVICE, irq, action);
	return 0;
}

SEC("tp_btf/softirq_entry")
int BPF_PROG(softirq_entry, unsigned int vec)
{
	interrupt_enter(INTERRUPT_SOFTIRQ, vec);
	return 0;
}

SEC("tp_btf/softirq_exit")
int BPF_PROG(softirq_exit, unsigned int vec)
{
	interrupt_exit(INTERRUPT_SOFTIRQ, vec, NULL);
	return 0;
}

/*
 * The vectors that are no device's.  On x86 each has tracepoints of its own,
 * whose argument is the vector; on arm64 the timer is a line like others and
 * all IPIs share two tracepoints.
 */
#if defined(__TARGET_ARCH_x86)
#define VECTOR(name, kind)                                                    \
	SEC("tp_btf/" #name "_entry")                                          \
	int BPF_PROG(name##_entry, int vector)                                 \
	{                                                                      \
		interrupt_enter(kind, vector);                                 \
		return 0;                                                      \
	}                                                                      \
	SEC("tp_btf/" #name "_exit")                                           \
	int BPF_PROG(name##_exit, int vector)                                  \
	{                                                                      \
		interrupt_exit(kind, vector, NULL);                            \
		return 0;                                                      \
	}

VECTOR(local_timer, INTERRUPT_TIMER)
VECTOR(reschedule, INTERRUPT_IPI)
VECTOR(call_function, INTERRUPT_IPI)
VECTOR(call_function_single, INTERRUPT_IPI)
VECTOR(irq_work, INTERRUPT_IPI)
VECTOR(x86_platform_ipi, INTERRUPT_IPI)
VECTOR(thermal_apic, INTERRUPT_IPI)
#else
SEC("tp_btf/ipi_entry")
int BPF_PROG(ipi_entry, const char *reason)
{
	interrupt_enter(INTERRUPT_IPI, 0);
	return 0;
}

SEC("tp_btf/ipi_exit")
int BPF_PROG(ipi_exit, const char *reason)
{
	interrupt_exit(INTERRUPT_IPI, 0, NULL);
	return 0;
}
#endif

#endif
