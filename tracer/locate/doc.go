// Package locate finds the functions of an RDMA job that a probe has to sit
// on, in a process that runs already and was not prepared for it: without
// symbols, without debug information, without writing anything into it.
//
// The verbs of the data path (ibv_post_send, ibv_poll_cq, ibv_wr_*, ...) are
// inlines of <infiniband/verbs.h>; they call through function pointers into a
// stripped provider library. Three ways find these, and check each other:
//
//   - static: the tables that a provider hands to verbs_set_ops, read from its
//     ELF file, with the meaning of a slot learned from the code of
//     verbs_set_ops itself;
//   - live: every ibv_context in the process's memory, and from it every QP
//     and CQ, whose layout is frozen by libibverbs' ABI;
//   - late: the same reading for an object that a probe saw being made.
//
// The package reads files and /proc; it knows nothing of BPF.
package locate
