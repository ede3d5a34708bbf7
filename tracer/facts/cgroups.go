package facts

import (
	"cmp"
	"encoding/binary"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/rdmatrace/rdmatrace/event"
)

const (
	// cgroupsMost are named. Who disturbs a job is in few of them.
	cgroupsMost = 1024
	// cgroupsWalked is the most directories that are looked at in their tree.
	cgroupsWalked = 1 << 17
	// fileidKernfs is FILEID_KERNFS of include/linux/exportfs.h: a handle is the
	// 64-bit id of a kernfs node, which of a cgroup is what the kernel calls its
	// id, and its directory's inode number.
	fileidKernfs = 0xfe
	// cgroupRoot is the id of the hierarchy's root, as cgroup_setup_root of
	// kernel/cgroup/cgroup.c warns if it is not.
	cgroupRoot = 1
)

// Cgroups finds the paths of cgroups of version 2, the only ones that the
// kernel's programs tell by number. Each is looked up when it is seen first,
// as it may be gone soon. Its methods are for one goroutine.
type Cgroups struct {
	dir    *os.File // where the hierarchy is mounted; nil: nowhere
	mount  cgroupMount
	seen   map[uint64]string // paths; empty: not found
	recent [64]uint64        // ids seen lately, by their low bits
	walk   bool              // handles may not be opened here
	beyond bool              // there were more than cgroupsMost
}

// cgroupMount is where the hierarchy of version 2, or a part of it, is mounted.
type cgroupMount struct {
	root  string // what of it
	point string
}

// OpenCgroups prepares to look up cgroups. Close ends it.
func OpenCgroups() *Cgroups {
	c := &Cgroups{seen: map[uint64]string{}}
	m, ok := findCgroupMount(readBounded("/proc/self/mountinfo", 4<<20))
	if !ok {
		return c
	}
	if dir, err := os.Open(m.point); err == nil {
		c.dir, c.mount = dir, m
	}
	return c
}

// Close frees what OpenCgroups took.
func (c *Cgroups) Close() error {
	if c.dir == nil {
		return nil
	}
	dir := c.dir
	c.dir = nil
	return dir.Close()
}

// See looks up a cgroup that was not seen before; 0 is none.
func (c *Cgroups) See(id uint64) {
	recent := &c.recent[id%uint64(len(c.recent))]
	if *recent == id || id == 0 {
		return
	}
	*recent = id
	if _, ok := c.seen[id]; ok {
		return
	}
	if len(c.seen) >= cgroupsMost {
		c.beyond = true
		return
	}
	c.seen[id] = ""
	if c.dir != nil && !c.walk {
		c.seen[id] = c.open(id)
	}
}

// open gives the path of a cgroup by its handle; empty if there is none.
func (c *Cgroups) open(id uint64) string {
	handle := unix.NewFileHandle(fileidKernfs, binary.NativeEndian.AppendUint64(nil, id))
	fd, err := unix.OpenByHandleAt(int(c.dir.Fd()), handle, unix.O_PATH|unix.O_CLOEXEC)
	if err != nil {
		// It takes CAP_DAC_READ_SEARCH, and no seccomp filter that refuses it.
		c.walk = !errors.Is(err, unix.ESTALE) && !errors.Is(err, unix.ENOENT)
		return ""
	}
	defer unix.Close(fd)
	name, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(fd))
	if err != nil {
		return ""
	}
	return c.mount.inside(strings.TrimSuffix(name, " (deleted)"))
}

// inside is the path in the hierarchy of a directory, named as this process
// sees it. One that is not below the mount is named from the hierarchy's root.
func (m *cgroupMount) inside(dir string) string {
	rest, ok := strings.CutPrefix(dir, strings.TrimSuffix(m.point, "/"))
	if ok && (rest == "" || rest[0] == '/') {
		return path.Join(m.root, rest)
	}
	return dir
}

// Finish lists the cgroups that were seen, by id. Those without a path are
// gone. Those of which nothing can be known are left out, and a sentence says why.
func (c *Cgroups) Finish() (list []event.Cgroup, note string) {
	if c.dir == nil {
		if len(c.seen) > 1 {
			note = "who ran instead is named without its cgroup: no hierarchy of cgroup version 2 can be read here (mount -t cgroup2 none DIR)"
		}
		return nil, note
	}
	whole := !c.walk || c.lookAround()
	if !whole {
		note = "some of who ran instead are named without their cgroup: cgroups may not be opened by number here (CAP_DAC_READ_SEARCH), and not all can be looked at below " + c.mount.point
	}
	for id, name := range c.seen {
		if name != "" || whole {
			list = append(list, event.Cgroup{ID: id, Path: clean(name)})
		}
	}
	slices.SortFunc(list, func(a, b event.Cgroup) int { return cmp.Compare(a.ID, b.ID) })
	if c.beyond {
		note = "processes of more than " + strconv.Itoa(cgroupsMost) + " cgroups ran beside the targets: others are named without theirs"
	}
	return list, note
}

// lookAround names those without a path that are there now. It reports whether
// those that it did not find are gone: in a namespace of cgroups what is mounted
// calls itself the root, and others are beside it.
func (c *Cgroups) lookAround() bool {
	missing := 0
	for _, name := range c.seen {
		if name == "" {
			missing++
		}
	}
	walked, all := 0, true
	err := filepath.WalkDir(c.mount.point, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			all = all && errors.Is(err, fs.ErrNotExist) // it has just gone
			return nil
		}
		if missing == 0 {
			return fs.SkipAll
		}
		if !d.IsDir() {
			return nil
		}
		if walked++; walked > cgroupsWalked {
			return errors.New("too many")
		}
		var st unix.Stat_t
		if unix.Lstat(name, &st) != nil {
			return nil
		}
		if name == c.mount.point {
			all = st.Ino == cgroupRoot
		}
		if known, ok := c.seen[st.Ino]; ok && known == "" {
			c.seen[st.Ino] = c.mount.inside(name)
			missing--
		}
		return nil
	})
	return err == nil && all || missing == 0
}

// findCgroupMount chooses from /proc/PID/mountinfo (proc_pid_mountinfo(5)): the
// most of the hierarchy. It has its own place beside those of version 1.
func findCgroupMount(mountinfo string) (best cgroupMount, ok bool) {
	for line := range strings.Lines(mountinfo) {
		before, after, _ := strings.Cut(line, " - ")
		fields := strings.Fields(before)
		if kind, _, _ := strings.Cut(after, " "); kind != "cgroup2" || len(fields) < 5 {
			continue
		}
		m := cgroupMount{root: unescape(fields[3]), point: unescape(fields[4])}
		if !ok || len(m.root) < len(best.root) {
			best, ok = m, true
		}
	}
	return best, ok
}

// unescape undoes what the kernel does to spaces and the like in the names of
// mountinfo: \040.
func unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+4 <= len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}
