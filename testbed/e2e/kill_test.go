package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rdmatrace/rdmatrace/internal/testenv"
)

// The moments at which rdmatrace is killed are spread over its life: it needs
// about half a second to place its probes here. Nothing depends on that.
const killSpread = 1500 * time.Millisecond

func randomPause() { time.Sleep(rand.N(killSpread)) }

// Killed with -9 at any moment, rdmatrace leaves a program alone that it was
// attached to: perftest ends well, with all its work requests, the data of a
// program that compares it is right, and no breakpoint is left in either.
func TestKilledAtRandom(t *testing.T) {
	d := startDevice(t)
	checker := d.run(t, jobArgv(t, "oracle-odd pause=100000")...)
	kills, rounds := testenv.Soak(t, 6, 150), 0
	for kills > 0 {
		const n = 40_000
		p := d.pair(t, "ib_write_lat", "-s", "64", "-n", strconv.Itoa(n))
		for ended := false; !ended; {
			tr := exec.Command(built(t, rdmatrace), "-p", fmt.Sprintf("%d,%d", p.client, checker.Process.Pid))
			if err := tr.Start(); err != nil {
				t.Fatal(err)
			}
			randomPause()
			_ = tr.Process.Kill()
			_ = tr.Wait()
			kills--
			rounds++
			for _, pid := range []int{p.client, checker.Process.Pid} {
				waitFor(t, "no breakpoint to be left", func() bool { return breakpoints(t, pid) == 0 })
			}
			checker.running(t)
			select {
			case <-p.exited:
				ended = true
			default:
			}
		}
		p.wait(t)
		if out := p.output.String(); !strings.Contains(out, strconv.Itoa(n)) || !strings.Contains(out, "t_typical") {
			t.Errorf("perftest says: %s", out)
		}
	}
	checker.right(t)
	t.Logf("killed %d times", rounds)
}

// Killed while it starts a command and follows its children, which it holds
// until their probes are in, rdmatrace leaves none of them standing: all that was
// begun comes to its end, with the right data.
func TestKilledWhileHolding(t *testing.T) {
	d := startDevice(t)
	dir := t.TempDir()
	odd := jobArgv(t, "oracle-odd")[0]
	began := 0
	kills := testenv.Soak(t, 4, 50)
	for i := range kills {
		log := filepath.Join(dir, strconv.Itoa(i))
		script := fmt.Sprintf("echo began >%s; for i in 1 2; do %s count=500 pause=100000 >>%s 2>&1; done; echo ended >>%s", log, odd, log, log)
		tr := exec.Command(built(t, rdmatrace), "--", built(t, softmlx5), "run", "sh", "-c", script)
		tr.Env = d.env()
		tr.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		if err := tr.Start(); err != nil {
			t.Fatal(err)
		}
		group := tr.Process.Pid
		t.Cleanup(func() { _ = syscall.Kill(-group, syscall.SIGKILL) })
		randomPause()
		_ = tr.Process.Kill()
		_ = tr.Wait()
		waitFor(t, "all that it started to end", func() bool { return syscall.Kill(-group, 0) == syscall.ESRCH })
		out, err := os.ReadFile(log)
		if err != nil {
			continue // it was killed before the command began
		}
		began++
		if text := string(out); !strings.HasSuffix(text, "ended\n") || strings.Count(text, "right\n") != 2 {
			t.Errorf("kill %d: the command left %q", i, text)
		}
	}
	t.Logf("killed %d times, %d of them after the command had begun", kills, began)
}
