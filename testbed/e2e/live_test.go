package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rdmatrace/rdmatrace/internal/testenv"
)

// busy is a pair whose client is worth tracing.
func busy(t *testing.T) (*device, *pair) {
	t.Helper()
	d := startDevice(t)
	return d, d.pair(t, "ib_write_lat", "-s", "64", "-n", "4000000")
}

// A trace ends with -d, with a signal, and with its target; each time there is
// a summary, and the target goes on unharmed.
func TestEnds(t *testing.T) {
	_, p := busy(t)
	got := attach(t, p.client, "-d", "300ms").result(t)
	if got.WindowNS < 300e6 {
		t.Errorf("-d 300ms gave a window of %d ns", got.WindowNS)
	}
	p.running(t)
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		tr := attach(t, p.client)
		_ = tr.Process.Signal(sig)
		if got := tr.result(t); got.stderr != "" {
			t.Errorf("%v: stderr: %s", sig, got.stderr)
		}
		p.running(t)
	}
	tr := attach(t, p.client)
	p.stop()
	tr.result(t).balance(t)
}

// A target that ends while rdmatrace attaches, at any moment, gives a summary
// or one line, and nothing half-written.
func TestTargetEndsWhileAttaching(t *testing.T) {
	d := startDevice(t)
	dir := t.TempDir()
	for i := range 12 {
		p := d.pair(t, "ib_write_lat", "-s", "64", "-n", "4000000")
		cmd := exec.Command(built(t, rdmatrace), "-p", strconv.Itoa(p.client), "-o", filepath.Join(dir, "c.rdt"), "--pprof", filepath.Join(dir, "p.pb.gz"))
		var out, errs strings.Builder
		cmd.Stdout, cmd.Stderr = &out, &errs
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(i) * 40 * time.Millisecond) // spreads the moments; nothing depends on it
		p.stop()
		err := cmd.Wait()
		left, _ := filepath.Glob(filepath.Join(dir, "*"))
		switch code := cmd.ProcessState.ExitCode(); {
		case code == 0 && strings.Contains(out.String(), "BOOKS") && len(left) == 2:
		case code == 1 && strings.Count(errs.String(), "\n") == 1 && strings.HasPrefix(errs.String(), "rdmatrace: ") && len(left) == 0:
		default:
			t.Errorf("try %d: %v, files %v\nstdout: %s\nstderr: %s", i, err, left, out.String(), errs.String())
		}
		for _, f := range left {
			_ = os.Remove(f)
		}
	}
}

// SIGKILL leaves the target running, no probe behind, and of the files only
// one whose name says that it is not whole, yet which can be read.
func TestKilled(t *testing.T) {
	_, p := busy(t)
	tr := attach(t, p.client)
	tr.sees(t, 100)
	_ = tr.Process.Kill()
	<-tr.exited
	left, _ := filepath.Glob(filepath.Join(filepath.Dir(tr.capture), "capture*"))
	if len(left) != 1 || !strings.HasPrefix(left[0], tr.capture+".") || !strings.HasSuffix(left[0], ".tmp") {
		t.Fatalf("left behind: %v", left)
	}
	out, errs, code := say(t, "report", left[0])
	if code != 0 || !strings.Contains(out, "BOOKS") || !strings.Contains(errs, "cut off") {
		t.Errorf("report of what was left: exit %d\n%s%s", code, out, errs)
	}
	p.running(t)
	// Its next trace is as good as the first.
	traceFor(t, p.client, 100).balance(t)
	p.running(t)
}

// The report of a capture file is the report that was given live.
func TestReportIsTheSame(t *testing.T) {
	_, p := busy(t)
	tr := attach(t, p.client)
	tr.sees(t, 500)
	got := tr.stop(t)
	again, errs, code := say(t, "report", "--json", got.file)
	if live := tr.stdout.String(); code != 0 || errs != "" || again != live {
		t.Errorf("exit %d, %s\n%s", code, errs, cmp.Diff(live, again))
	}
}

// Memory stays below what issue and README promise, 150 MB.
func TestMemory(t *testing.T) {
	d := startDevice(t)
	p := d.pair(t, "ib_write_bw", "-s", "64", "-n", "4000000")
	tr := attach(t, p.client, "-d", "2s")
	// Not what wait4 tells: that has the memory of this process in it, which
	// the new one shared until it was rdmatrace.
	kb := 0
	waitFor(t, "rdmatrace to end", func() bool {
		kb = max(kb, peakKB(tr.Process.Pid))
		select {
		case <-tr.exited:
			return true
		default:
			return false
		}
	})
	tr.result(t)
	t.Logf("%d kB", kb)
	if kb == 0 || kb >= 150<<10 {
		t.Errorf("rdmatrace used %d kB", kb)
	}
}

// peakKB is the most memory that a process had so far; 0 if it has ended.
func peakKB(pid int) int { return statusKB(pid, "VmHWM:") }

// A dry run says where probes would go and at what cost, and places none.
func TestDryRun(t *testing.T) {
	_, p := busy(t)
	out, errs, code := say(t, "-p", strconv.Itoa(p.client), "--dry-run")
	if code != 0 || errs != "" {
		t.Fatalf("exit %d: %s", code, errs)
	}
	for _, want := range []string{"wr_complete", "post_send", "poll_cq", "create_qp", "libmlx5", "return", " us ", "IN THE KERNEL", "sched_switch",
		"COST OF A WORK REQUEST", "a call of post_send, whatever it posts: 2 traps, ", "finds nothing: 1 trap, ", "from wr_start to wr_complete: 5 traps, "} {
		if !strings.Contains(strings.Join(strings.Fields(out), " "), want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	// The mapping of a library that holds a breakpoint has a page of its own.
	smaps, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(p.client), "smaps"))
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(smaps), "[uprobes]"); n != 0 {
		t.Errorf("%d areas of uprobes in the target", n)
	}
	p.running(t)
}

// A program that rdmatrace starts keeps its exit status and its output, also
// when it uses no RDMA at all.
func TestStartedProgram(t *testing.T) {
	testenv.Root(t)
	out, errs, code := say(t, "--", "sh", "-c", "echo its own words; exit 7")
	if code != 0 || !strings.Contains(out, "its own words\n") || !strings.Contains(errs, "rdmatrace: sh exited with status 7\n") {
		t.Errorf("exit %d\n%.2000s\n%s", code, out, errs)
	}
	out, errs, code = say(t, "--json", "--", "sh", "-c", "echo its own words; kill -9 $$")
	if code != 0 || !strings.HasPrefix(out, "{") || !strings.Contains(errs, "its own words\n") || !strings.Contains(errs, "rdmatrace: sh was ended by signal 9 (killed)\n") {
		t.Errorf("exit %d\n%.2000s\n%s", code, out, errs)
	}
}
