package e2e

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/rdmatrace/rdmatrace/tracer/image"
)

// breakpoints counts the bytes of a process's libraries that are not those of
// their files: a probe's breakpoint lies in the copy of a page. It is 0 for a
// process that has ended.
func breakpoints(t *testing.T, pid int) (n int) {
	t.Helper()
	maps, err := image.ReadMaps(uint32(pid))
	if err != nil {
		return 0
	}
	looked := 0
	for _, m := range maps {
		if !m.Exec || !strings.Contains(m.Path, ".so") {
			continue
		}
		code, file := make([]byte, m.End-m.Start), make([]byte, m.End-m.Start)
		if !readAt(t, fmt.Sprintf("/proc/%d/mem", pid), code, m.Start) || !readAt(t, m.Path, file, m.Offset) {
			continue
		}
		looked++
		if bytes.Equal(code, file) {
			continue
		}
		for i := range code {
			if code[i] != file[i] {
				n++
			}
		}
	}
	if _, err := os.Stat(fmt.Sprintf("/proc/%d/maps", pid)); err == nil && looked < 3 && len(maps) > 0 {
		t.Fatalf("only %d libraries of process %d could be compared", looked, pid)
	}
	return n
}

// readAt fills b; false: the process ends.
func readAt(t *testing.T, path string, b []byte, offset uint64) bool {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	n, _ := f.ReadAt(b, int64(offset))
	clear(b[n:]) // past the end of a file a mapping is zero
	return n > 0
}
