/* The control socket. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include "control.h"

static command_fn *const commands[SM5_NR_OPS] = {
	[SM5_HELLO] = cmd_hello,
	[SM5_ALLOC_UAR] = cmd_alloc_uar,
	[SM5_FREE_UAR] = cmd_free_uar,
	[SM5_CREATE_CHAN] = cmd_create_chan,
	[SM5_DESTROY_CHAN] = cmd_destroy_chan,
	[SM5_CREATE_CQ] = cmd_create_cq,
	[SM5_DESTROY_CQ] = cmd_destroy_cq,
	[SM5_CREATE_QP] = cmd_create_qp,
	[SM5_MODIFY_QP] = cmd_modify_qp,
	[SM5_QUERY_QP] = cmd_query_qp,
	[SM5_DESTROY_QP] = cmd_destroy_qp,
	[SM5_REG_MR] = cmd_reg_mr,
	[SM5_DEREG_MR] = cmd_dereg_mr,
	[SM5_ASYNC_FD] = cmd_async_fd,
	[SM5_CREATE_SRQ] = cmd_create_srq,
	[SM5_MODIFY_SRQ] = cmd_modify_srq,
	[SM5_QUERY_SRQ] = cmd_query_srq,
	[SM5_DESTROY_SRQ] = cmd_destroy_srq,
};

static int epfd = -1, listener = -1;

bool control_open(const char *path)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };
	struct epoll_event e = { .events = EPOLLIN };

	if (strlen(path) >= sizeof(sa.sun_path)) {
		errno = ENAMETOOLONG;
		return false;
	}
	strcpy(sa.sun_path, path);
	listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	unlink(path);
	if (listener < 0 || bind(listener, (struct sockaddr *)&sa, sizeof(sa)) ||
	    listen(listener, 64))
		return false;
	epfd = epoll_create1(EPOLL_CLOEXEC);
	return epfd >= 0 && !epoll_ctl(epfd, EPOLL_CTL_ADD, listener, &e);
}

static void answer(struct ctx *c, const struct sm5_req *q, int fd)
{
	command_fn *run = q->op < SM5_NR_OPS ? commands[q->op] : NULL;
	struct sm5_rep r = {};

	r.err = run && (c->bar || q->op == SM5_HELLO) ? run(c, q, fd, &r) : EINVAL;
	if (send(c->sock, &r, sizeof(r), MSG_NOSIGNAL | MSG_DONTWAIT) != sizeof(r))
		ctx_free(c);
}

static void ctx_io(struct ctx *c)
{
	struct sm5_req q;
	struct iovec iov = { &q, sizeof(q) };
	char cb[CMSG_SPACE(sizeof(int))];
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1, .msg_control = cb,
			    .msg_controllen = sizeof(cb) };
	ssize_t n = recvmsg(c->sock, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	struct cmsghdr *cm;
	int fd = -1;

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	cm = n > 0 ? CMSG_FIRSTHDR(&m) : NULL;
	if (cm && cm->cmsg_type == SCM_RIGHTS)
		memcpy(&fd, CMSG_DATA(cm), sizeof(int));
	if (n != sizeof(q) || q.magic != SM5_MAGIC)
		ctx_free(c);            /* it closed the device, or is no shim of ours */
	else
		answer(c, &q, fd);
	if (fd >= 0)
		close(fd);
}

static void accept_ctx(void)
{
	struct epoll_event e = { .events = EPOLLIN };
	struct ucred peer;
	socklen_t len = sizeof(peer);
	int s = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	struct ctx *c = calloc(1, sizeof(*c));

	e.data.ptr = c;
	if (!c || s < 0 || nctx == MAX_CTX ||
	    getsockopt(s, SOL_SOCKET, SO_PEERCRED, &peer, &len) ||
	    epoll_ctl(epfd, EPOLL_CTL_ADD, s, &e)) {
		fprintf(stderr, "softmlx5d: cannot take another context: %s\n",
			nctx == MAX_CTX ? "too many" : strerror(errno));
		free(c);
		if (s >= 0)
			close(s);
		return;
	}
	c->sock = s;
	c->pid = peer.pid;
	c->async_w = -1;
	ctxs[nctx++] = c;
}

void control_run(int timeout_ms)
{
	struct epoll_event ev[16];
	int n = epoll_wait(epfd, ev, 16, timeout_ms);

	for (int i = 0; i < n; i++) {
		if (ev[i].data.ptr) {
			ctx_io(ev[i].data.ptr);
			return;         /* it may have freed a later one */
		}
		accept_ctx();
	}
}
