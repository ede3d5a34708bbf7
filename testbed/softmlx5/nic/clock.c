/* The device's own clock. */
#include <endian.h>
#include <rdma/mlx5-abi.h>
#include "clock.h"

static ns_t started;

void clock_start(ns_t start)
{
	started = start;
}

/* Division that rounds down: the clock may be before its zero. */
static int64_t floor_div(__int128 a, int64_t b)
{
	return a / b - (a % b < 0);
}

static int64_t device_ns(ns_t t)
{
	int64_t up = t - started;
	int64_t ns = t + param.clock_offset;

	ns += floor_div((__int128)up * param.clock_drift, SEC);
	if (up >= param.clock_step_at)
		ns += param.clock_step;
	return ns;
}

uint64_t clock_stamp(ns_t t)
{
	int64_t ns = device_ns(t), sec;

	if (param.clock_format == CLOCK_FREE)
		return floor_div((__int128)ns * param.clock_hz, SEC);
	sec = floor_div(ns, SEC);
	return (uint64_t)(uint32_t)sec << 32 | (ns - sec * (int64_t)SEC);
}

static void show_cycles(struct ctx *c, ns_t t)
{
	*(volatile uint64_t *)(c->bar + SM5_CLOCK_OFF) = htobe64(clock_stamp(t));
}

/*
 * The page from which libmlx5 converts a timestamp to wall-clock time:
 * nsec + ((timestamp - cycles) * mult >> shift).  The kernel keeps it fresh,
 * and its readers off it while it changes, in the same way.  A time in
 * CLOCK_FORMAT=real cannot be told so; the shim does not offer the page then.
 */
static void show_info(struct ctx *c)
{
	struct mlx5_ib_clock_info *ci = (void *)(c->bar + SM5_CLOCKINFO_OFF);
	uint32_t sign = ci->sign;
	struct timespec real;
	ns_t t;

	__atomic_store_n(&ci->sign, sign | MLX5_IB_CLOCK_INFO_KERNEL_UPDATING, __ATOMIC_SEQ_CST);
	t = now_ns();
	clock_gettime(CLOCK_REALTIME, &real);
	ci->cycles = clock_stamp(t);
	ci->nsec = real.tv_sec * SEC + real.tv_nsec;
	ci->frac = 0;
	ci->shift = 21;                 /* mult fits 32 bits down to 1 MHz */
	ci->mult = (SEC << ci->shift) / param.clock_hz;
	ci->mask = 0x7fffffffffffffffull;
	ci->overflow_period = SEC;
	__atomic_store_n(&ci->sign, sign + 2 * MLX5_IB_CLOCK_INFO_KERNEL_UPDATING,
			 __ATOMIC_RELEASE);
}

void clock_show(struct ctx *c, ns_t t)
{
	show_cycles(c, t);
	show_info(c);
}

void clock_tick(ns_t t)
{
	static ns_t last_info;
	bool info = t - last_info >= SEC;

	for (int i = 0; i < nctx; i++) {
		if (!ctxs[i]->bar)
			continue;
		show_cycles(ctxs[i], t);
		if (info)
			show_info(ctxs[i]);
	}
	if (info)
		last_info = t;
}
