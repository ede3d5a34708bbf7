package tracer

import (
	"errors"

	"github.com/cilium/ebpf/btf"
)

// errRingsSleep: under the scheduler's locks nothing may sleep.
var errRingsSleep = errors.New("this PREEMPT_RT kernel guards BPF ring buffers by a lock that may sleep, which the scheduler's programs may not take: " +
	"tracing could hang it. Use a kernel with the fix of CVE-2024-50138, as 6.12 has")

// ringsSleep: whoever writes to a BPF ring buffer may sleep. On PREEMPT_RT spinlock_t
// does, and raw_spinlock_t, which struct bpf_ringbuf of kernel/bpf/ringbuf.c has since
// 6.12 and where that was backported, does not. Only there tasks count how often they
// have disabled softirqs.
func ringsSleep(types *btf.Spec) bool {
	var task, ring *btf.Struct
	if types.TypeByName("task_struct", &task) != nil || types.TypeByName("bpf_ringbuf", &ring) != nil {
		return false
	}
	lock, _ := memberType(ring, "spinlock").(*btf.Typedef)
	return memberType(task, "softirq_disable_cnt") != nil && lock != nil && lock.Name == "spinlock_t"
}
