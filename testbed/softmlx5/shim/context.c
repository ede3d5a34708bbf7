/* Opening and closing the device. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include "shim.h"

static struct sm5_ctx *ctx_of_fd[MAX_FD];
static unsigned char is_channel[MAX_FD];
static pthread_mutex_t open_lock = PTHREAD_MUTEX_INITIALIZER;

const char *sm5_dir(void)
{
	const char *d = getenv("SOFTMLX5_DIR");

	return d && *d ? d : SM5_DEFAULT_DIR;
}

void dbg(const char *fmt, ...)
{
	static int on = -1;
	va_list ap;

	if (on < 0)
		on = getenv("SOFTMLX5_DEBUG") != NULL;
	if (!on)
		return;
	va_start(ap, fmt);
	fputs("softmlx5: ", stderr);
	vfprintf(stderr, fmt, ap);
	fputc('\n', stderr);
	va_end(ap);
}

struct sm5_ctx *ctx_get(int fd)
{
	return fd >= 0 && fd < MAX_FD ? ctx_of_fd[fd] : NULL;
}

void mark_channel(int fd)
{
	if (fd < MAX_FD)
		is_channel[fd] = 1;
}

/* A connection to the daemon, or -1 with errno. */
static int connect_daemon(void)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	int s = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0), high;

	if (s < 0)
		return -1;
	snprintf(sa.sun_path, sizeof(sa.sun_path), "%s/%s", sm5_dir(), SM5_SOCK_NAME);
	if (connect(s, (struct sockaddr *)&sa, sizeof(sa))) {
		fprintf(stderr, "softmlx5: no NIC daemon at %s (start it with 'softmlx5 start')\n",
			sa.sun_path);
		sys_close(s);
		errno = ENXIO;
		return -1;
	}
	high = fcntl(s, F_DUPFD_CLOEXEC, HIGH_FD);
	sys_close(s);
	return high;
}

/* The memfd, or -1 with errno. */
static int create_bar(void)
{
	int fd = memfd_create("softmlx5-bar", MFD_CLOEXEC);

	if (fd >= 0 && fd < MAX_FD && !ftruncate(fd, SM5_BAR_SIZE))
		return fd;
	if (fd >= 0)
		sys_close(fd);
	errno = EMFILE;
	return -1;
}

static void ctx_destroy(struct sm5_ctx *c)
{
	if (c->sock >= 0)
		sys_close(c->sock);     /* the daemon frees what is left */
	if (c->async_w >= 0)
		sys_close(c->async_w);
	for (int i = 0; i < c->nchans; i++)
		sys_close(c->chans[i].wfd);
	free(c->ranges);
	free(c->queues);
	free(c);
}

int open_device(void)
{
	struct sm5_req q = { .op = SM5_HELLO };
	struct sm5_ctx *c = calloc(1, sizeof(*c));
	int err;

	if (!c) {
		errno = ENOMEM;
		return -1;
	}
	pthread_mutex_init(&c->lock, NULL);
	c->pid = getpid();
	c->fd = c->async_r = c->async_w = -1;
	c->brk = SM5_QUEUE_OFF;
	c->sock = connect_daemon();
	if (c->sock >= 0)
		c->fd = create_bar();
	err = c->fd < 0 ? errno : rpc_fd(c, &q, &c->dev, c->fd);
	if (err) {
		if (c->fd >= 0)
			sys_close(c->fd);
		ctx_destroy(c);
		errno = err;
		return -1;
	}
	pthread_mutex_lock(&open_lock);
	ctx_of_fd[c->fd] = c;
	pthread_mutex_unlock(&open_lock);
	return c->fd;
}

static void close_channel(int fd)
{
	is_channel[fd] = 0;
	for (int f = 0; f < MAX_FD; f++) {
		struct sm5_ctx *c = ctx_of_fd[f];

		for (int i = 0; c && i < c->nchans; i++) {
			if (c->chans[i].rfd != fd)
				continue;
			if (c->pid != getpid())
				return;
			pthread_mutex_lock(&c->lock);
			destroy_channel(c, i);
			pthread_mutex_unlock(&c->lock);
			return;
		}
	}
}

void close_hook(int fd)
{
	struct sm5_ctx *c = ctx_get(fd);

	if (c) {
		ctx_of_fd[fd] = NULL;
		ctx_destroy(c);
	} else if (fd >= 0 && fd < MAX_FD && is_channel[fd]) {
		close_channel(fd);
	}
}
