// Package softmlx5 has the device's own tests run by go test.
package softmlx5

import (
	"bufio"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/rdmatrace/rdmatrace/internal/testenv"
)

// TestDevice runs the quick half of run-tests.sh; each of its cases is a
// subtest. QUICK=0 in the environment runs all of them, which takes minutes.
func TestDevice(t *testing.T) {
	testenv.Root(t)
	cmd := exec.Command("./run-tests.sh")
	cmd.Env = append([]string{"QUICK=1"}, os.Environ()...)
	if testenv.CI() {
		cmd.Env = append(cmd.Env, "REQUIRE_ALL=1")
	}
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	cases := 0
	for lines := bufio.NewScanner(strings.NewReader(string(out))); lines.Scan(); {
		outcome, name, _ := strings.Cut(lines.Text(), "  ")
		switch outcome {
		case "PASS", "FAIL", "SKIP":
			cases++
			t.Run(name, func(t *testing.T) {
				switch outcome {
				case "FAIL":
					t.Error("see the output of run-tests.sh")
				case "SKIP":
					t.Skip(name)
				}
			})
		}
	}
	if err != nil || cases == 0 {
		t.Errorf("run-tests.sh: %v\n%s", err, out)
	}
}
