package locate

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rdmatrace/rdmatrace/tracer/image"
)

var (
	errGone    = errors.New("it has exited, or executed another program")
	errAbsent  = errors.New("memory that is not present")
	errOutside = errors.New("no memory that may be read")
)

// memory reads a process's memory without the process noticing: pages that are
// not present are left alone, since to read them would fault them in (or wait
// for whoever handles the process's page faults), and so are devices.
type memory struct {
	pid     int
	maps    []image.Mapping
	avoid   map[uint64]bool // starts of mappings that a userfaultfd watches
	pagemap *os.File
	page    uint64
	read    uint64 // bytes so far
}

func openMemory(pid int) (*memory, error) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/pagemap", pid))
	if err != nil {
		return nil, fmt.Errorf("open the page map of process %d: %w", pid, err)
	}
	return &memory{pid: pid, pagemap: f, page: uint64(os.Getpagesize())}, nil
}

func (m *memory) close() error { return m.pagemap.Close() }

// mapping is the one that holds addr, or nil.
func (m *memory) mapping(addr uint64) *image.Mapping {
	i, found := slices.BinarySearchFunc(m.maps, addr, func(r image.Mapping, a uint64) int {
		return cmp.Compare(r.Start, a)
	})
	if !found {
		i--
	}
	if i < 0 || addr >= m.maps[i].End {
		return nil
	}
	return &m.maps[i]
}

// readable says whether a mapping's memory may be read at all.
func (m *memory) readable(r *image.Mapping) bool {
	switch {
	case !r.Read, m.avoid[r.Start]:
		return false
	case strings.HasPrefix(r.Path, "/dev/"):
		return strings.HasPrefix(r.Path, "/dev/shm/") || strings.HasPrefix(r.Path, "/dev/hugepages/")
	case strings.HasPrefix(r.Path, "anon_inode:"), r.Path == "[vvar]", r.Path == "[vvar_vclock]", r.Path == "[vsyscall]", r.Path == "[vdso]":
		return false
	}
	return true
}

// data says whether addr is ordinary writable memory.
func (m *memory) data(addr uint64) bool {
	r := m.mapping(addr)
	return r != nil && r.Write && m.readable(r)
}

const (
	pagePresent  = 1 << 63 // Documentation/admin-guide/mm/pagemap.rst
	pagemapEntry = 8
)

// present reports, for each of n pages from addr, whether it is in memory.
func (m *memory) present(addr uint64, n int) ([]bool, error) {
	b := make([]byte, n*pagemapEntry)
	got, err := m.pagemap.ReadAt(b, int64(addr/m.page*pagemapEntry))
	if got < len(b) {
		// The page map of an address space that is gone is empty.
		if err == nil || errors.Is(err, io.EOF) || errors.Is(err, unix.ESRCH) {
			err = errGone
		}
		return nil, fmt.Errorf("read the page map at %#x: %w", addr, err)
	}
	out := make([]bool, n)
	for i := range out {
		out[i] = binary.LittleEndian.Uint64(b[i*pagemapEntry:])&pagePresent != 0
	}
	return out, nil
}

// at reads len(b) bytes at addr, all of which must be present.
func (m *memory) at(b []byte, addr uint64) error {
	end := addr + uint64(len(b))
	if end < addr {
		return errOutside
	}
	for a := addr; a < end; {
		r := m.mapping(a)
		if r == nil || !m.readable(r) {
			return fmt.Errorf("%#x: %w", a, errOutside)
		}
		a = r.End
	}
	first := addr &^ (m.page - 1)
	pages, err := m.present(first, int((end-1-first)/m.page)+1)
	if err != nil {
		return err
	}
	if slices.Contains(pages, false) {
		return fmt.Errorf("%#x: %w", addr, errAbsent)
	}
	return m.copy(b, addr)
}

// copy is process_vm_readv(2), all or an error.
func (m *memory) copy(b []byte, addr uint64) error {
	if len(b) == 0 {
		return nil
	}
	local := []unix.Iovec{{Base: &b[0], Len: uint64(len(b))}}
	remote := []unix.RemoteIovec{{Base: uintptr(addr), Len: len(b)}}
	n, err := unix.ProcessVMReadv(m.pid, local, remote, 0)
	m.read += uint64(max(n, 0))
	switch {
	case errors.Is(err, unix.ESRCH):
		err = errGone
	case err == nil && n < len(b):
		err = errAbsent
	}
	if err != nil {
		return fmt.Errorf("read %d bytes at %#x of process %d: %w", len(b), addr, m.pid, err)
	}
	return nil
}

// word reads a pointer.
func (m *memory) word(addr uint64) (uint64, error) {
	var b [8]byte
	err := m.at(b[:], addr)
	return binary.LittleEndian.Uint64(b[:]), err
}

// some reads up to n bytes at addr, less where the mapping ends or a page is
// missing, but at least least.
func (m *memory) some(addr uint64, n, least int) ([]byte, error) {
	for {
		b := make([]byte, n)
		err := m.at(b, addr)
		if err == nil {
			return b, nil
		}
		next := int((addr+uint64(n)-1)&^(m.page-1) - addr) // up to the last page
		if next < least || next >= n || errors.Is(err, errGone) {
			return nil, err
		}
		n = next
	}
}
