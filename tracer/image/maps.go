package image

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
)

// Mapping is one line of /proc/PID/maps.
type Mapping struct {
	Start, End uint64 // addresses in the target; End is exclusive
	Offset     uint64 // of Start in the file
	Dev        uint64 // major<<32 | minor, as the maps file prints them
	Inode      uint64 // 0: no file
	Read, Exec bool
	Write      bool
	Shared     bool   // not copied on write: a device, shared memory, or a file's own pages
	Path       string // as the target sees it; "[vdso]" and the like; empty: anonymous
	Deleted    bool   // the file has no name any more
}

// maxMapsLine bounds one line: a path is at most PATH_MAX, escaped at most
// four bytes for one.
const maxMapsLine = 4*4096 + 256

// ReadMaps reads the memory map of a process.
func ReadMaps(pid uint32) ([]Mapping, error) {
	f, err := os.Open(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return nil, fmt.Errorf("read the memory map of process %d: %w", pid, err)
	}
	defer f.Close()
	return ParseMaps(f)
}

// ParseMaps parses the text of /proc/PID/maps (proc_pid_maps(5)). Lines it
// does not understand are an error: a map that is half read misleads.
func ParseMaps(r io.Reader) ([]Mapping, error) {
	var maps []Mapping
	sc := bufio.NewScanner(r)
	sc.Buffer(make([]byte, 0, 4096), maxMapsLine)
	for sc.Scan() {
		m, err := parseMapsLine(sc.Text())
		if err != nil {
			return nil, err
		}
		maps = append(maps, m)
	}
	if err := sc.Err(); err != nil {
		return nil, fmt.Errorf("read a memory map: %w", err)
	}
	return maps, nil
}

// parseMapsLine parses
//
//	7f5d2a000000-7f5d2a021000 r-xp 00001000 fd:00 1234   /usr/lib/libfoo.so (deleted)
func parseMapsLine(line string) (Mapping, error) {
	bad := func() (Mapping, error) {
		return Mapping{}, fmt.Errorf("memory map line %.80q is not understood", line)
	}
	var field [5]string
	rest := line
	for i := range field {
		var ok bool
		field[i], rest, ok = strings.Cut(rest, " ")
		if !ok && i < len(field)-1 {
			return bad()
		}
	}
	lo, hi, ok1 := strings.Cut(field[0], "-")
	major, minor, ok2 := strings.Cut(field[3], ":")
	if !ok1 || !ok2 || len(field[1]) != 4 {
		return bad()
	}
	var m Mapping
	var maj, min uint64
	for _, n := range []struct {
		to   *uint64
		text string
		base int
		bits int
	}{
		{&m.Start, lo, 16, 64}, {&m.End, hi, 16, 64}, {&m.Offset, field[2], 16, 64},
		{&maj, major, 16, 32}, {&min, minor, 16, 32}, {&m.Inode, field[4], 10, 64},
	} {
		v, err := strconv.ParseUint(n.text, n.base, n.bits)
		if err != nil {
			return bad()
		}
		*n.to = v
	}
	if m.End < m.Start {
		return bad()
	}
	m.Dev = maj<<32 | min
	m.Read, m.Exec = field[1][0] == 'r', field[1][2] == 'x'
	m.Write, m.Shared = field[1][1] == 'w', field[1][3] == 's'
	m.Path = unescape(strings.TrimLeft(rest, " "))
	if m.Inode != 0 {
		m.Path, m.Deleted = strings.CutSuffix(m.Path, " (deleted)")
	}
	return m, nil
}

// unescape undoes the kernel's \012 for a newline, the only character that
// show_map_vma escapes (fs/proc/task_mmu.c).
func unescape(s string) string {
	return strings.ReplaceAll(s, `\012`, "\n")
}
