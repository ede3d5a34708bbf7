package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rdmatrace/rdmatrace/internal/testenv"
)

// cgroup2Mount is where the hierarchy of version 2 is, also beside those of version 1.
func cgroup2Mount(t *testing.T) string {
	t.Helper()
	for _, dir := range []string{"/sys/fs/cgroup", "/sys/fs/cgroup/unified"} {
		if _, err := os.Stat(filepath.Join(dir, "cgroup.procs")); err == nil {
			return dir
		}
	}
	testenv.Missing(t, "neither /sys/fs/cgroup nor its unified holds cgroups of version 2")
	return ""
}

// A hog in a cgroup that is not the target's is named with it in the summary. One
// that runs where the target does is not: that tells nothing.
func TestCgroupOfHog(t *testing.T) {
	root := cgroup2Mount(t)
	name := fmt.Sprintf("rdmatrace e2e %d", os.Getpid())
	group := cgroupDir(t, filepath.Join(root, name), filepath.Join(root, "cgroup.procs"))
	d := startDevice(t)
	p := d.pair(t, "CLI_CPU=0", "ib_read_lat", "-s", "64", "-n", "4000000")
	pid := hog(t, "busyhog", 0)
	beside := traceFor(t, p.client, 1000)
	write(t, filepath.Join(group, "cgroup.procs"), fmt.Sprint(pid))
	apart := traceFor(t, p.client, 1000)
	who := fmt.Sprintf("busyhog (pid %d)", pid)
	for _, c := range []struct {
		tr   *traced
		in   string
		text bool
	}{{beside, "/", false}, {apart, "/" + name, true}} {
		named, rank := 0, 0
		for i, w := range c.tr.Causes["scheduling.preempted"].Who {
			if w.Name == who {
				named, rank = named+1, i
				// Where the tests themselves run in a cgroup, so does a hog of theirs.
				if w.Cgroup != c.in && (c.text || !strings.HasPrefix(w.Cgroup, c.in)) {
					t.Errorf("%s is in %q, want %q", who, w.Cgroup, c.in)
				}
			}
		}
		if named != 1 {
			t.Errorf("%s is named %d times: %+v", who, named, c.tr.Causes["scheduling.preempted"])
		}
		text, stderr, code := say(t, "report", c.tr.file)
		if code != 0 {
			t.Fatalf("report: %s", stderr)
		}
		// The text has the first few only; others may be busier than the hog.
		if said := strings.Contains(strings.Join(strings.Fields(text), " "), who+" in cgroup /"+name); said != c.text && rank < 2 {
			t.Errorf("its cgroup is named: %v, want %v\n%s", said, c.text, text)
		}
	}
}
