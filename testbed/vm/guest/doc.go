// Package guest holds the tests that run inside the guest of testbed/vm, on a
// kernel of its matrix with two soft-RoCE devices: rdmatrace traces real
// programs whose traffic crosses two virtio NICs, with real interrupts.
//
// Those of programs and probes alone (TestPrograms, TestProbes) need no RDMA
// and run on any kernel, as root.
//
// What a kernel has and lacks is printed in lines "feature<TAB>NAME<TAB>RESULT",
// of which docs/kernels.md is made. Absolute latencies are never tested: the
// guest's CPUs are emulated.
package guest
