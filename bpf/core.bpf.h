/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Reading what kernels have in different ways. */
#ifndef RDMATRACE_CORE_BPF_H
#define RDMATRACE_CORE_BPF_H

/*
 * An integer of a kernel structure, of the size that it has in the running kernel:
 * BPF_CORE_READ reads as many bytes as vmlinux.h says, and what stands behind the
 * field with it where the kernel's is smaller (on_cpu is an int, and a u8 in 7.3).
 * Its type is that of vmlinux.h: a negative one stays so.
 */
#define READ_INT(from, field) ((typeof((from)->field))BPF_CORE_READ_BITFIELD_PROBED(from, field))

#endif
