package image

import (
	"bytes"
	"debug/elf"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// File is an ELF file that a target has mapped. It stays readable when its
// name, or the target, has gone. It does not change once made.
type File struct {
	Path       string // as the first target seen with it sees it
	Dev, Inode uint64 // as in Mapping; 0, 0: the vdso
	BuildID    string // hex; empty: none
	ELF        *elf.File
	reader     io.ReaderAt
	closer     io.Closer
	pid        uint32 // through whose root Path leads
	loads      []load
}

// load is a PT_LOAD segment.
type load struct {
	vaddr, offset, filesz uint64
	exec                  bool
}

// notELF says that a file could be read but is not what is looked for.
func notELF(err error) bool {
	var format *elf.FormatError
	return errors.As(err, &format) || errors.Is(err, errNotELF) || errors.Is(err, io.EOF)
}

// gone says that the process or the file has gone.
func gone(err error) bool {
	return errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH)
}

var (
	errNotRegular = errors.New("not a regular file")
	errNotELF     = errors.New("not a 64-bit ELF file of this machine's byte order")
)

// openMapped opens the file behind a mapping. A device is never opened: that
// alone may have effects.
func openMapped(pid uint32, m Mapping) (*os.File, error) {
	link := fmt.Sprintf("/proc/%d/map_files/%x-%x", pid, m.Start, m.End)
	f, err := OpenRegular(link, m.Inode)
	if err == nil || m.Deleted {
		return f, err
	}
	// map_files needs CAP_SYS_ADMIN or CAP_CHECKPOINT_RESTORE in the first
	// user namespace; the path may be another file by now.
	g, err2 := OpenRegular(fmt.Sprintf("/proc/%d/root%s", pid, m.Path), m.Inode)
	if err2 != nil {
		return nil, fmt.Errorf("%w; %w", err, err2)
	}
	return g, nil
}

// OpenRegular opens a regular file, which must be inode (if that is not 0).
// The device is not compared: btrfs and overlayfs show different ones in maps
// and in stat.
func OpenRegular(path string, inode uint64) (*os.File, error) {
	if fi, err := os.Stat(path); err != nil {
		return nil, err
	} else if !fi.Mode().IsRegular() {
		return nil, fmt.Errorf("open %s: %w", path, errNotRegular)
	}
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	var st unix.Stat_t
	if err = unix.Fstat(int(f.Fd()), &st); err == nil {
		switch {
		case st.Mode&unix.S_IFMT != unix.S_IFREG:
			err = errNotRegular
		case inode != 0 && st.Ino != inode:
			err = fmt.Errorf("it is inode %d by now, not %d", st.Ino, inode)
		default:
			return f, nil
		}
	}
	f.Close()
	return nil, fmt.Errorf("open %s: %w", path, err)
}

// ReadELF reads the headers of an ELF file and its build-id. debug/elf is
// written for honest files; a panic on a hostile one is an error here.
func ReadELF(r io.ReaderAt) (id string, e *elf.File, err error) {
	defer func() {
		if p := recover(); p != nil {
			id, e, err = "", nil, fmt.Errorf("%v", p)
		}
	}()
	e, err = elf.NewFile(r)
	if err != nil {
		return "", nil, err
	}
	if e.Class != elf.ELFCLASS64 || e.Data != elf.ELFDATA2LSB {
		return "", nil, errNotELF
	}
	return buildID(e), e, nil
}

// NewFile makes a File of something that can be read.
func NewFile(r io.ReaderAt, path string) (*File, error) {
	id, e, err := ReadELF(r)
	if err != nil {
		return nil, fmt.Errorf("read the headers of %s: %w", path, err)
	}
	f := &File{Path: path, ELF: e, reader: r, BuildID: id}
	for _, p := range e.Progs {
		if p.Type == elf.PT_LOAD && p.Filesz > 0 {
			f.loads = append(f.loads, load{p.Vaddr, p.Off, p.Filesz, p.Flags&elf.PF_X != 0})
		}
	}
	return f, nil
}

func (f *File) close() error {
	if f.closer == nil {
		return nil
	}
	return f.closer.Close()
}

// ReadAt reads at an offset of the file.
func (f *File) ReadAt(p []byte, offset int64) (int, error) { return f.reader.ReadAt(p, offset) }

// Vaddr is the virtual address, as the file counts them, of an offset of the
// file. Segments may share a page of the file: the executable one is preferred.
func (f *File) Vaddr(offset uint64) (uint64, bool) {
	var vaddr uint64
	var found bool
	for _, l := range f.loads {
		if offset-l.offset < l.filesz && (l.exec || !found) {
			vaddr, found = offset-l.offset+l.vaddr, true
			if l.exec {
				break
			}
		}
	}
	return vaddr, found
}

// Offset is the offset in the file of a virtual address, and how many bytes of
// the same segment follow it there.
func (f *File) Offset(vaddr uint64) (offset, size uint64, ok bool) {
	for _, l := range f.loads {
		if d := vaddr - l.vaddr; d < l.filesz {
			return l.offset + d, l.filesz - d, true
		}
	}
	return 0, 0, false
}

// ReadVaddr reads what the file has at a virtual address, at most to the end
// of its segment, and returns how much that was.
func (f *File) ReadVaddr(p []byte, vaddr uint64) (int, error) {
	offset, size, ok := f.Offset(vaddr)
	if !ok {
		return 0, fmt.Errorf("%s has nothing at %#x", f.Path, vaddr)
	}
	if uint64(len(p)) > size {
		p = p[:size]
	}
	n, err := f.reader.ReadAt(p, int64(offset))
	if n == len(p) || (n > 0 && errors.Is(err, io.EOF)) {
		return n, nil
	}
	return n, fmt.Errorf("read %s: %w", f.Path, err)
}

// Open opens another file as the target sees it, such as a separate debug
// file, if the target still lives; it must be regular. The caller closes it.
func (f *File) Open(path string) (*os.File, error) {
	if f.pid == 0 {
		return nil, fmt.Errorf("open %s: no process to look through", path)
	}
	return OpenRegular(fmt.Sprintf("/proc/%d/root%s", f.pid, path), 0)
}

const ntGNUBuildID = 3

// maxNote bounds what is read of a PT_NOTE segment or SHT_NOTE section.
const maxNote = 64 << 10

// buildID finds the GNU build-id: in a PT_NOTE segment, or, for debug files
// whose segments are empty, in a section.
func buildID(e *elf.File) string {
	for _, p := range e.Progs {
		if p.Type == elf.PT_NOTE && p.Filesz <= maxNote {
			if id := buildIDNote(readAll(p, p.Filesz), p.Align); id != "" {
				return id
			}
		}
	}
	for _, s := range e.Sections {
		if s.Type == elf.SHT_NOTE && s.Size <= maxNote {
			if id := buildIDNote(readAll(s, s.Size), s.Addralign); id != "" {
				return id
			}
		}
	}
	return ""
}

func readAll(r io.ReaderAt, size uint64) []byte {
	b := make([]byte, size)
	n, _ := r.ReadAt(b, 0) // a short note is parsed as far as it goes
	return b[:n]
}

// buildIDNote walks notes (elf(5), Elf64_Nhdr) to the GNU build-id.
func buildIDNote(b []byte, align uint64) string {
	if align != 8 {
		align = 4
	}
	pad := func(n uint64) uint64 { return (n + align - 1) &^ (align - 1) }
	for len(b) >= 12 {
		nameSize, descSize := uint64(le32(b)), uint64(le32(b[4:]))
		typ := le32(b[8:])
		desc := 12 + pad(nameSize)
		if align == 8 {
			desc = pad(12 + nameSize)
		}
		if desc+descSize > uint64(len(b)) {
			return ""
		}
		if typ == ntGNUBuildID && bytes.Equal(b[12:12+nameSize], []byte("GNU\x00")) {
			return hex.EncodeToString(b[desc : desc+descSize])
		}
		if next := pad(desc + descSize); next < uint64(len(b)) {
			b = b[next:]
		} else {
			return ""
		}
	}
	return ""
}

func le32(b []byte) uint32 {
	return uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16 | uint32(b[3])<<24
}
