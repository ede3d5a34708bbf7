package locate

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/rdmatrace/rdmatrace/tracer/image"
)

// sweep looks through the likely part of a process's memory: writable private
// memory of no file, in which allocators put things.
type sweep struct {
	m      *memory
	budget uint64 // bytes that may still be read
	left   uint64 // bytes of mappings not looked at for the budget
	buf    []uint64
}

// chunk is how much is read at once.
const chunk = 1 << 20

func newSweep(m *memory, budget uint64) *sweep {
	return &sweep{m: m, budget: budget, buf: make([]uint64, chunk/8)}
}

// likely are the mappings worth looking through, smallest first: a context or
// queue pair lies in a heap or an arena, while the large mappings are buffers.
func (m *memory) likely() []image.Mapping {
	var out []image.Mapping
	for i := range m.maps {
		r := &m.maps[i]
		if r.Write && !r.Shared && r.Inode == 0 && m.readable(r) && !strings.HasPrefix(r.Path, "[stack") {
			out = append(out, *r)
		}
	}
	slices.SortStableFunc(out, func(a, b image.Mapping) int { return cmp.Compare(a.End-a.Start, b.End-b.Start) })
	return out
}

// each calls fn with every piece of present memory of the likely mappings,
// until fn says that it has seen enough. Pieces begin and end at pages; a
// mapping that goes away meanwhile is passed over.
func (s *sweep) each(ctx context.Context, fn func(addr uint64, words []uint64) (enough bool)) error {
	for _, r := range s.m.likely() {
		for addr := r.Start; addr < r.End; {
			if err := ctx.Err(); err != nil {
				return err
			}
			n := min(r.End-addr, chunk)
			if n > s.budget {
				s.left += r.End - addr
				break
			}
			enough, err := s.piece(addr, n, fn)
			if enough || err != nil {
				return err
			}
			addr += n
		}
	}
	return nil
}

// piece reads the pages of [addr, addr+n), whole pages and at most a chunk,
// that are present, run by run.
func (s *sweep) piece(addr, n uint64, fn func(uint64, []uint64) bool) (enough bool, err error) {
	page := s.m.page
	pages, err := s.m.present(addr, int(n/page))
	if err != nil {
		return false, err
	}
	for i := 0; i < len(pages); {
		if !pages[i] {
			i++
			continue
		}
		j := i
		for j < len(pages) && pages[j] {
			j++
		}
		at, size := addr+uint64(i)*page, uint64(j-i)*page
		words := s.buf[:size/8]
		s.budget -= min(size, s.budget)
		i = j
		switch err := s.m.copy(bytesOf(words), at); {
		case err == nil:
		case errors.Is(err, unix.EPERM):
			return false, err
		case s.m.alive():
			continue
		default:
			return false, errGone
		}
		if fn(at, words) {
			return true, nil
		}
	}
	return false, nil
}

// bytesOf is the same memory as words: this program runs on little-endian
// machines only, as do the processes it looks at.
func bytesOf(words []uint64) []byte {
	if len(words) == 0 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), len(words)*8)
}

// alive says whether the address space is still there.
func (m *memory) alive() bool {
	_, err := m.present(m.page, 1)
	return err == nil
}
