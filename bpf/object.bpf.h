/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * The life of queue pairs, completion queues and device contexts, at the
 * exported functions that all ways of making them pass through.  These are
 * rare, so they are recorded before the gate opens too.
 */
#ifndef RDMATRACE_OBJECT_BPF_H
#define RDMATRACE_OBJECT_BPF_H

#define SIGSTOP 19

/*
 * Stops our own child until user space has placed the probes that a record
 * calls for.  Only with a record, as user space lets it go on, and before that
 * is submitted: it stops on its way to user mode, but user space may read the
 * record, and let it go on, as soon as it is there.
 */
static __always_inline void hold_if_ours(void)
{
	struct target *target = target_of(current_tgid());

	if (target && target->flags & TARGET_HOLD)
		bpf_send_signal(SIGSTOP);
}

static __always_inline struct qp_record *qp_reserve(struct out *o, enum object_event event, __u64 qp)
{
	__u64 now = bpf_ktime_get_ns();
	struct qp_record *rec = out_reserve(o, sizeof(*rec), RECORD_QP, now);
	struct verbs_qp head;

	if (!rec)
		return NULL;
	__builtin_memset(rec, 0, sizeof(*rec));
	header_fill(&rec->h, o, RECORD_QP, now, event);
	rec->qp = qp;
	rec->sq_sig_all = 2;
	if (bpf_probe_read_user(&head, sizeof(head), (void *)qp)) {
		count(COUNT_QP_UNREADABLE);
		return rec;
	}
	rec->context = head.context;
	rec->send_cq = head.send_cq;
	rec->recv_cq = head.recv_cq;
	rec->srq = head.srq;
	rec->qp_num = head.qp_num;
	rec->qp_type = head.qp_type;
	rec->state = head.state;
	return rec;
}

/* ibv_cmd_create_qp(pd, qp, attr, ..), _ex and _ex2(context, qp, attr_ex, ..) */
SEC("uprobe")
int create_qp_enter(struct pt_regs *ctx)
{
	struct thread *t = thread_hit(ctx);

	if (!t)
		return 0;
	t->create.object = PT_REGS_PARM2(ctx);
	t->create.attr = PT_REGS_PARM3(ctx);
	return 0;
}

SEC("uretprobe")
int create_qp_exit(struct pt_regs *ctx)
{
	struct thread *t = thread_hit(ctx);
	struct verbs_qp_init_attr attr;
	struct qp_record *rec;
	struct out o;
	__u64 qp;

	if (!t || !t->create.object)
		return 0;
	qp = t->create.object;
	t->create.object = 0;
	if ((__s32)PT_REGS_RC(ctx))
		return 0;
	out_open_urgent(&o);
	rec = qp_reserve(&o, OBJECT_CREATED, qp);
	if (!rec)
		return 0;
	if (bpf_probe_read_user(&attr, sizeof(attr), (void *)t->create.attr)) {
		count(COUNT_QP_UNREADABLE);
	} else {
		/* The ibv_qp is filled by then in recent libraries only; its attributes are always there. */
		rec->send_cq = attr.send_cq;
		rec->recv_cq = attr.recv_cq;
		rec->srq = attr.srq;
		rec->qp_type = attr.qp_type;
		rec->max_send_wr = attr.max_send_wr;
		rec->sq_sig_all = attr.sq_sig_all != 0;
		if (!rec->context && attr.send_cq &&
		    bpf_probe_read_user(&rec->context, sizeof(rec->context), (void *)attr.send_cq))
			count(COUNT_QP_UNREADABLE);
	}
	out_submit(&o, rec);
	return 0;
}

/* ibv_modify_qp(qp, attr, mask) */
SEC("uprobe")
int modify_qp_enter(struct pt_regs *ctx)
{
	struct thread *t = thread_hit(ctx);
	__u32 state;

	if (!t)
		return 0;
	t->modify.object = PT_REGS_PARM1(ctx);
	t->modify.attr = PT_REGS_PARM2(ctx);
	t->modify.mask = (__u32)PT_REGS_PARM3(ctx);
	if (t->modify.mask & VERBS_ATTR_STATE &&
	    !bpf_probe_read_user(&state, sizeof(state), (void *)(t->modify.attr + __builtin_offsetof(struct verbs_qp_attr, qp_state))) &&
	    state == VERBS_QPS_RESET)
		qp_cleaned();
	return 0;
}

static __always_inline void qp_attributes(struct qp_record *rec, const struct verbs_qp_attr *a, __u32 mask)
{
	rec->attr_mask = mask;
	if (mask & VERBS_ATTR_STATE)
		rec->state = a->qp_state;
	if (mask & VERBS_ATTR_PATH_MTU)
		rec->path_mtu = a->path_mtu;
	if (mask & VERBS_ATTR_DEST_QPN)
		rec->dest_qp_num = a->dest_qp_num;
	if (mask & VERBS_ATTR_MAX_RD_ATOMIC)
		rec->max_rd_atomic = a->max_rd_atomic;
	if (mask & VERBS_ATTR_MIN_RNR_TIMER)
		rec->min_rnr_timer = a->min_rnr_timer;
	if (mask & VERBS_ATTR_TIMEOUT)
		rec->timeout = a->timeout;
	if (mask & VERBS_ATTR_RETRY_CNT)
		rec->retry_cnt = a->retry_cnt;
	if (mask & VERBS_ATTR_RNR_RETRY)
		rec->rnr_retry = a->rnr_retry;
	if (mask & VERBS_ATTR_PORT)
		rec->port_num = a->port_num;
	if (mask & VERBS_ATTR_AV) {
		if (!rec->port_num)
			rec->port_num = a->ah_port_num;
		rec->dlid = a->dlid;
		if (a->is_global)
			__builtin_memcpy(rec->dgid, a->dgid, sizeof(rec->dgid));
	}
}

SEC("uretprobe")
int modify_qp_exit(struct pt_regs *ctx)
{
	struct thread *t = thread_hit(ctx);
	struct verbs_qp_attr attr;
	struct qp_record *rec;
	bool ready = false;
	struct out o;
	__u64 qp;

	if (!t || !t->modify.object)
		return 0;
	qp = t->modify.object;
	t->modify.object = 0;
	if ((__s32)PT_REGS_RC(ctx))
		return 0;
	out_open_urgent(&o);
	rec = qp_reserve(&o, OBJECT_MODIFIED, qp);
	if (!rec)
		return 0;
	if (bpf_probe_read_user(&attr, sizeof(attr), (void *)t->modify.attr)) {
		count(COUNT_QP_UNREADABLE);
	} else {
		qp_attributes(rec, &attr, t->modify.mask);
		ready = t->modify.mask & VERBS_ATTR_STATE && attr.qp_state == VERBS_QPS_RTS;
	}
	/* libmlx5 gives a QP its working wr_complete only now. */
	if (ready)
		hold_if_ours();
	out_submit(&o, rec);
	return 0;
}

SEC("uprobe")
int destroy_qp_enter(struct pt_regs *ctx)
{
	struct qp_record *rec;
	struct out o;

	if (!thread_hit(ctx))
		return 0;
	qp_cleaned();
	out_open(&o);
	rec = qp_reserve(&o, OBJECT_DESTROYED, PT_REGS_PARM1(ctx));
	if (rec)
		out_submit(&o, rec);
	return 0;
}

static __always_inline struct cq_record *cq_reserve(struct out *o, enum object_event event, __u64 cq)
{
	__u64 now = bpf_ktime_get_ns();
	struct cq_record *rec = out_reserve(o, sizeof(*rec), RECORD_CQ, now);

	if (!rec)
		return NULL;
	__builtin_memset(rec, 0, sizeof(*rec));
	header_fill(&rec->h, o, RECORD_CQ, now, event);
	rec->cq = cq;
	rec->channel_fd = -1;
	rec->comp_vector = ~0U;
	return rec;
}

/*
 * verbs_init_cq(cq, context, channel, cq_context): the last step of every way
 * to make a CQ; the context and channel are its arguments, the size is there.
 */
SEC("uprobe")
int init_cq_enter(struct pt_regs *ctx)
{
	struct thread *t = thread_hit(ctx);
	struct cq_record *rec;
	struct verbs_cq head;
	struct out o;

	if (!t)
		return 0;
	cq_state_new(PT_REGS_PARM1(ctx));
	out_open_urgent(&o);
	rec = cq_reserve(&o, OBJECT_CREATED, PT_REGS_PARM1(ctx));
	if (!rec)
		return 0;
	rec->context = PT_REGS_PARM2(ctx);
	rec->channel = PT_REGS_PARM3(ctx);
	if (bpf_probe_read_user(&head, sizeof(head), (void *)rec->cq))
		count(COUNT_QP_UNREADABLE);
	else
		rec->cqe = head.cqe;
	if (rec->channel &&
	    bpf_probe_read_user(&rec->channel_fd, sizeof(rec->channel_fd), (void *)(rec->channel + VERBS_CHANNEL_FD)))
		count(COUNT_QP_UNREADABLE);
	rec->comp_vector = t->cq_vector - 1;
	t->cq_vector = 0;
	out_submit(&o, rec);
	return 0;
}

/* ibv_cmd_create_cq(context, cqe, channel, comp_vector, ..) */
SEC("uprobe")
int create_cq_enter(struct pt_regs *ctx)
{
	struct thread *t = thread_hit(ctx);

	if (t)
		t->cq_vector = (__u32)PT_REGS_PARM4(ctx) + 1;
	return 0;
}

/* ibv_cmd_create_cq_ex(context, attr_ex, ..) */
SEC("uprobe")
int create_cq_ex_enter(struct pt_regs *ctx)
{
	struct thread *t = thread_hit(ctx);
	__u32 vector;

	if (!t)
		return 0;
	if (bpf_probe_read_user(&vector, sizeof(vector), (void *)(PT_REGS_PARM2(ctx) + VERBS_CQ_ATTR_VECTOR)))
		count(COUNT_QP_UNREADABLE);
	else
		t->cq_vector = vector + 1;
	return 0;
}

SEC("uprobe")
int destroy_cq_enter(struct pt_regs *ctx)
{
	struct object_key key = { .object = PT_REGS_PARM1(ctx), .pid = current_tgid() };
	struct cq_record *rec;
	struct out o;

	if (!thread_hit(ctx))
		return 0;
	out_open(&o);
	rec = cq_reserve(&o, OBJECT_DESTROYED, key.object);
	if (rec)
		out_submit(&o, rec);
	/* Not there if it was made before the trace and never polled. */
	bpf_map_delete_elem(&cqs, &key);
	return 0;
}

static __always_inline void context_emit(enum object_event event, __u64 context)
{
	__u64 now = bpf_ktime_get_ns();
	struct device_context_record *rec;
	__u64 device = 0;
	struct out o;

	out_open_urgent(&o);
	rec = out_reserve(&o, sizeof(*rec), RECORD_DEVICE_CONTEXT, now);
	if (!rec)
		return;
	__builtin_memset(rec, 0, sizeof(*rec));
	header_fill(&rec->h, &o, RECORD_DEVICE_CONTEXT, now, event);
	rec->context = context;
	if (bpf_probe_read_user(&device, sizeof(device), (void *)context) ||
	    bpf_probe_read_user(rec->device, sizeof(rec->device), (void *)(device + VERBS_DEVICE_NAME)))
		count(COUNT_QP_UNREADABLE);
	if (event == OBJECT_CREATED)
		hold_if_ours();
	out_submit(&o, rec);
}

/* verbs_open_device and ibv_import_device return the ibv_context. */
SEC("uretprobe")
int open_device_exit(struct pt_regs *ctx)
{
	__u64 context = PT_REGS_RC(ctx);

	if (!context || !thread_hit(ctx))
		return 0;
	context_emit(OBJECT_CREATED, context);
	return 0;
}

SEC("uprobe")
int close_device_enter(struct pt_regs *ctx)
{
	if (thread_hit(ctx))
		context_emit(OBJECT_DESTROYED, PT_REGS_PARM1(ctx));
	return 0;
}

/*
 * _dl_debug_state of the target's dynamic linker, which it calls for
 * debuggers whenever the list of loaded objects changed: a library may be new.
 */
SEC("uprobe")
int library_enter(struct pt_regs *ctx)
{
	__u64 now = bpf_ktime_get_ns();
	struct library_record *rec;
	struct out o;

	if (!thread_hit(ctx))
		return 0;
	out_open_urgent(&o);
	rec = out_reserve(&o, sizeof(*rec), RECORD_LIBRARY, now);
	if (!rec)
		return 0;
	__builtin_memset(rec, 0, sizeof(*rec));
	header_fill(&rec->h, &o, RECORD_LIBRARY, now, 0);
	hold_if_ours();
	out_submit(&o, rec);
	return 0;
}

#endif
