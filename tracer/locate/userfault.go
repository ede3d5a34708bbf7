package locate

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// smapsLimit is the resident size above which smaps is not read unless the
// process has a userfaultfd: to make it the kernel walks all page tables,
// 5 ms for each GiB of small pages (measured), holding mmap_lock.
const smapsLimit = 4 << 30

// userfaults are the starts of mappings whose missing or protected pages are a
// userfaultfd's business (VmFlags um, uw, ui in /proc/PID/smaps, see
// Documentation/filesystems/proc.rst). Only present pages are read anyway;
// these mappings are not read at all.
func (p *Process) userfaults(c *collector) map[uint64]bool {
	if p.resident() > smapsLimit && !p.hasUserfault() {
		return nil
	}
	f, err := os.Open(fmt.Sprintf("/proc/%d/smaps", p.pid))
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			c.note("whether a userfaultfd watches the memory is not known: %v", err)
		}
		return nil
	}
	defer f.Close()
	avoid := map[uint64]bool{}
	var start uint64
	sc := bufio.NewScanner(f)
	sc.Buffer(nil, 64<<10)
	for sc.Scan() {
		line := sc.Text()
		if flags, ok := strings.CutPrefix(line, "VmFlags:"); ok {
			for _, fl := range strings.Fields(flags) {
				if fl == "um" || fl == "uw" || fl == "ui" {
					avoid[start] = true
				}
			}
			continue
		}
		// A mapping's first line begins with its addresses, others with a name.
		if lo, _, ok := strings.Cut(line, "-"); ok {
			if a, err := strconv.ParseUint(lo, 16, 64); err == nil {
				start = a
			}
		}
	}
	return avoid
}

// resident is the process's resident size in bytes.
func (p *Process) resident() uint64 {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", p.pid))
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(b))
	if len(fields) < 2 {
		return 0
	}
	pages, _ := strconv.ParseUint(fields[1], 10, 64)
	return pages * uint64(os.Getpagesize())
}

// hasUserfault says whether the process itself holds a userfaultfd.
func (p *Process) hasUserfault() bool {
	dir := fmt.Sprintf("/proc/%d/fd", p.pid)
	fds, err := os.ReadDir(dir)
	if err != nil {
		return true
	}
	for _, fd := range fds {
		if to, err := os.Readlink(filepath.Join(dir, fd.Name())); err == nil && to == "anon_inode:[userfaultfd]" {
			return true
		}
	}
	return false
}
