/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* One ring buffer per CPU; the reader drains by deadline and is woken only when one fills up. */
#ifndef RDMATRACE_RING_BPF_H
#define RDMATRACE_RING_BPF_H

struct ring {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);	/* user space makes them larger */
};

/* Indexed by CPU number. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, 1);		/* user space sets it */
	__type(key, __u32);
	__array(values, struct ring);
} rings SEC(".maps");

/* The ring of this CPU, looked up once for all records of one program run. */
struct out {
	void *ring;
	__u64 wake;
	__u32 cpu;
};

/*
 * A forced wakeup raises an interrupt, which on top of a target's thread is a
 * record as well.  Without a pause between them a ring that is filling up
 * while the reader cannot run would interrupt the target without end.
 */
#define WAKE_PAUSE_NS 1000000

static __always_inline bool wake_due(void)
{
	struct stats *s = stats_here();
	__u64 now = bpf_ktime_get_ns();

	if (!s || now - s->woken < WAKE_PAUSE_NS)
		return false;
	s->woken = now;
	return true;
}

static __always_inline void out_open(struct out *o)
{
	o->cpu = bpf_get_smp_processor_id();
	o->wake = BPF_RB_NO_WAKEUP;
	o->ring = bpf_map_lookup_elem(&rings, &o->cpu);
	if (!o->ring)
		count(COUNT_NO_RING);
	else if (bpf_ringbuf_query(o->ring, BPF_RB_AVAIL_DATA) > wake_bytes && wake_due())
		o->wake = BPF_RB_FORCE_WAKEUP;
}

/* Rare records that user space has to act on. */
static __always_inline void out_open_urgent(struct out *o)
{
	out_open(o);
	o->wake = BPF_RB_FORCE_WAKEUP;
}

/*
 * What it gives is tested once, right where it is made: the verifier of 6.1 takes
 * a second test for one that may fail, with the record still reserved.
 */
static __always_inline void *out_reserve(struct out *o, __u64 size, enum record_kind kind, __u64 time)
{
	void *rec = NULL;

	if (o->ring)
		rec = bpf_ringbuf_reserve(o->ring, size, 0);
	if (!rec)
		count_dropped(kind, time);
	return rec;
}

static __always_inline void out_submit(struct out *o, void *rec)
{
	bpf_ringbuf_submit(rec, o->wake);
}

/* A header for a record about the thread that runs. */
static __always_inline void header_fill(struct record_header *h, const struct out *o, enum record_kind kind,
					__u64 time, __u32 flags)
{
	__u64 id = bpf_get_current_pid_tgid();

	h->time = time;
	h->pid = id >> 32;
	h->tid = id;
	h->kind = kind;
	h->cpu = o->cpu;
	h->flags = flags;
}

#endif
