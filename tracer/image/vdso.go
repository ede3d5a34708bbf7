package image

import (
	"bytes"
	"fmt"
	"os"
	"sync"
)

const vdsoPath = "[vdso]"

// ownVDSO is the vdso of this process. The kernel maps the same pages into
// every 64-bit process (arch/x86/entry/vdso/vma.c), so the target's memory
// need not be read for it.
var ownVDSO = sync.OnceValues(func() ([]byte, error) {
	maps, err := ReadMaps(uint32(os.Getpid()))
	if err != nil {
		return nil, err
	}
	for _, m := range maps {
		if m.Path == vdsoPath {
			return readSelf(m)
		}
	}
	return nil, fmt.Errorf("read the vdso: this process has none")
})

func readSelf(m Mapping) ([]byte, error) {
	f, err := os.Open("/proc/self/mem")
	if err != nil {
		return nil, fmt.Errorf("read the vdso: %w", err)
	}
	defer f.Close()
	b := make([]byte, m.End-m.Start)
	if _, err := f.ReadAt(b, int64(m.Start)); err != nil {
		return nil, fmt.Errorf("read the vdso: %w", err)
	}
	return b, nil
}

// newVDSO makes the File of a vdso mapping of the given size.
func newVDSO(size uint64) (*File, error) {
	b, err := ownVDSO()
	if err != nil {
		return nil, err
	}
	if uint64(len(b)) != size {
		return nil, fmt.Errorf("read the vdso: the target's is %d bytes, this process's %d", size, len(b))
	}
	return NewFile(bytes.NewReader(b), vdsoPath)
}
