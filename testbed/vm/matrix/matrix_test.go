package matrix

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/rdmatrace/rdmatrace/internal/testenv"
)

// parts of the suite are run, so that both kernels take four minutes on
// two CPUs. make vm-test runs all of it.
var parts = []string{"TestPrograms", "TestProbes", "TestCounted"}

// bootLimit, in seconds, is twice what a boot with these tests takes on two CPUs that
// do other work as well. Two boots of each kernel take less than go test's limit of 20
// minutes, so that no guest is left behind.
const bootLimit = 240

// TestKernels boots each kernel of CI, runs a part of the suite there, and has
// each of the guest's tests as a subtest.
func TestKernels(t *testing.T) {
	testenv.Root(t)
	list, err := exec.Command("bash", "-c", ". ../lib.sh && matrix ci").Output()
	kernels := strings.Fields(string(list))
	if err != nil || len(kernels) < 2 {
		t.Fatalf("the matrix has %q for CI: %v", kernels, err)
	}
	for _, kernel := range kernels {
		t.Run(kernel, func(t *testing.T) {
			output, said := boot(t, kernel)
			passed := replay(t, said)
			for _, name := range parts {
				if !passed[name] {
					t.Errorf("%s did not pass:\n%s", name, output)
				}
			}
		})
	}
}

// boot runs the tests on a kernel and gives what the script and what the guest
// said. Where it dies, hangs or a test fails it is booted again, once: its CPUs are
// emulated, with known faults (../README.md), and may stand still for long.
func boot(t *testing.T, kernel string) (output, said string) {
	t.Helper()
	results := filepath.Join("..", "..", "..", "build", "vm", "results", kernel)
	for try := range 2 {
		cmd := exec.Command("../test", kernel)
		cmd.Env = append(os.Environ(), fmt.Sprintf("VM_LIMIT=%d", bootLimit), "VM_TRIES=1", "VM_RUN=^("+strings.Join(parts, "|")+")$")
		b, err := cmd.CombinedOutput()
		output = string(b)
		guest, missing := os.ReadFile(filepath.Join(results, "stdout"))
		if missing != nil {
			t.Fatalf("no guest ran: %v\n%s", err, output)
		}
		said = string(guest)
		if _, hung := os.Stat(filepath.Join(results, "status")); hung == nil {
			if err != nil && try == 0 {
				t.Logf("booted again, as %v\n%s", err, output)
				continue
			}
			if err != nil && !strings.Contains(said, "--- FAIL") {
				t.Errorf("%v\n%s", err, output)
			}
			return output, said
		}
		t.Logf("the guest hung or died; it said:\n%s", said)
	}
	t.Errorf("the guest hung or died twice:\n%s", output)
	return output, said
}

// verdict is a line that a test's end prints; subtests' are indented.
var verdict = regexp.MustCompile(`^ *--- (PASS|FAIL|SKIP): (\S+)`)

// replay has every test of the guest as a subtest, and tells which passed.
func replay(t *testing.T, said string) map[string]bool {
	passed := map[string]bool{}
	for line := range strings.Lines(said) {
		m := verdict.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		passed[m[2]] = m[1] == "PASS"
		t.Run(m[2], func(t *testing.T) {
			if m[1] != "PASS" {
				t.Errorf("%s in the guest, which said:\n%s", m[1], said)
			}
		})
	}
	return passed
}
