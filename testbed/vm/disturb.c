/*
 * Known disturbances, each until it is killed.
 *   vm-duty RUN_US PERIOD_US       computes for RUN_US from every PERIOD_US on, at
 *                                  real-time priority; says "ready", and at SIGTERM
 *                                  when it did: begin end, CLOCK_MONOTONIC ns
 *   vm-flood FROM TO COUNT EACH_US [TURN_US [TAPS]]
 *                                  sends COUNT small UDP datagrams every EACH_US
 *                                  from one IPv4 address to another: all the time, or
 *                                  every other TURN_US if that is not 0, and says when
 *                                  as vm-duty does; so many packet sockets take IPv4
 *                                  packets too, which makes each costly to receive
 * One program: its name says what it does.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_ether.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static uint64_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ull + t.tv_nsec;
}

static void sleep_until(uint64_t at)
{
	struct timespec t = { .tv_sec = at / 1000000000, .tv_nsec = at % 1000000000 };

	clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
}

#define TURNS 100000
static struct { uint64_t begin, end; } turns[TURNS];
static volatile sig_atomic_t stop;

static void on_term(int sig)
{
	stop = sig;
}

static void say_turns(int n)
{
	for (int i = 0; i < n; i++)
		printf("%llu %llu\n", (unsigned long long)turns[i].begin, (unsigned long long)turns[i].end);
}

static int duty(uint64_t run, uint64_t period)
{
	struct sched_param param = { .sched_priority = 10 };
	uint64_t at;
	int n = 0;

	signal(SIGTERM, on_term);
	if (sched_setscheduler(0, SCHED_FIFO, &param)) {
		perror("sched_setscheduler");
		return 1;
	}
	puts("ready");
	fflush(stdout);
	for (at = now(); !stop && n < TURNS; at += period) {
		sleep_until(at);
		turns[n].begin = now();
		do
			turns[n].end = now();
		while (turns[n].end < turns[n].begin + run);
		n++;
	}
	say_turns(n);
	return 0;
}

/*
 * Sends until the time is over; too much for it: the pauses go first. What the device
 * has no room for is part of a flood, anything else is none.
 */
static bool send_until(int out, long count, uint64_t each, uint64_t end)
{
	char bytes[64] = "";

	for (uint64_t at = now(); !stop && at < end; at = at + each < now() ? now() : at + each) {
		sleep_until(at);
		for (long i = 0; i < count; i++)
			if (send(out, bytes, sizeof(bytes), 0) < 0 && errno != ENOBUFS && errno != EINTR) {
				perror("send");
				return false;
			}
	}
	return true;
}

/* Sockets that get all IPv4 packets received, but not those sent: nobody reads them. */
static int tap(long taps)
{
	while (taps-- > 0) {
		if (socket(AF_PACKET, SOCK_DGRAM, htons(ETH_P_IP)) < 0) {
			perror("tap");
			return -1;
		}
	}
	return 0;
}

static int flood(const char *from, const char *to, long count, uint64_t each, uint64_t turn)
{
	struct sockaddr_in a = { .sin_family = AF_INET }, b = { .sin_family = AF_INET, .sin_port = htons(9) };
	int out = socket(AF_INET, SOCK_DGRAM, 0), in = socket(AF_INET, SOCK_DGRAM, 0), n = 0;

	/* Somebody has that port, who never reads: no errors are sent back. */
	if (inet_pton(AF_INET, from, &a.sin_addr) != 1 || inet_pton(AF_INET, to, &b.sin_addr) != 1 ||
	    bind(in, (struct sockaddr *)&b, sizeof(b)) || bind(out, (struct sockaddr *)&a, sizeof(a)) ||
	    connect(out, (struct sockaddr *)&b, sizeof(b))) {
		perror("flood");
		return 1;
	}
	signal(SIGTERM, on_term);
	puts("ready");
	fflush(stdout);
	if (!turn && !send_until(out, count, each, UINT64_MAX))
		return 1;
	while (!stop && n < TURNS) {
		turns[n].begin = now();
		if (!send_until(out, count, each, turns[n].begin + turn))
			return 1;
		turns[n].end = now();
		sleep_until(turns[n++].end + turn);
	}
	say_turns(n);
	return 0;
}

int main(int argc, char **argv)
{
	const char *name = strrchr(argv[0], '/') ? strrchr(argv[0], '/') + 1 : argv[0];

	if (!strcmp(name, "vm-duty") && argc == 3)
		return duty(atol(argv[1]) * 1000, atol(argv[2]) * 1000);
	if (!strcmp(name, "vm-flood") && argc >= 5 && argc <= 7)
		return tap(argc > 6 ? atol(argv[6]) : 0) ||
		       flood(argv[1], argv[2], atol(argv[3]), atol(argv[4]) * 1000, argc > 5 ? atol(argv[5]) * 1000 : 0);
	fprintf(stderr, "usage: vm-duty RUN_US PERIOD_US | vm-flood FROM TO COUNT EACH_US [TURN_US [TAPS]]\n");
	return 2;
}
