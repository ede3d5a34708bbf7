// Package bpf holds the kernel side: C programs, and their bindings generated
// by bpf2go. The records they write are defined once, in event.h.
//
// Generating needs clang (14 or later) and llvm-strip; the results are
// committed, so building rdmatrace needs neither.
package bpf

//go:generate go tool bpf2go -target amd64,arm64 -type record_kind -type record_header -type wr_record -type wr_entry -type post_end_record -type completion_record -type cqe_record -type arm_record -type switch_record -type sample_record -type waker_link -type waking_record -type interrupt_record -type qp_record -type cq_record -type device_context_record -type task_record -type stack_record -type site_key -type site -type site_way -type library_record -type trial_hit_record -type trial_poll_record -type poll_mode -type build_mode -type interrupt_kind -type object_event -type task_event -type counter -type build_setter -type cq_event_record -type quota_record -type migration_record Rdma rdmatrace.bpf.c -- -O2 -g -fno-unroll-loops -Wall -Wextra -Werror -Wno-unused-parameter -mcpu=v3 -Iheaders -ffile-prefix-map=$PWD=.
