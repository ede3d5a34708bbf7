/*
 * Completion channels and asynchronous events: pipes whose write end the
 * daemon has.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <rdma/ib_user_ioctl_cmds.h>
#include "shim.h"

/* A pipe whose write end the daemon is told of; 0 or an errno. */
static int new_pipe(struct sm5_ctx *c, enum sm5_op op, int *rfd, int *wfd, uint32_t *id)
{
	struct sm5_req q = { .op = op };
	struct sm5_rep r;
	int p[2], err;

	if (pipe2(p, O_CLOEXEC))
		return EMFILE;
	*rfd = p[0];
	*wfd = fcntl(p[1], F_DUPFD_CLOEXEC, HIGH_FD);
	sys_close(p[1]);
	if (*wfd < 0) {
		sys_close(p[0]);
		return EMFILE;
	}
	fcntl(*wfd, F_SETFL, O_NONBLOCK);       /* the daemon must never wait */
	err = rpc_fd(c, &q, &r, *wfd);
	*id = r.handle;
	if (err) {
		sys_close(*rfd);
		sys_close(*wfd);
	}
	return err;
}

int create_channel(struct call *k)
{
	struct ib_uverbs_create_comp_channel_resp d = {};
	struct sm5_ctx *c = k->c;
	struct chan n;
	int err;

	if (c->nchans == MAX_CHAN)
		return EMFILE;
	err = new_pipe(c, SM5_CREATE_CHAN, &n.rfd, &n.wfd, &n.id);
	if (err)
		return err;
	c->chans[c->nchans++] = n;
	mark_channel(n.rfd);
	d.fd = n.rfd;
	out(k, UVERBS_ATTR_CORE_OUT, &d, sizeof(d));
	return 0;
}

void destroy_channel(struct sm5_ctx *c, int i)
{
	struct sm5_req q = { .op = SM5_DESTROY_CHAN, .handle = c->chans[i].id };
	struct sm5_rep r;

	rpc(c, &q, &r);
	sys_close(c->chans[i].wfd);
	c->chans[i] = c->chans[--c->nchans];
}

int async_fd(struct call *k)
{
	struct sm5_ctx *c = k->c;
	uint32_t id;
	int r, w, err;

	err = new_pipe(c, SM5_ASYNC_FD, &r, &w, &id);
	if (err)
		return err;
	c->async_r = r;
	c->async_w = w;
	out_obj(k, UVERBS_ATTR_ASYNC_EVENT_ALLOC_FD_HANDLE, r);
	return 0;
}

/*
 * Take an object's events out of a pipe of SIZE byte events, which begin with
 * the object's handle; returns how many.
 */
static uint32_t drop_from(int rfd, int wfd, size_t size, uint64_t user_handle)
{
	uint64_t keep[8192], ev[2];     /* 64 KiB: what a pipe holds */
	uint32_t dropped = 0;
	size_t n = 0;
	int flags = fcntl(rfd, F_GETFL);

	fcntl(rfd, F_SETFL, flags | O_NONBLOCK);
	while (n < sizeof(keep) / size && syscall(SYS_read, rfd, ev, size) == (ssize_t)size) {
		if (ev[0] == user_handle)
			dropped++;
		else
			memcpy((char *)keep + n++ * size, ev, size);
	}
	for (size_t i = 0; i < n; i++)
		if (syscall(SYS_write, wfd, (char *)keep + i * size, size) < 0)
			break;
	fcntl(rfd, F_SETFL, flags);
	return dropped;
}

uint32_t drop_events(struct sm5_ctx *c, int rfd, uint64_t user_handle)
{
	for (int i = 0; i < c->nchans; i++)
		if (c->chans[i].rfd == rfd)
			return drop_from(rfd, c->chans[i].wfd, 8, user_handle);
	return 0;
}

uint32_t drop_async(struct sm5_ctx *c, uint64_t user_handle)
{
	if (c->async_r < 0)
		return 0;
	return drop_from(c->async_r, c->async_w, sizeof(struct ib_uverbs_async_event_desc),
			 user_handle);
}
