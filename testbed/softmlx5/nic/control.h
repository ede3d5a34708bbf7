/* The control socket: commands of the shim. */
#ifndef SOFTMLX5_CONTROL_H
#define SOFTMLX5_CONTROL_H

#include "nic.h"

/* Listen at PATH; false, with errno, when that cannot be. */
bool control_open(const char *path);

/* Wait at most so long (0: not at all) for commands, and execute them. */
void control_run(int timeout_ms);

/*
 * A command: returns 0 or an errno.  fd is the file the message carried, or
 * -1; it is closed afterwards.  *r is zeroed.
 */
typedef int command_fn(struct ctx *c, const struct sm5_req *q, int fd, struct sm5_rep *r);

command_fn cmd_hello, cmd_alloc_uar, cmd_free_uar, cmd_async_fd, cmd_reg_mr, cmd_dereg_mr;
command_fn cmd_create_chan, cmd_destroy_chan, cmd_create_cq, cmd_destroy_cq;
command_fn cmd_create_qp, cmd_modify_qp, cmd_query_qp, cmd_destroy_qp;
command_fn cmd_create_srq, cmd_modify_srq, cmd_query_srq, cmd_destroy_srq;

/* Does [off, off + len) lie in the part of the memfd that holds queues? */
static inline bool in_queue_area(uint64_t off, uint64_t len)
{
	return off >= SM5_QUEUE_OFF && off + len <= SM5_BAR_SIZE && off + len > off;
}

static inline bool power_of_two(uint32_t n)
{
	return n && !(n & (n - 1));
}

#endif
