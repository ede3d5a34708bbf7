package e2e

import (
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// jobs is the directory of testbed/programs' programs, built.
var jobs = sync.OnceValues(func() (string, error) {
	path, err := filepath.Abs(filepath.Join(root, "testbed/programs/build"))
	if err != nil {
		return "", err
	}
	return path, build(nil, "make", "-s", "-C", "testbed/programs")
})

// jobArgv is the command line of a program of testbed/programs, with its path.
func jobArgv(t *testing.T, argv string) []string {
	t.Helper()
	a := strings.Fields(argv)
	a[0] = filepath.Join(built(t, jobs), a[0])
	return a
}

// job starts a program of testbed/programs on CPU 0, away from the device, and
// returns when its traffic begins.
func (d *device) job(t *testing.T, argv string) *program {
	t.Helper()
	p := d.run(t, append([]string{"taskset", "-c", "0"}, jobArgv(t, argv)...)...)
	waitFor(t, argv+" to begin", func() bool {
		p.running(t)
		return strings.Contains(p.output.String(), "running\n")
	})
	return p
}

// spinning is a device that looks at its doorbells all the time, on a CPU that it
// has for itself: what is then late is what a test asked for.
func spinning(t *testing.T, params ...string) *device {
	t.Helper()
	return startDevice(t, append([]string{"POLL=spin"}, params...)...)
}

// hogName is what the kernel calls the hog.
const hogName = "oracle-hog"

// oracleHog starts a process that computes on CPU 0 and returns its pid.
func oracleHog(t *testing.T) int {
	t.Helper()
	cmd := exec.Command("taskset", append([]string{"-c", "0"}, jobArgv(t, hogName)...)...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd.Process.Pid
}
