// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* A process of which one thread, not the first, has a system call filter. */
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

static void *filtered(void *unused)
{
	struct sock_filter allow = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	struct sock_fprog prog = { 1, &allow };

	(void)unused;
	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &prog)) {
		perror("seccomp");
		exit(1);
	}
	puts("done");
	fflush(stdout);
	for (;;)
		pause();
}

int main(void)
{
	pthread_t thread;
	char c;

	if (pthread_create(&thread, NULL, filtered, NULL))
		return 1;
	return read(0, &c, 1) < 0;
}
