/* The opcodes of send requests and their names in the truth log. */
#ifndef SOFTMLX5_OPCODE_H
#define SOFTMLX5_OPCODE_H

/* The name of a WQE's opcode, "?" when it is not emulated. */
const char *opcode_name(unsigned op);

/* The opcode of a name, or -1. */
int opcode_of(const char *name);

#endif
