package facts

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rdmatrace/rdmatrace/event"
	"github.com/rdmatrace/rdmatrace/internal/testenv"
)

func TestFindCgroupMount(t *testing.T) {
	const v1 = "34 25 0:28 / /sys/fs/cgroup/cpu rw,relatime shared:9 - cgroup cgroup rw,cpu\n"
	for name, c := range map[string]struct {
		mountinfo string
		want      cgroupMount
	}{
		"version 2":      {"35 24 0:30 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n", cgroupMount{"/", "/sys/fs/cgroup"}},
		"hybrid":         {v1 + "44 33 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n", cgroupMount{"/", "/sys/fs/cgroup/unified"}},
		"the most of it": {"1 1 0:1 /docker/x /a rw - cgroup2 c rw\n2 1 0:1 / /b rw - cgroup2 c rw\n3 1 0:1 /y /c rw - cgroup2 c rw\n", cgroupMount{"/", "/b"}},
		"blanks":         {`1 1 0:1 /a\040b /c\134d\ rw - cgroup2 c rw` + "\n", cgroupMount{"/a b", `/c\d\`}},
		"version 1 only": {v1, cgroupMount{}},
		"torn":           {"35 24 0:30 / \n - cgroup2\n35 24 - cgroup2 x\n", cgroupMount{}},
	} {
		got, ok := findCgroupMount(c.mountinfo)
		if got != c.want || ok != (c.want != cgroupMount{}) {
			t.Errorf("%s: %+v, %v", name, got, ok)
		}
	}
}

func TestCgroupInside(t *testing.T) {
	m := cgroupMount{root: "/kubepods", point: "/sys/fs/cgroup"}
	for dir, want := range map[string]string{
		"/sys/fs/cgroup":      "/kubepods",
		"/sys/fs/cgroup/pod1": "/kubepods/pod1",
		"/sys/fs/cgroups":     "/sys/fs/cgroups",
		"/system.slice/other": "/system.slice/other", // outside of the mount
	} {
		if got := m.inside(dir); got != want {
			t.Errorf("%s: %s", dir, got)
		}
	}
}

// madeCgroup makes a cgroup below the hierarchy's root for a test.
func madeCgroup(t *testing.T, c *Cgroups, name string) (id uint64, dir string) {
	t.Helper()
	if c.dir == nil {
		testenv.Missing(t, "needs a hierarchy of cgroup version 2")
	}
	dir = filepath.Join(c.mount.point, name)
	if err := os.Mkdir(dir, 0o755); err != nil {
		testenv.Missing(t, "needs to make a cgroup: %v", err)
	}
	t.Cleanup(func() { _ = os.Remove(dir) })
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		t.Fatal(err)
	}
	return st.Ino, dir
}

// hostileName holds what a directory's name may, and a terminal should not see.
const hostileName = "rdmatrace-facts \x1b[31m\xff;\"\\"

func TestCgroups(t *testing.T) {
	for name, walk := range map[string]bool{"by handle": false, "by walk": true} {
		t.Run(name, func(t *testing.T) {
			c := OpenCgroups()
			defer c.Close()
			c.walk = walk
			there, _ := madeCgroup(t, c, hostileName+name)
			gone, dir := madeCgroup(t, c, "rdmatrace-gone")
			late, lateDir := madeCgroup(t, c, "rdmatrace-late")
			if err := os.Remove(dir); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				for _, id := range []uint64{0, there, gone, late, 0} {
					c.See(id)
				}
			}
			if err := os.Remove(lateDir); err != nil {
				t.Fatal(err)
			}
			if c.walk != walk {
				testenv.Missing(t, "needs the permission to open handles")
			}
			lateName := "/rdmatrace-late" // seen in time
			if walk {
				lateName = ""
			}
			list, note := c.Finish()
			got := map[uint64]event.Cgroup{}
			for _, g := range list {
				got[g.ID] = g
			}
			want := map[uint64]string{there: "/" + strings.ToValidUTF8(hostileName+name, "\uFFFD"), gone: "", late: lateName}
			for id, path := range want {
				if g, ok := got[id]; !ok || g.Path != path {
					t.Errorf("%d is %q, %v; want %q", id, g.Path, ok, path)
				}
			}
			if len(got) != len(want) || note != "" {
				t.Errorf("%+v, %q", list, note)
			}
		})
	}
}

// A machine with more cgroups than are kept, and one without their hierarchy.
func TestCgroupsBeyond(t *testing.T) {
	c := OpenCgroups()
	defer c.Close()
	if c.dir == nil {
		testenv.Missing(t, "needs a hierarchy of cgroup version 2")
	}
	const none = 1 << 40 // no cgroup has such an id
	for id := range uint64(cgroupsMost + 1) {
		c.See(none + id)
	}
	list, note := c.Finish()
	if len(list) != cgroupsMost || list[0].ID != none || list[0].Path != "" || !strings.Contains(note, "more than 1024 cgroups") {
		t.Errorf("%d, %+v, %q", len(list), list[0], note)
	}

	blind := &Cgroups{seen: map[uint64]string{}}
	blind.See(1)
	if list, note := blind.Finish(); len(list) != 0 || note != "" {
		t.Errorf("all are in one: %+v, %q", list, note)
	}
	blind.See(2)
	if list, note := blind.Finish(); len(list) != 0 || !strings.Contains(note, "without its cgroup") {
		t.Errorf("%+v, %q", list, note)
	}
}

// In a namespace of cgroups, what is mounted calls itself the root. Where cgroups
// may not be opened by number, one beside it is not taken for one that is gone.
func TestCgroupsOfNamespace(t *testing.T) {
	c := OpenCgroups()
	defer c.Close()
	c.walk = true
	inside, dir := madeCgroup(t, c, "rdmatrace-namespace")
	beside, _ := madeCgroup(t, c, "rdmatrace-beside")
	c.mount = cgroupMount{root: "/", point: dir}
	c.See(inside)
	if list, note := c.Finish(); len(list) != 1 || list[0] != (event.Cgroup{ID: inside, Path: "/"}) || note != "" {
		t.Errorf("all that was seen is there: %+v, %q", list, note)
	}
	c.See(beside)
	if list, note := c.Finish(); len(list) != 1 || list[0].ID != inside || !strings.Contains(note, "CAP_DAC_READ_SEARCH") {
		t.Errorf("%+v, %q", list, note)
	}
}
