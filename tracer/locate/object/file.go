// Package object reads what a shared library's ELF file says about itself:
// where its bytes are loaded, what it exports by default and imports, what the
// loader will write into its data, and where its functions begin and end.
//
// It reads any file a process may have mapped, so nothing in the file is
// trusted: a broken one gives an error, never a panic or an endless loop.
package object

import (
	"cmp"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"slices"
)

// Arch is a machine whose code this project reads.
type Arch uint8

// The two architectures; ArchOther can be looked at, not disassembled.
const (
	ArchOther Arch = iota
	ArchAMD64
	ArchARM64
)

// File is an open ELF shared library or executable. Addresses (vaddr) are the
// file's own, before relocation.
type File struct {
	Arch    Arch
	Class32 bool
	BuildID string // hex; empty: none

	elf  *elf.File
	r    io.ReaderAt
	load []elf.ProgHeader // PT_LOAD, by Vaddr
	dyn  map[elf.DynTag]uint64

	symbols []Symbol
	frames  []Frame
	relocs  map[uint64]Reloc
}

// maxTable bounds every table read from a file: larger ones are broken or not
// those of an RDMA library (libmlx5's largest is 30 KiB).
const maxTable = 64 << 20

// ErrNotELF: the file is no ELF file or is cut short.
var ErrNotELF = errors.New("not a readable ELF file")

// New reads the headers of the ELF file in r. debug/elf is written for honest
// files; a panic on a hostile one is an error here.
func New(r io.ReaderAt) (f *File, err error) {
	defer func() {
		if p := recover(); p != nil {
			f, err = nil, fmt.Errorf("%w: %v", ErrNotELF, p)
		}
	}()
	e, err := elf.NewFile(r)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNotELF, err)
	}
	f = &File{elf: e, r: r, Class32: e.Class == elf.ELFCLASS32}
	if e.Class == elf.ELFCLASS64 && e.Data == elf.ELFDATA2LSB {
		switch e.Machine {
		case elf.EM_X86_64:
			f.Arch = ArchAMD64
		case elf.EM_AARCH64:
			f.Arch = ArchARM64
		}
	}
	for _, p := range e.Progs {
		if p.Type == elf.PT_LOAD && p.Filesz <= p.Memsz && p.Vaddr+p.Memsz >= p.Vaddr {
			f.load = append(f.load, p.ProgHeader)
		}
	}
	slices.SortFunc(f.load, func(a, b elf.ProgHeader) int { return cmp.Compare(a.Vaddr, b.Vaddr) })
	f.readDynamic()
	f.BuildID = f.readBuildID()
	return f, nil
}

// readDynamic takes the dynamic section by its program header: it is what the
// loader reads, and section headers may be gone.
func (f *File) readDynamic() {
	f.dyn = map[elf.DynTag]uint64{}
	for _, p := range f.elf.Progs {
		if p.Type != elf.PT_DYNAMIC || p.Filesz > maxTable || f.Class32 {
			continue
		}
		b, err := f.fileBytes(p.Off, p.Filesz)
		if err != nil {
			return
		}
		for ; len(b) >= 16; b = b[16:] {
			tag := elf.DynTag(f.elf.ByteOrder.Uint64(b))
			if tag == elf.DT_NULL {
				return
			}
			if _, seen := f.dyn[tag]; !seen {
				f.dyn[tag] = f.elf.ByteOrder.Uint64(b[8:])
			}
		}
	}
}

func (f *File) fileBytes(off, n uint64) ([]byte, error) {
	if n > maxTable || int64(off) < 0 {
		return nil, fmt.Errorf("read %#x bytes at %#x of the file: %w", n, off, ErrNotELF)
	}
	b := make([]byte, n)
	if got, err := f.r.ReadAt(b, int64(off)); uint64(got) < n {
		return nil, fmt.Errorf("read %#x bytes at %#x of the file: %w", n, off, err)
	}
	return b, nil
}

// segment is the PT_LOAD whose file contents hold vaddr.
func (f *File) segment(vaddr uint64) (elf.ProgHeader, bool) {
	for _, p := range f.load {
		if vaddr >= p.Vaddr && vaddr-p.Vaddr < p.Filesz {
			return p, true
		}
	}
	return elf.ProgHeader{}, false
}

// Bytes reads n bytes of the file's contents at vaddr, as they are before the
// loader relocates them. They may not cross the end of a segment.
func (f *File) Bytes(vaddr, n uint64) ([]byte, error) {
	p, ok := f.segment(vaddr)
	if !ok || n > p.Filesz-(vaddr-p.Vaddr) {
		return nil, fmt.Errorf("address %#x+%#x is in no loaded segment", vaddr, n)
	}
	return f.fileBytes(vaddr-p.Vaddr+p.Off, n)
}

// Rest reads from vaddr to the end of its segment, at most limit bytes.
func (f *File) Rest(vaddr, limit uint64) ([]byte, error) {
	p, ok := f.segment(vaddr)
	if !ok {
		return nil, fmt.Errorf("address %#x is in no loaded segment", vaddr)
	}
	return f.fileBytes(vaddr-p.Vaddr+p.Off, min(limit, p.Filesz-(vaddr-p.Vaddr)))
}

// CodeOffset is the file offset of the code at vaddr. It fails where no
// executable segment's file contents lie: a uprobe could not be there.
func (f *File) CodeOffset(vaddr uint64) (uint64, error) {
	p, ok := f.segment(vaddr)
	if !ok || p.Flags&elf.PF_X == 0 {
		return 0, fmt.Errorf("address %#x is in no executable segment", vaddr)
	}
	return vaddr - p.Vaddr + p.Off, nil
}

// CodeVaddr is the inverse of CodeOffset.
func (f *File) CodeVaddr(offset uint64) (uint64, bool) {
	for _, p := range f.load {
		if p.Flags&elf.PF_X != 0 && offset >= p.Off && offset-p.Off < p.Filesz {
			return offset - p.Off + p.Vaddr, true
		}
	}
	return 0, false
}

// Code returns the address ranges of executable file contents.
func (f *File) Code() []Range {
	var out []Range
	for _, p := range f.load {
		if p.Flags&elf.PF_X != 0 && p.Filesz > 0 {
			out = append(out, Range{p.Vaddr, p.Vaddr + p.Filesz})
		}
	}
	return out
}

// Range is [Begin, End).
type Range struct{ Begin, End uint64 }

// Has says whether vaddr is in the range.
func (r Range) Has(vaddr uint64) bool { return vaddr >= r.Begin && vaddr < r.End }

const ntGNUBuildID = 3

func (f *File) readBuildID() string {
	for _, p := range f.elf.Progs {
		if p.Type != elf.PT_NOTE || p.Filesz > 1<<16 {
			continue
		}
		b, err := f.fileBytes(p.Off, p.Filesz)
		if err != nil {
			continue
		}
		for len(b) >= 12 {
			namesz := uint64(f.elf.ByteOrder.Uint32(b))
			descsz := uint64(f.elf.ByteOrder.Uint32(b[4:]))
			typ := f.elf.ByteOrder.Uint32(b[8:])
			desc := 12 + (namesz+3)&^3
			next := desc + (descsz+3)&^3
			if desc+descsz > uint64(len(b)) {
				break
			}
			if typ == ntGNUBuildID && namesz == 4 && string(b[12:16]) == "GNU\x00" {
				return fmt.Sprintf("%x", b[desc:desc+descsz])
			}
			if next > uint64(len(b)) {
				break
			}
			b = b[next:]
		}
	}
	return ""
}
