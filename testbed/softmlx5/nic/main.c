/*
 * softmlx5d: the emulated NIC.  One thread watches the doorbells of every
 * open device context, executes the work queue entries it finds, moves the
 * payload between the processes, writes completion queue entries, and raises
 * completion events.  It knows the true time of each of those steps and logs
 * them, so a profiler's findings can be compared with them.
 *
 *   softmlx5d                      run, for the directory SOFTMLX5_DIR
 *   softmlx5d --check KEY=VALUE... are these fit for 'softmlx5 start'?
 *   softmlx5d --check-set KEY=...  and these for 'softmlx5 set'?
 *   softmlx5d --parameters         the defaults
 *
 * Exit status: 0, 1 on failure, 2 for a wrong parameter.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>
#include "clock.h"
#include "control.h"
#include "counters.h"
#include "engine.h"
#include "model.h"
#include "sysfs.h"
#include "truth.h"

enum { EXIT_USAGE = 2 };

static const char *dir = SM5_DEFAULT_DIR;
static ns_t started;
static volatile sig_atomic_t stop, reload;

static void on_signal(int s)
{
	if (s == SIGHUP)
		reload = 1;
	else
		stop = 1;
}

static void in_dir(char p[PATH_MAX], const char *name)
{
	snprintf(p, PATH_MAX, "%s/%s", dir, name);
}

static int fail(const char *what)
{
	fprintf(stderr, "softmlx5d: %s in %s: %s\n", what, dir, strerror(errno));
	return EXIT_FAILURE;
}

/* Tell 'softmlx5 start', 'set' and 'status' which parameters hold. */
static bool write_state(void)
{
	char path[PATH_MAX], tmp[PATH_MAX];
	FILE *f;

	in_dir(path, "state");
	in_dir(tmp, "state.new");
	f = fopen(tmp, "we");
	if (!f)
		return false;
	fprintf(f, "START_NS=%lu\n", started);
	params_print(f, &param);
	return !fclose(f) && !rename(tmp, path);
}

static void on_reload(void)
{
	const char *err = params_load(&param, dir, WHILE_RUNNING);

	if (err)
		fprintf(stderr, "softmlx5d: parameters unchanged: %s\n", err);
	model_seed();
	truth_flush();
	if (!write_state())
		fail("cannot write the state");
}

/*
 * The pid file is locked while the daemon lives, so that one left behind by a
 * crash is told from one in use.  Returns its descriptor, or -1.
 */
static int own_pid_file(char path[PATH_MAX])
{
	struct timespec pause = { 0, 10000000 };
	struct stat a, b;
	int fd, tries = 0;

	in_dir(path, "pid");
	for (;;) {
		fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0644);
		if (fd < 0)
			return -1;
		if (flock(fd, LOCK_EX | LOCK_NB)) {
			close(fd);
			/* 'softmlx5 status' holds it for a moment, to look. */
			if (++tries < 100) {
				nanosleep(&pause, NULL);
				continue;
			}
			errno = EEXIST;
			return -1;
		}
		/* The daemon before us may have unlinked it under our hands. */
		if (!stat(path, &a) && !fstat(fd, &b) && a.st_ino == b.st_ino)
			return ftruncate(fd, 0) ? -1 : fd;
		close(fd);
	}
}

/* Where and how urgently to run; false when the machine refuses. */
static bool set_scheduling(void)
{
	struct sched_param sp = { .sched_priority = param.rt };

	prctl(PR_SET_NAME, "softmlx5-nic");
	prctl(PR_SET_TIMERSLACK, 1);
	if (param.cpu >= 0) {
		cpu_set_t set;

		CPU_ZERO(&set);
		CPU_SET(param.cpu, &set);
		if (sched_setaffinity(0, sizeof(set), &set))
			return false;
	}
	/* To sleep between looks and still run at once when awake. */
	if (param.rt > 0 && sched_setscheduler(0, SCHED_FIFO, &sp))
		fprintf(stderr, "softmlx5d: no real-time priority (%s): other load will delay "
			"the device\n", strerror(errno));
	return true;
}

static void catch_signals(void)
{
	struct sigaction sa = { .sa_handler = on_signal };

	signal(SIGPIPE, SIG_IGN);
	sigaction(SIGHUP, &sa, NULL);
	sigaction(SIGTERM, &sa, NULL);
	sigaction(SIGINT, &sa, NULL);
}

static void print_totals(void)
{
	fprintf(stderr, "softmlx5d: %lu doorbells, %lu requests, %lu bytes, %lu CQEs, "
		"%lu events, %lu RNR, %lu unrung, %lu lost rings\n", stats.doorbells, stats.wrs,
		stats.bytes, stats.cqes, stats.events, stats.rnr, stats.missed, stats.bf_lost);
}

static int serve(void)
{
	char pid_path[PATH_MAX], sock_path[PATH_MAX], log_path[PATH_MAX];
	const char *log = getenv("SOFTMLX5_LOG");
	int pid_fd;

	/* Whoever started us may hold locks and pipes open: not here, or they
	 * would stay so for as long as the device runs. */
	close_range(3, ~0u, 0);
	if (mkdir(dir, 0755) && errno != EEXIST)
		return fail("cannot create the directory");
	pid_fd = own_pid_file(pid_path);
	if (pid_fd < 0)
		return fail(errno == EEXIST ? "already running" : "cannot write the pid file");
	if (!sysfs_write(dir))
		return EXIT_FAILURE;
	in_dir(log_path, "truth.csv");
	if (!truth_open(log ? log : log_path))
		return fail("cannot write the truth log");
	in_dir(sock_path, SM5_SOCK_NAME);
	if (!control_open(sock_path))
		return fail("cannot listen on the control socket");
	catch_signals();
	if (!set_scheduling())
		return fail("cannot run on that CPU");
	engine_calibrate();
	started = now_ns();
	clock_start(started);
	model_seed();
	if (!write_state() || dprintf(pid_fd, "%d\n", getpid()) < 0)
		return fail("cannot write the state");
	engine_run(&stop, &reload, on_reload);
	truth_flush();
	counters_flush();
	print_totals();
	unlink(sock_path);
	unlink(pid_path);
	return 0;
}

static int check(char **pairs, enum param_phase when)
{
	/* What a running daemon was given counts only when it is to go on. */
	const char *err = params_load(&param, when == AT_START ? NULL : dir, AT_START);

	for (; *pairs && !err; pairs++)
		err = param_set_pair(&param, *pairs, when);
	if (!err)
		return 0;
	fprintf(stderr, "softmlx5: %s\n", err);
	return EXIT_USAGE;
}

int main(int argc, char **argv)
{
	const char *err;

	if (getenv("SOFTMLX5_DIR"))
		dir = getenv("SOFTMLX5_DIR");
	if (argc > 1 && !strcmp(argv[1], "--check"))
		return check(argv + 2, AT_START);
	if (argc > 1 && !strcmp(argv[1], "--check-set"))
		return check(argv + 2, WHILE_RUNNING);
	if (argc > 1 && !strcmp(argv[1], "--parameters")) {
		params_print(stdout, &param);
		return 0;
	}
	if (argc > 1) {
		fprintf(stderr, "usage: softmlx5d (start it with 'softmlx5 start')\n");
		return EXIT_USAGE;
	}
	err = params_load(&param, dir, AT_START);
	if (err) {
		fprintf(stderr, "softmlx5d: %s\n", err);
		return EXIT_USAGE;
	}
	return serve();
}
