package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

const root = "../.."

var scratch string // a directory for what is built, removed at the end

func TestMain(m *testing.M) {
	var err error
	if scratch, err = os.MkdirTemp("", "rdmatrace-e2e-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	// Others than root may run what is built here.
	if err := os.Chmod(scratch, 0o755); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	_ = os.RemoveAll(scratch)
	os.Exit(code)
}

// rdmatrace is the path of the program, built as `make build` builds it.
var rdmatrace = sync.OnceValues(func() (string, error) {
	path := filepath.Join(scratch, "rdmatrace")
	return path, build([]string{"CGO_ENABLED=0"}, "go", "build", "-buildvcs=false", "-trimpath", "-o", path, "./cmd/rdmatrace")
})

// softmlx5 is the device's command, with what it needs built.
var softmlx5 = sync.OnceValues(func() (string, error) {
	path, err := filepath.Abs(filepath.Join(root, "testbed/softmlx5/softmlx5"))
	if err != nil {
		return "", err
	}
	return path, build(nil, "make", "-s", "-C", "testbed/softmlx5")
})

func build(env []string, argv ...string) error {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir, cmd.Env = root, append(os.Environ(), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%v: %w\n%s", argv, err, out)
	}
	return nil
}

// built is a program that was built, or the end of the test.
func built(t *testing.T, what func() (string, error)) string {
	t.Helper()
	path, err := what()
	if err != nil {
		t.Fatal(err)
	}
	return path
}
