/* Sharing the pages of queues and doorbell records with the daemon. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include "shim.h"

/*
 * Not by way of libc: UCX patches its mmap() and mremap() to invalidate what
 * it has registered, and the application's pages stay where they are here.
 */
static void *sys_mmap(size_t len, int flags, int fd, uint64_t off)
{
	return (void *)syscall(SYS_mmap, NULL, len, PROT_READ | PROT_WRITE, flags, fd, off);
}

static void *sys_move(void *from, size_t len, void *to)
{
	return (void *)syscall(SYS_mremap, from, len, len, MREMAP_MAYMOVE | MREMAP_FIXED, to);
}

/* Put a new mapping, filled as the old one is, in its place. */
static bool replace(uintptr_t addr, size_t len, int flags, int fd, uint64_t off)
{
	void *p = sys_mmap(len, flags, fd, off);

	if (p == MAP_FAILED)
		return false;
	memcpy(p, (void *)addr, len);
	if (sys_move(p, len, (void *)addr) != MAP_FAILED)
		return true;
	syscall(SYS_munmap, p, len);
	return false;
}

static struct shared_range *range_add(struct sm5_ctx *c)
{
	struct shared_range *n;

	for (size_t i = 0; i < c->nranges; i++)
		if (!c->ranges[i].refs)
			return &c->ranges[i];
	n = realloc(c->ranges, (c->nranges + 1) * sizeof(*n));
	if (!n)
		return NULL;
	c->ranges = n;
	n[c->nranges].refs = 0;
	return &n[c->nranges++];
}

/*
 * libmlx5 allocates these buffers page aligned and for itself; the page of
 * doorbell records is shared by several queues, so ranges are reference
 * counted.
 */
int share_range(struct sm5_ctx *c, uintptr_t addr, size_t len, uint64_t *off)
{
	uintptr_t lo = addr & ~(SM5_PAGE - 1);
	size_t size = ((addr + len + SM5_PAGE - 1) & ~(SM5_PAGE - 1)) - lo;
	struct shared_range *r;

	for (size_t i = 0; i < c->nranges; i++) {
		r = &c->ranges[i];
		if (r->refs && lo >= r->addr && lo + size <= r->addr + r->len) {
			r->refs++;
			*off = r->off + (addr - r->addr);
			return 0;
		}
	}
	r = range_add(c);
	if (!r || !replace(lo, size, MAP_SHARED, c->fd, c->brk))
		return ENOMEM;
	*r = (struct shared_range){ lo, size, c->brk, 1 };
	*off = c->brk + (addr - lo);
	c->brk += size;
	return 0;
}

/* Give the pages back to the process as private memory, contents kept: free()
 * will hand them to anybody. */
void unshare_range(struct sm5_ctx *c, uintptr_t addr)
{
	for (size_t i = 0; i < c->nranges; i++) {
		struct shared_range *r = &c->ranges[i];

		if (!r->refs || addr < r->addr || addr >= r->addr + r->len)
			continue;
		if (--r->refs)
			return;
		if (!replace(r->addr, r->len, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))
			dbg("a queue of %zu bytes stays shared: %s", r->len, strerror(errno));
		fallocate(c->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, r->off, r->len);
		return;
	}
}
