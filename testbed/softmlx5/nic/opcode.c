/* The opcodes of send requests and their names in the truth log. */
#include <string.h>
#include <infiniband/mlx5dv.h>
#include "opcode.h"

static const struct {
	unsigned op;
	const char *name;
} names[] = {
	{ MLX5_OPCODE_NOP, "NOP" },
	{ MLX5_OPCODE_SEND_INVAL, "SEND_INV" },
	{ MLX5_OPCODE_RDMA_WRITE, "WRITE" },
	{ MLX5_OPCODE_RDMA_WRITE_IMM, "WRITE_IMM" },
	{ MLX5_OPCODE_SEND, "SEND" },
	{ MLX5_OPCODE_SEND_IMM, "SEND_IMM" },
	{ MLX5_OPCODE_RDMA_READ, "READ" },
	{ MLX5_OPCODE_ATOMIC_CS, "CMP_SWAP" },
	{ MLX5_OPCODE_ATOMIC_FA, "FETCH_ADD" },
};

#define NNAMES (sizeof(names) / sizeof(*names))

const char *opcode_name(unsigned op)
{
	for (size_t i = 0; i < NNAMES; i++)
		if (names[i].op == op)
			return names[i].name;
	return "?";
}

int opcode_of(const char *name)
{
	for (size_t i = 0; i < NNAMES; i++)
		if (!strcmp(names[i].name, name))
			return names[i].op;
	return -1;
}
