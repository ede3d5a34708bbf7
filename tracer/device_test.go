package tracer

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rdmatrace/rdmatrace/internal/loopback"
	"github.com/rdmatrace/rdmatrace/internal/testenv"
	"github.com/rdmatrace/rdmatrace/testbed/softmlx5/truth"
)

// device is a software ConnectX of a test's own.
type device struct {
	t   *testing.T
	dir string
}

const softmlx5 = "../testbed/softmlx5"

// startDevice starts one, with parameters KEY=VALUE, and stops it at the test's end.
func startDevice(t *testing.T, params ...string) *device {
	t.Helper()
	testenv.Root(t)
	for _, tool := range []string{"ib_write_lat", "ibv_rc_pingpong", "gcc", "make"} {
		if _, err := exec.LookPath(tool); err != nil {
			testenv.Missing(t, "needs %s (packages perftest, ibverbs-utils, build-essential)", tool)
		}
	}
	run(t, nil, "make", "-s", "-C", softmlx5)
	d := &device{t: t, dir: t.TempDir()}
	t.Setenv("SOFTMLX5_DIR", d.dir)
	run(t, nil, filepath.Join(softmlx5, "softmlx5"), append([]string{"start"}, params...)...)
	t.Cleanup(func() {
		out, err := exec.Command(filepath.Join(softmlx5, "softmlx5"), "stop").CombinedOutput()
		if err != nil && !strings.Contains(string(out), "no device is running") {
			t.Errorf("stop the device: %v: %s", err, out)
		}
	})
	return d
}

// stop ends the device and returns its log.
func (d *device) stop() []truth.Row {
	d.t.Helper()
	run(d.t, nil, filepath.Join(softmlx5, "softmlx5"), "stop")
	f, err := os.Open(filepath.Join(d.dir, "truth.csv"))
	if err != nil {
		d.t.Fatal(err)
	}
	defer f.Close()
	r, err := truth.NewReader(f)
	if err != nil {
		d.t.Fatal(err)
	}
	var rows []truth.Row
	for {
		row, err := r.Next()
		if errors.Is(err, io.EOF) {
			return rows
		}
		if err != nil {
			d.t.Fatal(err)
		}
		rows = append(rows, row)
	}
}

// onDevice is the command line that runs argv on the device.
func onDevice(argv ...string) []string {
	path, err := filepath.Abs(filepath.Join(softmlx5, "softmlx5"))
	if err != nil {
		panic(err)
	}
	return append([]string{path, "run"}, argv...)
}

// process is a program that runs beside the test.
type process struct {
	cmd *exec.Cmd
	out bytes.Buffer
}

func start(t *testing.T, argv ...string) *process {
	t.Helper()
	p := &process{cmd: exec.Command(argv[0], argv[1:]...)}
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.out
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.kill)
	return p
}

func (p *process) kill() {
	if p.cmd.ProcessState == nil {
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
	}
}

func (p *process) wait(t *testing.T) {
	t.Helper()
	if err := p.cmd.Wait(); err != nil {
		t.Fatalf("%s: %v\n%s", p.cmd, err, p.out.String())
	}
}

// server starts one on the device, on a port of its own, and waits until it
// listens; it returns the arguments that lead a client to it.
func (d *device) server(argv ...string) (p *process, client []string) {
	d.t.Helper()
	port, err := loopback.FreePort()
	if err != nil {
		d.t.Fatal(err)
	}
	argv = append(argv, "-p", fmt.Sprint(port))
	p = start(d.t, onDevice(argv...)...)
	waitFor(d.t, "the server to listen", func() bool {
		if gone(p.cmd.Process.Pid) {
			d.t.Fatalf("%s ended: %s", p.cmd, p.out.String())
		}
		is, err := loopback.Listening(port)
		if err != nil {
			d.t.Fatal(err)
		}
		return is
	})
	return p, append(argv, "127.0.0.1")
}

func commOf(pid int) string {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(raw))
}

// waitFor polls for a condition; the test's own time limit is what ends it.
func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for n := 0; !ok(); n++ {
		if n == 500 {
			t.Logf("still waiting for %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func run(t *testing.T, env []string, name string, args ...string) {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", cmd, err, out)
	}
}
