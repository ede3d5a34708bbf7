/* The attributes of a uverbs ioctl (rdma_user_ioctl_cmds.h). */
#include <string.h>
#include "shim.h"

struct ib_uverbs_attr *attr(const struct call *k, unsigned id)
{
	for (unsigned i = 0; i < k->h->num_attrs; i++)
		if (k->h->attrs[i].attr_id == id)
			return &k->h->attrs[i];
	return NULL;
}

/*
 * Copy an input attribute to dst, the rest of which is zeroed; one of 8 bytes
 * or less is in the attribute itself.  Returns its length, 0 when absent.
 */
size_t in(const struct call *k, unsigned id, void *dst, size_t size)
{
	const struct ib_uverbs_attr *a = attr(k, id);
	size_t n;

	memset(dst, 0, size);
	if (!a)
		return 0;
	n = a->len ? a->len : sizeof(a->data);  /* objects and fds carry no length */
	if (n > size)
		n = size;
	memcpy(dst, a->len > sizeof(a->data) ? (void *)(uintptr_t)a->data : &a->data, n);
	return n;
}

uint64_t in_u64(const struct call *k, unsigned id)
{
	uint64_t v;

	in(k, id, &v, sizeof(v));
	return v;
}

/* Fill an output attribute, if it is there; what src has not is zeroed. */
void out(const struct call *k, unsigned id, const void *src, size_t size)
{
	struct ib_uverbs_attr *a = attr(k, id);

	if (!a)
		return;
	if (a->len > size)
		memset((char *)(uintptr_t)a->data + size, 0, a->len - size);
	memcpy((void *)(uintptr_t)a->data, src, size < a->len ? size : a->len);
	a->flags |= UVERBS_ATTR_F_VALID_OUTPUT;
}

/* The handle or descriptor of a new object. */
void out_obj(const struct call *k, unsigned id, uint32_t handle)
{
	struct ib_uverbs_attr *a = attr(k, id);

	if (!a)
		return;
	a->data = handle;
	a->flags |= UVERBS_ATTR_F_VALID_OUTPUT;
}
