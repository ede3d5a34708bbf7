/* The memory of the processes: checking keys, moving payload. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include "memory.h"

bool mem_read(const struct ctx *c, uint64_t addr, void *dst, size_t len)
{
	struct iovec l = { dst, len }, r = { (void *)addr, len };

	return !len || process_vm_readv(c->pid, &l, 1, &r, 1, 0) == (ssize_t)len;
}

bool mem_write(const struct ctx *c, uint64_t addr, const void *src, size_t len)
{
	struct iovec l = { (void *)src, len }, r = { (void *)addr, len };

	return !len || process_vm_writev(c->pid, &l, 1, &r, 1, 0) == (ssize_t)len;
}

uint64_t mr_map(const struct ctx *c, uint32_t key, uint64_t va, uint64_t len, unsigned need)
{
	struct mr *m = key >> 8 < MAX_OBJ ? mrs[key >> 8] : NULL;

	if (!m || m->ctx != c || m->key != key || (m->access & need) != need)
		return 0;
	if (va < m->va || va + len > m->va + m->len || va + len < va)
		return 0;
	return m->start + (va - m->va);
}

uint8_t *bounce_get(size_t n)
{
	static uint8_t *buf;
	static size_t size;

	if (n > size) {
		free(buf);
		size = n * 2;
		buf = malloc(size);
		if (!buf) {
			fprintf(stderr, "softmlx5d: no memory for a message of %zu bytes\n", n);
			abort();
		}
	}
	return buf;
}

int gather(const struct qp *q, const struct wr *w, uint8_t *dst)
{
	for (int i = 0; i < w->nseg; i++) {
		const struct seg *s = &w->seg[i];
		uint64_t a;

		if (s->inl) {
			memcpy(dst, w->inl + s->addr, s->len);
			dst += s->len;
			continue;
		}
		a = mr_map(q->ctx, s->lkey, s->addr, s->len, 0);
		if (!a || !mem_read(q->ctx, a, dst, s->len))
			return MLX5_CQE_SYNDROME_LOCAL_PROT_ERR;
		dst += s->len;
	}
	return 0;
}

int scatter(const struct qp *q, const struct wr *w, const uint8_t *src, uint32_t len)
{
	for (int i = 0; i < w->nseg && len; i++) {
		const struct seg *s = &w->seg[i];
		uint32_t n = s->len < len ? s->len : len;
		uint64_t a = mr_map(q->ctx, s->lkey, s->addr, n, IBV_ACCESS_LOCAL_WRITE);

		if (!a || !mem_write(q->ctx, a, src, n))
			return MLX5_CQE_SYNDROME_LOCAL_PROT_ERR;
		src += n;
		len -= n;
	}
	return len ? MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR : 0;
}
