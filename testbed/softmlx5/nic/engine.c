/* The engine: the loop that is the NIC. */
#include <endian.h>
#include <stdio.h>
#include <stdlib.h>
#include "clock.h"
#include "control.h"
#include "counters.h"
#include "cq.h"
#include "engine.h"
#include "qp.h"
#include "truth.h"

/* The longest sleep that is taken for a minimal one. */
#define SLEEP_FLOOR_MAX 50000

/* Commands are looked for this often with and without work, the log is
 * flushed after so long without. */
#define CONTROL_BUSY    1000000
#define CONTROL_IDLE    100000
#define FLUSH_IDLE      20000000

/*
 * What a minimal sleep really takes here (tens of microseconds in a virtual
 * machine).  A real-time thread that asks for much less comes back before the
 * application on its CPU ran a single instruction, so it is the floor of the
 * polling period.
 */
static ns_t sleep_floor;

static int cmp_ns(const void *a, const void *b)
{
	ns_t x = *(const ns_t *)a, y = *(const ns_t *)b;

	return x < y ? -1 : x > y;
}

void engine_calibrate(void)
{
	ns_t d[301];
	const size_t n = sizeof(d) / sizeof(*d);

	for (size_t i = 0; i < n; i++) {
		struct timespec ts = { 0, 1 };
		ns_t t = now_ns();

		nanosleep(&ts, NULL);
		d[i] = now_ns() - t;
	}
	qsort(d, n, sizeof(*d), cmp_ns);
	sleep_floor = d[n / 2] > SLEEP_FLOOR_MAX ? SLEEP_FLOOR_MAX : d[n / 2];
	fprintf(stderr, "softmlx5d: a minimal sleep takes %lu ns\n", d[n / 2]);
}

static inline void cpu_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

/* One BlueFlame buffer; returns whether it was rung. */
static bool poll_register(struct uar *u, volatile uint64_t *reg)
{
	struct qp *q;
	uint64_t v;

	if (!*reg)
		return false;
	/* Take it and leave it empty, in one step: the process may ring it
	 * again at any moment. */
	v = __atomic_exchange_n((uint64_t *)reg, 0, __ATOMIC_ACQ_REL);
	q = qp_find(be32toh(v >> 32) >> 8);
	if (!q || q->ctx != u->ctx) {
		stats.bf_lost++;
		return false;
	}
	qp_doorbell(q);
	/* A ring of another queue pair on this page may have been overwritten
	 * before it was seen. */
	for (int k = 0; k < nact_qp; k++)
		if (act_qp[k]->uar == q->uar && act_qp[k]->ctx == q->ctx && act_qp[k] != q)
			qp_doorbell(act_qp[k]);
	return true;
}

static bool poll_doorbells(void)
{
	bool any = false;

	for (int i = 0; i < nact_uar; i++) {
		struct uar *u = &uars[act_uar[i]];

		for (int s = 0; s < SM5_BF_SLOTS; s++)
			any |= poll_register(u, u->page + (SM5_BF_FIRST + s * SM5_BF_STEP) / 8);
	}
	return any;
}

static void sooner(ns_t *next, ns_t t)
{
	if (t && (!*next || t < *next))
		*next = t;
}

/* One round over everything; returns when the next look is due, 0: unknown. */
static ns_t do_work(bool *any)
{
	ns_t now = now_ns(), next = 0;

	*any = poll_doorbells();
	for (int i = 0; i < nact_qp; i++)
		sooner(&next, qp_run(act_qp[i], now, any));
	for (int i = 0; i < nact_cq; i++) {
		cq_check_arm(act_cq[i], now);
		sooner(&next, act_cq[i]->event_after);
	}
	return next;
}

/*
 * Sleep until the next look.  The application may share this CPU: a real-time
 * thread that never slept would starve the very process it serves.
 */
static void rest(ns_t t, ns_t last_work, ns_t next)
{
	ns_t d = param.poll_ns;
	struct timespec ts;

	if (next) {
		/* Aim between the deadline and where spinning begins. */
		if (next > t + param.spin_ns && next - t - param.spin_ns / 2 < d)
			d = next - t - param.spin_ns / 2;
	} else if (t - last_work > 2 * SEC) {
		d = 1000000;    /* nothing for a while: look less often */
	} else if (t - last_work > SEC / 5 && d < 100000) {
		d = 100000;
	}
	if (d < sleep_floor)
		d = sleep_floor;
	ts = (struct timespec){ d / SEC, d % SEC };
	nanosleep(&ts, NULL);
}

void engine_run(volatile sig_atomic_t *stop, volatile sig_atomic_t *reload,
		void (*reload_fn)(void))
{
	ns_t last_control = 0, last_work = 0, last_flush = 0, last_sleep = 0;

	while (!*stop) {
		ns_t next, t;
		bool any, spin;

		if (*reload) {
			*reload = 0;
			reload_fn();
		}
		if (!nctx) {
			truth_flush();
			counters_flush();
			control_run(1000);
			continue;
		}
		next = do_work(&any);
		t = now_ns();
		clock_tick(t);
		counters_tick(t);
		if (any)
			last_work = t;
		if (t - last_control > (any ? CONTROL_BUSY : CONTROL_IDLE)) {
			control_run(0);
			last_control = t;
		}
		if (!any && t - last_work > FLUSH_IDLE && t - last_flush > FLUSH_IDLE) {
			truth_flush();
			last_flush = t;
		}
		spin = any || t - last_work < (ns_t)param.linger_ns ||
		       (next && next < t + param.spin_ns);
		if (param.poll == POLL_SPIN ||
		    (spin && t - last_sleep < (ns_t)param.busy_ns)) {
			cpu_relax();
			continue;
		}
		rest(t, last_work, next);
		last_sleep = now_ns();
	}
}
