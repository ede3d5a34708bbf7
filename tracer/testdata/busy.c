/* SPDX-License-Identifier: BSD-2-Clause */
/* A target with a known way of leaving its CPU: busy yield|spin|sleep COUNT */
#define _GNU_SOURCE
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

static volatile unsigned long sink;

/* How often this thread was taken off its CPU while it could have run. */
static long taken_off(void)
{
	struct rusage u;

	getrusage(RUSAGE_THREAD, &u);
	return u.ru_nivcsw;
}

int main(int argc, char **argv)
{
	struct timespec nap = { .tv_nsec = 200000 };
	long count = argc > 2 ? atol(argv[2]) : 0;
	long until = taken_off() + count;

	if (argc < 3)
		return 2;
	if (!strcmp(argv[1], "yield")) {
		while (taken_off() < until)
			for (int i = 0; i < 100; i++)
				sched_yield();
	} else if (!strcmp(argv[1], "spin")) {
		while (taken_off() < until)
			for (int i = 0; i < 2000000; i++)
				sink++;
	} else if (!strcmp(argv[1], "sleep")) {
		for (long i = 0; i < count; i++)
			nanosleep(&nap, NULL);
	} else {
		return 2;
	}
	return 0;
}
