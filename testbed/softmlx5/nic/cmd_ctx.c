/* Commands for a context, its UAR pages and its memory regions. */
#define _GNU_SOURCE
#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "clock.h"
#include "control.h"

int cmd_hello(struct ctx *c, const struct sm5_req *q, int fd, struct sm5_rep *r)
{
	uint64_t prefix = htobe64(0xfe80000000000000ull), guid = htobe64(SM5_GUID);
	void *p;

	(void)q;
	if (fd < 0 || c->bar)
		return EINVAL;
	p = mmap(NULL, SM5_BAR_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
	if (p == MAP_FAILED)
		return ENOMEM;
	c->bar = p;
	clock_show(c, now_ns());
	r->dev.eth = param.link == LINK_ETH;
	r->dev.guid = SM5_GUID;
	r->dev.lid = SM5_LID;
	r->dev.clock_hz = param.clock_hz;
	r->dev.clock_real = param.clock_format == CLOCK_REAL;
	memcpy(r->dev.gid, &prefix, 8);
	memcpy(r->dev.gid + 8, &guid, 8);
	return 0;
}

int cmd_alloc_uar(struct ctx *c, const struct sm5_req *q, int fd, struct sm5_rep *r)
{
	(void)q, (void)fd;
	for (int i = 1; i < SM5_MAX_UAR; i++) {
		if (uars[i].ctx)
			continue;
		uars[i].ctx = c;
		uars[i].page = (void *)(c->bar + SM5_UAR_OFF + i * SM5_PAGE);
		memset((void *)uars[i].page, 0, SM5_PAGE);
		act_uar[nact_uar++] = i;
		r->id = i;
		return 0;
	}
	return ENOMEM;
}

int cmd_free_uar(struct ctx *c, const struct sm5_req *q, int fd, struct sm5_rep *r)
{
	(void)fd, (void)r;
	if (q->handle >= SM5_MAX_UAR || uars[q->handle].ctx != c)
		return EINVAL;
	uar_free(q->handle);
	return 0;
}

int cmd_async_fd(struct ctx *c, const struct sm5_req *q, int fd, struct sm5_rep *r)
{
	(void)q, (void)r;
	if (fd < 0 || c->async_w >= 0)
		return EINVAL;
	c->async_w = dup(fd);
	return c->async_w < 0 ? errno : 0;
}

int cmd_reg_mr(struct ctx *c, const struct sm5_req *q, int fd, struct sm5_rep *r)
{
	static int hint;
	/* Number 0 is left out: a key of 0 is nobody's. */
	int k = slot_find((void **)mrs + 1, MAX_OBJ - 1, &hint) + 1;
	struct mr *m = k ? malloc(sizeof(*m)) : NULL;

	(void)fd;
	if (!m)
		return ENOMEM;
	*m = (struct mr){ .ctx = c, .start = q->mr.start, .len = q->mr.length,
			  .va = q->mr.hca_va, .access = q->mr.access, .pd = q->mr.pd,
			  .key = (uint32_t)k << 8 | 0x5a };
	mrs[k] = m;
	r->handle = k;
	r->id = m->key;
	return 0;
}

int cmd_dereg_mr(struct ctx *c, const struct sm5_req *q, int fd, struct sm5_rep *r)
{
	(void)fd, (void)r;
	if (q->handle >= MAX_OBJ || !mrs[q->handle] || mrs[q->handle]->ctx != c)
		return EINVAL;
	free(mrs[q->handle]);
	mrs[q->handle] = NULL;
	return 0;
}
