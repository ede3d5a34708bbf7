package facts

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// emulators are devices in user space: a library, preloaded into the target,
// that stands in for the kernel and shows a sysfs tree of its own. The tree is
// in dir of the directory that an environment variable of the target names, or
// in a fixed place.
var emulators = []struct{ library, variable, standard, dir string }{
	{"libsoftmlx5", "SOFTMLX5_DIR", "/run/softmlx5", "sys"}, // testbed/softmlx5
}

// SysfsRoots are the directories in which a process's RDMA devices are
// described, in the order to look: where its emulated ones are, then where
// SYSFS_PATH tells rdma-core to look, then /sys. The first ones are seen
// through the root of the process.
func SysfsRoots(pid uint32) []string { return sysfsRoots("/proc", pid) }

func sysfsRoots(proc string, pid uint32) []string {
	var roots []string
	through := func(dir string) {
		if filepath.IsAbs(dir) && filepath.Clean(dir) != "/sys" {
			roots = append(roots, filepath.Join(proc, fmt.Sprint(pid), "root", dir))
		}
	}
	env := environ(proc, pid)
	for _, e := range emulators {
		if strings.Contains(env["LD_PRELOAD"], e.library) {
			base := env[e.variable]
			if base == "" {
				base = e.standard
			}
			through(filepath.Join(base, e.dir))
		}
	}
	through(env["SYSFS_PATH"])
	return append(roots, "/sys")
}

// tree is an open sysfs root: it outlives the target through whose root it was
// found. Nothing outside of it is read, whatever links it holds.
type tree struct{ root *os.Root }

func openTree(dir string) (*tree, error) {
	r, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	return &tree{r}, nil
}

// maxAttribute is the largest sysfs attribute: a page.
const maxAttribute = 4096

// read returns an attribute; ok is false if there is none or it cannot be read.
func (t *tree) read(path ...string) (text string, ok bool) {
	name := filepath.Join(path...)
	if fi, err := t.root.Stat(name); err != nil || !fi.Mode().IsRegular() {
		return "", false
	}
	f, err := t.root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return "", false
	}
	defer f.Close()
	b := make([]byte, maxAttribute)
	n, err := f.Read(b)
	if n == 0 && err != nil {
		return "", false
	}
	return clean(string(b[:n])), true
}

// text is read for attributes whose absence means an empty string.
func (t *tree) text(path ...string) string {
	s, _ := t.read(path...)
	return s
}

// list returns the names in a directory, sorted; nil if there is none.
func (t *tree) list(path ...string) []string {
	f, err := t.root.Open(filepath.Join(path...))
	if err != nil {
		return nil
	}
	defer f.Close()
	entries, err := f.ReadDir(-1)
	if err != nil {
		return nil
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	slices.Sort(names)
	return names
}

// has says whether something is there.
func (t *tree) has(path ...string) bool {
	_, err := t.root.Stat(filepath.Join(path...))
	return err == nil
}

// follow returns the directory that a link leads to, relative to the root and
// without links; the path itself if it is no link.
func (t *tree) follow(path string) string {
	for range maxLinks {
		target, at, ok := t.firstLink(path)
		if !ok {
			return path
		}
		path = filepath.Join(filepath.Dir(at), target) + strings.TrimPrefix(path, at)
	}
	return path
}

const maxLinks = 16

// firstLink finds the first component of a path that is a link.
func (t *tree) firstLink(path string) (target, at string, ok bool) {
	for i := 0; i <= len(path); i++ {
		if i < len(path) && path[i] != '/' {
			continue
		}
		if target, err := t.root.Readlink(path[:i]); err == nil && i > 0 {
			return target, path[:i], true
		}
	}
	return "", "", false
}
