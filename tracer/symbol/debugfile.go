package symbol

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path"

	"golang.org/x/sys/unix"

	"github.com/rdmatrace/rdmatrace/tracer/image"
)

const debugRoot = "/usr/lib/debug"

// openDebugFile looks for the separate debug file of a file where GDB does
// ("Debugging Information in Separate Files" in its manual): by build-id, then
// by .gnu_debuglink; first as the target sees the file system, then as we do.
// Without one there is no error.
func openDebugFile(f *image.File) (*os.File, *elf.File, error) {
	var errs []error
	link, crc := debugLink(f.ELF)
	for _, p := range debugPaths(f, link) {
		for _, open := range []func(string) (*os.File, error){f.Open, openHere} {
			h, err := open(p)
			if err != nil {
				continue // most of these places do not exist
			}
			e, err := checkDebugFile(h, f, crc)
			if err == nil {
				return h, e, nil
			}
			h.Close()
			errs = append(errs, fmt.Errorf("debug file %s: %w", p, err))
		}
	}
	return nil, nil, errors.Join(errs...)
}

// openHere opens a regular file of our own file system.
func openHere(p string) (*os.File, error) {
	if fi, err := os.Stat(p); err != nil || !fi.Mode().IsRegular() {
		return nil, errors.Join(err, os.ErrNotExist)
	}
	return os.OpenFile(p, os.O_RDONLY|unix.O_NONBLOCK, 0)
}

func debugPaths(f *image.File, link string) []string {
	var paths []string
	if id := f.BuildID; len(id) > 2 {
		paths = append(paths, path.Join(debugRoot, ".build-id", id[:2], id[2:]+".debug"))
	}
	if link != "" && path.IsAbs(f.Path) {
		dir := path.Dir(f.Path)
		paths = append(paths,
			path.Join(dir, link), path.Join(dir, ".debug", link), path.Join(debugRoot, dir, link))
	}
	return paths
}

// debugLink reads .gnu_debuglink: a file name, padding to four bytes, and the
// CRC-32 of that file.
func debugLink(e *elf.File) (name string, crc uint32) {
	s := e.Section(".gnu_debuglink")
	if s == nil || s.Size > 4096 {
		return "", 0
	}
	b := make([]byte, s.Size)
	if _, err := s.ReadAt(b, 0); err != nil && !errors.Is(err, io.EOF) {
		return "", 0
	}
	text, _, ok := bytes.Cut(b, []byte{0})
	at := (len(text) + 4) &^ 3
	if !ok || len(text) == 0 || at+4 > len(b) || bytes.ContainsRune(text, '/') {
		return "", 0
	}
	return string(text), binary.LittleEndian.Uint32(b[at:])
}

// maxChecked is the largest file whose CRC is computed: a second's work.
const maxChecked = 1 << 30

// checkDebugFile makes sure that a file is the debug file of f and not that of
// another build: by build-id, or by CRC where there is none.
func checkDebugFile(h *os.File, f *image.File, crc uint32) (e *elf.File, err error) {
	id, e, err := image.ReadELF(h)
	if err != nil {
		return nil, err
	}
	if f.BuildID != "" && id != "" {
		if id != f.BuildID {
			return nil, errors.New("it is of another build")
		}
		return e, nil
	}
	sum := crc32.NewIEEE()
	n, err := io.Copy(sum, io.LimitReader(io.NewSectionReader(h, 0, maxChecked), maxChecked))
	if err != nil {
		return nil, err
	}
	if n == maxChecked || sum.Sum32() != crc {
		return nil, errors.New("its checksum is another")
	}
	return e, nil
}
