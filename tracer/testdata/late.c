/* SPDX-License-Identifier: BSD-2-Clause */
/* Loads its RDMA library late, as collective libraries do: late LIBRARY COUNT [wait for a line] */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
	int (*traffic)(long);
	void *library;

	if (argc < 3)
		return 2;
	if (argc > 3)
		getchar();
	library = dlopen(argv[1], RTLD_NOW);
	if (!library) {
		fprintf(stderr, "%s\n", dlerror());
		return 1;
	}
	*(void **)&traffic = dlsym(library, "traffic");
	return traffic ? traffic(atol(argv[2])) : 1;
}
