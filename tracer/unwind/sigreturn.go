package unwind

import (
	"bytes"

	"github.com/rdmatrace/rdmatrace/tracer/image"
)

// sigreturn is how a signal trampoline is known that has no call frame information, and
// where above the stack pointer the kernel saved what was interrupted: the registers by
// their DWARF numbers, up to the stack pointer, and then the program counter.
type sigreturn struct {
	code  []byte
	saved uint64
}

// arm64's __kernel_rt_sigreturn is without, on purpose (arch/arm64/kernel/vdso/sigreturn.S
// says why), and asks unwinders to go by its code. The layout is that of struct rt_sigframe
// (arch/arm64/kernel/signal.c): a siginfo of 128 bytes; of the ucontext what is before
// uc_mcontext, 168 bytes aligned to 16; and there a fault address. The frame pointer leads
// to a frame with x30 of what was interrupted: that may be long out of date.
var sigreturnARM64 = sigreturn{
	code: []byte{
		0x68, 0x11, 0x80, 0xd2, // mov x8, #139
		0x01, 0x00, 0x00, 0xd4, // svc #0
	},
	saved: 128 + 176 + 8,
}

// at says that a handler returns to the trampoline where vaddr is looked up, or that the
// thread is in it.
func (s *sigreturn) at(f *image.File, vaddr uint64) bool {
	if len(s.code) == 0 {
		return false
	}
	b := make([]byte, len(s.code))
	for _, begin := range []uint64{vaddr + 1, vaddr, vaddr - 4} { // of a caller, a byte less is looked up
		if n, err := f.ReadVaddr(b, begin); err == nil && n == len(b) && bytes.Equal(b, s.code) {
			return true
		}
	}
	return false
}

// bySignalFrame goes from a trampoline to what the signal interrupted.
func (w *walk) bySignalFrame(s *sigreturn) (Stop, bool) {
	w.signal, w.at = true, 0
	sp, ok := w.regs.get(w.u.arch.sp)
	if !ok {
		return StopBadFrame, false
	}
	var next registers
	for reg := range w.u.arch.sp + 1 {
		v, ok := w.mem.Word(sp + s.saved + 8*reg)
		if !ok {
			return StopBytes, false
		}
		next.set(reg, v)
	}
	pc, ok := w.mem.Word(sp + s.saved + 8*(w.u.arch.sp+1))
	if !ok {
		return StopBytes, false
	}
	return w.enter(next, pc, true)
}
