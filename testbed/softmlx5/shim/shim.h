/*
 * libsoftmlx5.so: the "kernel" side of the emulated HCA, LD_PRELOADed.
 *
 * It answers only the control path (opening the device, the uverbs ioctl,
 * sysfs files) and forwards object creation to the NIC daemon.  The data path
 * (posting, doorbells, polling, arming) is the unmodified libmlx5 working on
 * memory that the daemon shares; no code of this library runs on it, and it
 * starts no thread.
 */
#ifndef SOFTMLX5_SHIM_H
#define SOFTMLX5_SHIM_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <unistd.h>
#include <sys/syscall.h>
#include <rdma/rdma_user_ioctl_cmds.h>
#include "../proto.h"

/* A descriptor at or above that cannot be a device or channel of ours. */
#define MAX_FD    1024
#define MAX_CHAN  64

/* Our own descriptors go out of the way of an application that counts on
 * getting low ones. */
#define HIGH_FD   800

/* Pages of the application that were moved into the memfd. */
struct shared_range {
	uintptr_t addr;
	size_t len;
	uint64_t off;           /* in the memfd */
	int refs;               /* queues in it; 0: this place is free */
};

/* A completion channel: a pipe. */
struct chan {
	int rfd;                /* the application's end */
	int wfd;                /* ours; the daemon has a copy */
	uint32_t id;            /* what the daemon calls it */
};

enum queue_kind { Q_NONE, Q_CQ, Q_QP, Q_SRQ };

/* What each queue object holds, to be released with it. */
struct queue {
	enum queue_kind kind;   /* Q_NONE: this place is free */
	uint32_t handle;
	uintptr_t buf, db;      /* addresses in shared ranges */
	uint64_t user_handle;
	int chan_rfd;           /* of a CQ; -1: no channel */
};

/* An open device context. */
struct sm5_ctx {
	pid_t pid;              /* who opened it: a forked child is a stranger */
	int fd;                 /* the memfd, the command fd of libibverbs */
	int sock;               /* to the daemon */
	pthread_mutex_t lock;   /* held over each ioctl */
	uint64_t brk;           /* next free offset of the queue area */
	struct shared_range *ranges;
	size_t nranges;
	struct queue *queues;
	size_t nqueues;
	struct chan chans[MAX_CHAN];
	int nchans;
	int async_r, async_w;   /* asynchronous events; the daemon has a copy of w */
	uint32_t next_handle;   /* of objects that the daemon need not know */
	struct sm5_rep dev;     /* what the daemon said of itself */
};

/* context.c */
struct sm5_ctx *ctx_get(int fd);                /* NULL: not a device of ours */
const char *sm5_dir(void);
int open_device(void);                          /* an fd, or -1 with errno */
void close_hook(int fd);                        /* before fd is closed */
void mark_channel(int fd);
void dbg(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* rpc.c: 0 or an errno.  fd goes along; -1: none. */
int rpc_fd(struct sm5_ctx *c, struct sm5_req *q, struct sm5_rep *r, int fd);
int rpc(struct sm5_ctx *c, struct sm5_req *q, struct sm5_rep *r);

/*
 * share.c: move [addr, addr + len) into the memfd, keeping its contents and
 * its address; *off is where it is there.  0 or an errno.
 */
int share_range(struct sm5_ctx *c, uintptr_t addr, size_t len, uint64_t *off);
void unshare_range(struct sm5_ctx *c, uintptr_t addr);

/* attr.c: the attributes of one ioctl. */
struct call {
	struct sm5_ctx *c;
	struct ib_uverbs_ioctl_hdr *h;
};

struct ib_uverbs_attr *attr(const struct call *k, unsigned id);
size_t in(const struct call *k, unsigned id, void *dst, size_t size);
uint64_t in_u64(const struct call *k, unsigned id);
void out(const struct call *k, unsigned id, const void *src, size_t size);
void out_obj(const struct call *k, unsigned id, uint32_t handle);

/* Answers: 0 or an errno. */
typedef int call_fn(struct call *k);

/* device.c */
call_fn get_context, query_port, query_gid_entry, query_gid_table, query_device,
	query_device_ex;

/* events.c */
call_fn create_channel, async_fd;
void destroy_channel(struct sm5_ctx *c, int i);
/* Take the events of a dying object out of its pipe; returns how many. */
uint32_t drop_events(struct sm5_ctx *c, int rfd, uint64_t user_handle);
uint32_t drop_async(struct sm5_ctx *c, uint64_t user_handle);

/* queues.c */
call_fn create_cq, destroy_cq, create_qp, destroy_qp, create_srq, destroy_srq;

/* write.c: the old write() commands, which arrive by ioctl too */
call_fn invoke_write;

/* uverbs.c */
int uverbs_ioctl(struct sm5_ctx *c, struct ib_uverbs_ioctl_hdr *h);

/* Not by way of libc, where our own close() is. */
static inline int sys_close(int fd)
{
	return syscall(SYS_close, fd);
}

#endif
