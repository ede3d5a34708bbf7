/* Talking to the daemon. */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include "shim.h"

static void attach_fd(struct msghdr *m, char *cb, size_t size, int fd)
{
	struct cmsghdr *cm;

	m->msg_control = cb;
	m->msg_controllen = size;
	cm = CMSG_FIRSTHDR(m);
	cm->cmsg_level = SOL_SOCKET;
	cm->cmsg_type = SCM_RIGHTS;
	cm->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(cm), &fd, sizeof(int));
}

int rpc_fd(struct sm5_ctx *c, struct sm5_req *q, struct sm5_rep *r, int fd)
{
	struct iovec iov = { q, sizeof(*q) };
	char cb[CMSG_SPACE(sizeof(int))] = "";
	struct msghdr m = { .msg_iov = &iov, .msg_iovlen = 1 };
	ssize_t n;

	q->magic = SM5_MAGIC;
	if (fd >= 0)
		attach_fd(&m, cb, sizeof(cb), fd);
	do
		n = sendmsg(c->sock, &m, MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	if (n != sizeof(*q))
		return EIO;
	do
		n = recv(c->sock, r, sizeof(*r), 0);
	while (n < 0 && errno == EINTR);
	return n == sizeof(*r) ? r->err : EIO;
}

int rpc(struct sm5_ctx *c, struct sm5_req *q, struct sm5_rep *r)
{
	return rpc_fd(c, q, r, -1);
}
