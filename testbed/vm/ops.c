// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
// ops DEVICE: where the device's library has its functions, as it tells
// libibverbs: "post_send librxe-rdmav34.so 0x3cc0" (offset in the file). It is
// what the tests compare rdmatrace's findings with.
#include <infiniband/verbs.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static void where(const char *name, uintptr_t at)
{
	unsigned long begin, end, offset;
	char line[4096], path[4096];
	FILE *f = fopen("/proc/self/maps", "r");

	while (f && fgets(line, sizeof(line), f)) {
		if (sscanf(line, "%lx-%lx %*s %lx %*s %*s %4095s", &begin, &end, &offset, path) == 4 && at >= begin &&
		    at < end)
			printf("%s %s 0x%lx\n", name, strrchr(path, '/') + 1, at - begin + offset);
	}
	if (f)
		fclose(f);
}

int main(int argc, char **argv)
{
	struct ibv_device **list = ibv_get_device_list(NULL);
	struct ibv_context *context = NULL;

	for (int i = 0; list && list[i]; i++)
		if (argc > 1 && !strcmp(ibv_get_device_name(list[i]), argv[1]))
			context = ibv_open_device(list[i]);
	if (!context) {
		fprintf(stderr, "ops: no device %s\n", argc > 1 ? argv[1] : "given");
		return 1;
	}
	where("post_send", (uintptr_t)context->ops.post_send);
	where("post_recv", (uintptr_t)context->ops.post_recv);
	where("poll_cq", (uintptr_t)context->ops.poll_cq);
	where("req_notify_cq", (uintptr_t)context->ops.req_notify_cq);
	return 0;
}
