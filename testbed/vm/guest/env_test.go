package guest

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rdmatrace/rdmatrace/internal/testenv"
)

// patience is how long anything may take that is only slow when it hangs. Two emulated
// CPUs of arm64 need more than a minute for 2500 messages of two programs that poll busily.
const patience = 3 * time.Minute

func vm() bool { return os.Getenv("RDMATRACE_VM") == "1" }

// inGuest skips a test elsewhere than in the guest. There, what it needs has to
// be there.
func inGuest(t *testing.T) {
	t.Helper()
	if !vm() {
		t.Skip("runs in the guest of testbed/vm, which has kernel RDMA: make vm-test")
	}
	for _, device := range []string{"rxe0", "rxe1"} {
		if _, err := os.Stat("/sys/class/infiniband/" + device); err != nil {
			t.Fatalf("the guest has no %s: %v", device, err)
		}
	}
}

// binary is a program that testbed/vm/test has built, or for tests outside the
// guest `make build`.
func binary(t *testing.T, name string) string {
	t.Helper()
	dir, told := os.LookupEnv("RDMATRACE_BIN")
	if !told {
		dir = filepath.Join("..", "..", "..", "bin")
	}
	path, err := filepath.Abs(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		if !told {
			testenv.Missing(t, "needs `make build`: %v", err)
		}
		t.Fatal(err)
	}
	return path
}

// feature prints a cell of docs/kernels.md.
func feature(name, format string, args ...any) {
	fmt.Printf("feature\t%s\t%s\n", name, fmt.Sprintf(format, args...))
}

// waitFor looks until a condition holds.
func waitFor(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited for %s in vain", what)
		}
	}
}
