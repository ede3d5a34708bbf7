package unwindtest

import (
	"golang.org/x/sys/unix"

	"github.com/rdmatrace/rdmatrace/tracer/unwind"
)

func registers(tid int) (*unwind.Snapshot, error) {
	const prStatus = 1 // NT_PRSTATUS
	var r unix.PtraceRegsArm64
	if err := unix.PtraceGetRegSetArm64(tid, prStatus, &r); err != nil {
		return nil, err
	}
	s := &unwind.Snapshot{IP: r.Pc, SP: r.Sp, FP: r.Regs[29]}
	s.Regs[0] = r.Regs[30]
	copy(s.Regs[1:], r.Regs[19:24])
	return s, nil
}
