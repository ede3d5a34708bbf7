package tracer

import (
	"errors"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/features"
)

// errTooOld: without cookies a program does not know which of its probes was hit, and
// before Linux 5.15 nothing else tells (bpf_get_attach_cookie). What else is needed, as
// storage of tasks for programs that trace, was there before.
var errTooOld = errors.New("this kernel is too old to be traced: its probes have no cookies (bpf_get_attach_cookie), as Linux 5.15 and later have; " +
	"rdmatrace report FILE works here, with a capture from elsewhere")

// tooOld asks the kernel rather than its version: distributions backport.
func tooOld() bool {
	return errors.Is(features.HaveProgramHelper(ebpf.Kprobe, asm.FnGetAttachCookie), ebpf.ErrNotSupported)
}
