package unwindtest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/rdmatrace/rdmatrace/internal/testenv"
)

// Device is a software RDMA device (testbed/softmlx5) of the test's own.
type Device struct {
	Dir     string
	command string
}

// StartDevice builds the device if need be and starts it; it is stopped when
// the test ends.
func StartDevice(t testing.TB) *Device {
	t.Helper()
	testenv.Root(t)
	home, err := filepath.Abs(filepath.Join(repository(t), "testbed/softmlx5"))
	if err != nil {
		t.Fatal(err)
	}
	// Packages are tested side by side: one build at a time.
	Run(t, "flock", filepath.Join(home, "Makefile"), "make", "-s", "-C", home)
	// Not t.TempDir: its path can be longer than a socket's may be.
	dir, err := os.MkdirTemp("", "softmlx5-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	d := &Device{Dir: dir, command: filepath.Join(home, "softmlx5")}
	run := func(what string) error {
		if out, err := d.Command(what).CombinedOutput(); err != nil {
			return fmt.Errorf("softmlx5 %s: %w\n%s", what, err, out)
		}
		return nil
	}
	if err := run("start"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := run("stop"); err != nil {
			t.Error(err)
		}
	})
	return d
}

// Command is softmlx5 with arguments, such as "run", PROGRAM, ...
func (d *Device) Command(args ...string) *exec.Cmd {
	cmd := exec.Command(d.command, args...)
	cmd.Env = append(os.Environ(), "SOFTMLX5_DIR="+d.Dir)
	return cmd
}

// repository is the directory of go.mod, above the package under test.
func repository(t testing.TB) string {
	t.Helper()
	for dir := "."; ; dir = filepath.Join(dir, "..") {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		if abs, err := filepath.Abs(dir); err != nil || abs == "/" {
			t.Fatal("there is no go.mod above this package")
		}
	}
}
