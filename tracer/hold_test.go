package tracer

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/rdmatrace/rdmatrace/bpf"
	"github.com/rdmatrace/rdmatrace/internal/testenv"
)

// TestGuard: once the tracer is gone, without a word, the processes that are
// held go on, and no process is held any more. After a good-bye nothing is touched.
func TestGuard(t *testing.T) {
	testenv.Root(t)
	for _, c := range []struct {
		name string
		end  func(*guard) error
		goes bool
	}{
		{"killed", func(g *guard) error { g.pipe.Close(); return g.cmd.Wait() }, true},
		{"dismissed", (*guard).dismiss, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			targets, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Hash, KeySize: 4, ValueSize: uint32(unsafe.Sizeof(bpf.RdmaTarget{})), MaxEntries: 16})
			if err != nil {
				t.Fatal(err)
			}
			defer targets.Close()
			ours, other := stoppedProcess(t), stoppedProcess(t)
			for pid, flags := range map[int]uint32{ours: targetHold, other: 0} {
				if err := targets.Put(uint32(pid), bpf.RdmaTarget{Flags: flags}); err != nil {
					t.Fatal(err)
				}
			}
			g, err := startGuard(targets)
			if err != nil {
				t.Fatal(err)
			}
			if err := c.end(g); err != nil {
				t.Error(err)
			}
			var now bpf.RdmaTarget
			if err := targets.Lookup(uint32(ours), &now); err != nil {
				t.Fatal(err)
			}
			if went := stateOf(t, ours) != "T"; went != c.goes || (now.Flags == 0) != c.goes {
				t.Errorf("the held process goes on: %t, its flags are %#x", went, now.Flags)
			}
			if s := stateOf(t, other); s != "T" {
				t.Errorf("a process that somebody else has stopped is in state %s", s)
			}
		})
	}
}

// TestGuardOfAnOrphan: nobody is sent SIGHUP where the process group is an orphan
// already, as of a job that no shell watches, and a member stands still.
func TestGuardOfAnOrphan(t *testing.T) {
	testenv.Root(t)
	cmd := exec.Command("/proc/self/exe", "-test.run=^TestGuard$")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// stoppedProcess is one that stands still by SIGSTOP.
func stoppedProcess(t *testing.T) int {
	t.Helper()
	pid := start(t, "sleep", "1000").cmd.Process.Pid
	waitFor(t, "a process to run its program", func() bool { return commOf(pid) == "sleep" })
	if err := unix.Kill(pid, unix.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "a process to stop", func() bool { return stateOf(t, pid) == "T" })
	return pid
}

// stateOf is the letter of a process's state in its stat.
func stateOf(t *testing.T, pid int) string {
	t.Helper()
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(raw), ") ")
	return rest[:1]
}
