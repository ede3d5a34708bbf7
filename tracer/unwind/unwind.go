// Package unwind turns a snapshot of a user stack - registers and the raw
// bytes above the stack pointer - into the chain of callers, by the call frame
// information (.eh_frame) of the files the target has mapped.
//
// It decodes that information itself: delve's frame package, which the tests
// compare it with, parses whole sections before the first answer, panics on
// malformed programs, is not bounded in memory, and does not know arm64's
// signed return addresses or signal frames.
package unwind

import (
	"errors"
	"sync"

	"github.com/rdmatrace/rdmatrace/tracer/image"
)

// Snapshot is the content of a stack_record (bpf/event.h).
type Snapshot struct {
	IP, SP, FP uint64
	// Regs are, on x86-64, rbx, rbp, r12, r13, r14, r15 (DWARF 3, 6, 12-15);
	// on arm64 x30 (the link register, without which a leaf has no caller),
	// then x19 to x23.
	Regs  [6]uint64
	Stack []byte // from SP upwards
	// Returned: IP is a return address, as a return probe sees it, not an
	// instruction about to run.
	Returned bool
}

// Word reads eight bytes of the stack.
func (s *Snapshot) Word(addr uint64) (uint64, bool) {
	d := addr - s.SP
	if n := uint64(len(s.Stack)); n < 8 || d > n-8 {
		return 0, false
	}
	return uint64(le32(s.Stack[d:])) | uint64(le32(s.Stack[d+4:]))<<32, true
}

// Stop says why unwinding ended.
type Stop uint8

const (
	StopOutermost Stop = iota // the thread's or the process's first frame: complete
	StopBytes                 // the snapshot's bytes ended
	StopUnmapped              // a return address outside every executable region known
	StopNoFrame               // no call frame information, and the frame pointer leads nowhere
	StopBadFrame              // call frame information that is malformed or not supported
	StopLoop                  // the next frame is not above this one
	StopDepth                 // more than MaxFrames frames
	StopProbe                 // a return probe of somebody has replaced the return address
	Stops                     // how many there are
)

var stopText = [Stops]string{
	"complete", "more stack than was copied", "return address outside known code",
	"no call frame information", "unreadable call frame information", "frames in a loop",
	"too many frames", "return address replaced by a return probe",
}

func (s Stop) String() string {
	if s >= Stops {
		return "unknown"
	}
	return stopText[s]
}

// MaxFrames is the longest chain that is followed.
const MaxFrames = 512

// maxRows bounds the decoded rows that are kept, about 1.5 KiB each.
const maxRows = 4096

// Unwinder unwinds stacks of one architecture. It caches what it decodes, in
// bounded memory. It is safe for concurrent use.
type Unwinder struct {
	arch   *arch
	tables *Tables
	mu     sync.Mutex
	rows   map[rowKey]*row
}

type rowKey struct {
	file  *image.File
	vaddr uint64
}

// New makes an Unwinder for the architecture of this program ("amd64" or
// "arm64", as runtime.GOARCH).
func New(archName string) (*Unwinder, error) {
	a, err := archOf(archName)
	if err != nil {
		return nil, err
	}
	return &Unwinder{arch: a, tables: NewTables(), rows: map[rowKey]*row{}}, nil
}

// Unwind appends the addresses of the frames to addrs, innermost first, and
// says why it ended. The first address is s.IP; each following one lies inside
// the call instruction of a caller (return address - 1), which is what pprof
// wants and what symbols and lines are to be looked up with. Anything but
// StopOutermost means that callers are missing. StopUnmapped may be cured by
// another Snapshot of the space.
func (u *Unwinder) Unwind(space *image.Space, s *Snapshot, addrs []uint64) ([]uint64, Stop) {
	addrs, _, stop := u.UnwindWith(space, s, addrs, nil)
	return addrs, stop
}

// UnwindWith also appends to at where on the stack the return address of each caller
// lies, the first one's first; 0: it is in a register.
func (u *Unwinder) UnwindWith(space *image.Space, s *Snapshot, addrs, at []uint64) ([]uint64, []uint64, Stop) {
	w := walk{u: u, space: space, mem: s, regs: u.arch.registers(s), pc: s.IP}
	addrs = append(addrs, s.IP)
	if s.Returned {
		w.pc--
	}
	for n := 1; n < MaxFrames; n++ {
		stop, ok := w.step()
		if w.signal && n > 1 {
			// Nobody called it: the address it was entered at is its first. Its
			// table begins one byte before, for those who look a byte lower.
			addrs[len(addrs)-1]++
		}
		if !ok {
			return addrs, at, stop
		}
		addrs, at = append(addrs, w.pc), append(at, w.at)
	}
	return addrs, at, StopDepth
}

// Function is the address at which the function begins, or the part of one, that
// an address is in, as call frame information has it.
func (u *Unwinder) Function(space *image.Space, addr uint64) (begin uint64, ok bool) {
	region, ok := space.Find(addr)
	if !ok {
		return 0, false
	}
	vaddr, ok := region.Vaddr(addr)
	if !ok {
		return 0, false
	}
	first, _, ok := u.tables.Extent(region.File, vaddr)
	return addr - (vaddr - first), ok
}

// row returns the rules at an address of a file.
func (u *Unwinder) row(f *image.File, vaddr uint64) (*row, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	key := rowKey{f, vaddr}
	if r, ok := u.rows[key]; ok {
		return r, nil
	}
	e, err := u.tables.find(f, vaddr)
	if err != nil {
		return nil, err
	}
	r, err := e.rowAt(vaddr)
	if err != nil {
		return nil, err
	}
	if len(u.rows) == maxRows {
		clear(u.rows)
	}
	u.rows[key] = r
	return r, nil
}

// noFrame says that an error means absence of information, not damage.
func noFrame(err error) bool { return errors.Is(err, errNoFDE) || errors.Is(err, errNoTable) }
