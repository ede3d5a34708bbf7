package unwind

import "github.com/rdmatrace/rdmatrace/tracer/image"

// walk is the state of one unwinding: the registers of the current frame.
type walk struct {
	u     *Unwinder
	space *image.Space
	mem   *Snapshot
	regs  registers
	pc    uint64 // to look the current frame up with
	depth int    // frames left behind
	at    uint64 // where the return address to the current frame lies, 0: not on the stack
	// signal: the frame just left is a signal trampoline.
	signal bool
	// interrupted: a signal did, in the current frame, whose registers are all known.
	interrupted bool
}

// uprobesArea is where the kernel keeps copies of probed instructions and the
// trampoline to which a return probe makes functions return.
const uprobesArea = "[uprobes]"

// step goes from the current frame to its caller.
func (w *walk) step() (stop Stop, ok bool) {
	w.signal = false
	region, ok := w.space.Find(w.pc)
	if !ok {
		return StopUnmapped, false
	}
	vaddr, ok := region.Vaddr(w.pc)
	if !ok {
		return w.byFramePointer(&region)
	}
	r, err := w.u.row(region.File, vaddr)
	switch {
	case err == nil:
		return w.byRow(r)
	case noFrame(err) && w.u.arch.sigreturn.at(region.File, vaddr):
		return w.bySignalFrame(&w.u.arch.sigreturn)
	case noFrame(err):
		return w.byFramePointer(&region)
	}
	return StopBadFrame, false
}

// byRow restores the caller's registers by call frame information.
func (w *walk) byRow(r *row) (Stop, bool) {
	cfa, ok := w.cfa(&r.cfa)
	if !ok {
		return missing(&r.cfa), false
	}
	w.signal = r.signal
	if r.regs[r.returnReg].kind == ruleUndefined {
		return StopOutermost, false
	}
	next := w.regs
	for reg := range r.regs {
		rl := &r.regs[reg]
		if rl.kind == ruleSame {
			continue
		}
		if v, ok := w.value(rl, cfa); ok {
			next.set(uint64(reg), v)
		} else {
			next.forget(uint64(reg))
		}
	}
	// The CFA is the stack pointer before the call (DWARF 5, section 6.4),
	// unless there is a rule: only signal trampolines have one.
	if r.regs[w.u.arch.sp].kind == ruleSame {
		next.set(w.u.arch.sp, cfa)
	}
	w.at = 0
	if rl := &r.regs[r.returnReg]; rl.kind == ruleOffset {
		w.at = cfa + uint64(rl.offset)
	}
	ret, ok := next.get(r.returnReg)
	if !ok {
		return missing(&r.regs[r.returnReg]), false
	}
	return w.enter(next, ret, r.signal)
}

// missing says why a value that a rule names cannot be had.
func missing(r *rule) Stop {
	switch r.kind {
	case ruleOffset, ruleExpr:
		return StopBytes
	}
	return StopBadFrame
}

// cfa computes the canonical frame address: the one thing that every other
// rule is relative to.
func (w *walk) cfa(r *rule) (uint64, bool) {
	if r.kind == ruleValueExpr {
		v, err := eval(r.expr, &w.regs, w.mem)
		return v, err == nil
	}
	v, ok := w.regs.get(uint64(r.reg))
	return v + uint64(r.offset), ok
}

// value computes a register by its rule.
func (w *walk) value(r *rule, cfa uint64) (uint64, bool) {
	switch r.kind {
	case ruleOffset:
		return w.mem.Word(cfa + uint64(r.offset))
	case ruleRegister:
		return w.regs.get(uint64(r.reg))
	case ruleValue:
		return cfa + uint64(r.offset), true
	case ruleExpr, ruleValueExpr:
		v, err := eval(r.expr, &w.regs, w.mem, cfa)
		if err != nil {
			return 0, false
		}
		if r.kind == ruleExpr {
			return w.mem.Word(v)
		}
		return v, true
	}
	return 0, false
}

// byFramePointer follows the chain of frame pointers: both architectures keep
// the caller's at the frame pointer and the return address above it.
func (w *walk) byFramePointer(region *image.Region) (Stop, bool) {
	if region.Path == uprobesArea {
		return StopProbe, false
	}
	fp, ok := w.regs.get(w.u.arch.fp)
	sp, _ := w.regs.get(w.u.arch.sp)
	if region.File != nil && atEntry(region, w.pc) {
		return StopOutermost, false
	}
	if !ok || fp%8 != 0 || fp < sp {
		return StopNoFrame, false
	}
	caller, ok1 := w.mem.Word(fp)
	ret, ok2 := w.mem.Word(fp + 8)
	if !ok1 || !ok2 {
		return StopNoFrame, false
	}
	var next registers
	next.set(w.u.arch.fp, caller)
	next.set(w.u.arch.sp, fp+16)
	next.set(w.u.arch.pc, ret)
	w.at = fp + 8
	return w.enter(next, ret, false)
}

// entrySize is more than any libc's _start takes.
const entrySize = 64

// atEntry says whether pc is in a program's _start, where there is no caller.
// Some C libraries have no call frame information for it.
func atEntry(region *image.Region, pc uint64) bool {
	vaddr, ok := region.Vaddr(pc)
	return ok && vaddr-region.File.ELF.Entry < entrySize
}

// code strips a return address of what is no address. Where the machine decides how much
// that is, it is as little as leaves an address of code: a signature is hardly one.
func (w *walk) code(ret uint64) (at uint64) {
	for i, bits := range w.u.arch.addressBits {
		at = ret & (1<<bits - 1)
		if i == len(w.u.arch.addressBits)-1 {
			break
		}
		if _, ok := w.space.Find(at); ok {
			break
		}
	}
	return at
}

// enter makes the caller the current frame.
func (w *walk) enter(next registers, ret uint64, signal bool) (Stop, bool) {
	ret = w.code(ret)
	if ret == 0 {
		return StopOutermost, false
	}
	old, _ := w.regs.get(w.u.arch.sp)
	sp, _ := next.get(w.u.arch.sp)
	// A signal handler may have a stack of its own, anywhere. What it interrupted may be a leaf.
	if !signal && (sp < old || sp == old && (w.u.arch.callPushes || w.depth > 0 && !w.interrupted)) {
		return StopLoop, false
	}
	// The call may be the last instruction of its function: look inside it.
	// What a signal interrupted was about to run.
	pc := ret
	if !signal {
		pc--
	}
	if region, ok := w.space.Find(ret); ok && region.Path == uprobesArea {
		return StopProbe, false // the trampoline is the first thing there
	}
	if _, ok := w.space.Find(pc); !ok {
		return StopUnmapped, false
	}
	w.regs, w.pc, w.interrupted = next, pc, signal
	w.depth++
	return 0, true
}
