package unwindtest

import (
	"golang.org/x/sys/unix"

	"github.com/rdmatrace/rdmatrace/tracer/unwind"
)

func registers(tid int) (*unwind.Snapshot, error) {
	var r unix.PtraceRegs
	if err := unix.PtraceGetRegs(tid, &r); err != nil {
		return nil, err
	}
	return &unwind.Snapshot{
		IP: r.Rip, SP: r.Rsp, FP: r.Rbp,
		Regs: [6]uint64{r.Rbx, r.Rbp, r.R12, r.R13, r.R14, r.R15},
	}, nil
}
