package e2e

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rdmatrace/rdmatrace/internal/testenv"
)

// patience is how long anything may take that is only slow when it hangs.
const patience = 2 * time.Minute

// device is a software RDMA device in a directory of its own.
type device struct {
	dir     string
	stopped bool
}

// startDevice starts a device with KEY=VALUE parameters (testbed/softmlx5/README.md)
// and stops it when the test ends.
func startDevice(t *testing.T, params ...string) *device {
	t.Helper()
	testenv.Root(t)
	built(t, rdmatrace) // now, not while traffic runs
	// Not t.TempDir: its path can be longer than a socket's may be.
	dir, err := os.MkdirTemp("", "softmlx5-")
	if err != nil {
		t.Fatal(err)
	}
	d := &device{dir: dir}
	t.Cleanup(func() {
		if t.Failed() {
			log, _ := os.ReadFile(filepath.Join(dir, "log"))
			t.Logf("the device said: %s", log)
		}
		_ = os.RemoveAll(dir)
	})
	d.command(t, append([]string{"start"}, params...)...)
	t.Cleanup(func() { d.stop(t) })
	return d
}

// stop ends the device, once; its programs should have ended.
func (d *device) stop(t *testing.T) {
	t.Helper()
	if !d.stopped {
		d.stopped = true
		d.command(t, "stop")
	}
}

// keep copies a file of the device to where go test -artifacts keeps it.
func (d *device) keep(t *testing.T, name string) string {
	t.Helper()
	kept := filepath.Join(t.ArtifactDir(), name)
	b, err := os.ReadFile(filepath.Join(d.dir, name))
	if err == nil {
		err = os.WriteFile(kept, b, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	return kept
}

// set changes parameters of the running device; it returns when they are in effect.
func (d *device) set(t *testing.T, params ...string) {
	t.Helper()
	d.command(t, append([]string{"set"}, params...)...)
}

func (d *device) command(t *testing.T, args ...string) {
	t.Helper()
	cmd := exec.Command(built(t, softmlx5), args...)
	cmd.Env = d.env()
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("softmlx5 %v: %v\n%s", args, err, out)
	}
}

// env is the environment of a program of this device, with more variables.
func (d *device) env(more ...string) []string {
	return append(append(os.Environ(), "SOFTMLX5_DIR="+d.dir), more...)
}

// server starts a tool as server and returns when it listens.
func (d *device) server(t *testing.T, argv ...string) *program {
	t.Helper()
	p := d.run(t, argv...)
	waitFor(t, p.name+" to listen", func() bool {
		p.running(t)
		return listens(p.Process.Pid)
	})
	return p
}

// listens reports whether a process has a listening TCP socket.
func listens(pid int) bool {
	inodes := map[string]bool{}
	for _, name := range []string{"tcp", "tcp6"} {
		b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", pid, name))
		for line := range strings.Lines(string(b)) {
			// sl local remote st ... inode is the tenth; 0A is TCP_LISTEN (net/tcp_states.h)
			if f := strings.Fields(line); len(f) > 9 && f[3] == "0A" {
				inodes["socket:["+f[9]+"]"] = true
			}
		}
	}
	links, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	for _, l := range links {
		if to, err := os.Readlink(l); err == nil && inodes[to] {
			return true
		}
	}
	return false
}

// program is something running on a device. It ends with the test.
type program struct {
	*exec.Cmd
	name   string
	output lockedBuffer // stdout and stderr
	exited chan struct{}
	err    error // once exited
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// run starts a program on the device: its own process has the PID of Process.
func (d *device) run(t *testing.T, argv ...string) *program {
	t.Helper()
	return d.start(t, nil, append([]string{"run"}, argv...)...)
}

func (d *device) start(t *testing.T, env []string, args ...string) *program {
	t.Helper()
	return d.launch(t, env, append([]string{built(t, softmlx5)}, args...)...)
}

// launch starts any command with the device's environment.
func (d *device) launch(t *testing.T, env []string, argv ...string) *program {
	t.Helper()
	p := &program{Cmd: exec.Command(argv[0], argv[1:]...), name: strings.Join(argv, " "), exited: make(chan struct{})}
	p.Env = d.env(env...)
	p.Stdout, p.Stderr = &p.output, &p.output
	// A group of its own, so that a pair ends as a whole.
	p.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p.WaitDelay = time.Second // for output held open by what it left behind
	if err := p.Cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		p.err = p.Cmd.Wait()
		close(p.exited)
	}()
	t.Cleanup(p.stop)
	return p
}

// wait requires that the program ends by itself, and well.
func (p *program) wait(t *testing.T) {
	t.Helper()
	select {
	case <-p.exited:
	case <-time.After(patience):
		p.stop()
		t.Fatalf("%s does not end; it said:\n%s", p.name, p.output.String())
	}
	if p.err != nil {
		t.Fatalf("%s: %v; it said:\n%s", p.name, p.err, p.output.String())
	}
}

// stop ends the program and what it started.
func (p *program) stop() {
	for sig := syscall.SIGTERM; ; sig = syscall.SIGKILL {
		_ = syscall.Kill(-p.Process.Pid, sig)
		select {
		case <-p.exited:
			return
		case <-time.After(5 * time.Second):
		}
	}
}

// running fails the test if the program has ended, and says how.
func (p *program) running(t *testing.T) {
	t.Helper()
	select {
	case <-p.exited:
		t.Fatalf("%s has ended (%v); it said:\n%s", p.name, p.err, p.output.String())
	default:
	}
}

// pair is a server and a client.
type pair struct {
	*program
	server, client int // processes of the tool itself
}

// pair starts TOOL ARGS as server and as client and returns when both run and
// traffic flows. Environment variables, such as CLI_CPU=0, come as KEY=VALUE before the tool.
func (d *device) pair(t *testing.T, argv ...string) *pair {
	t.Helper()
	pids := filepath.Join(d.dir, fmt.Sprintf("pids-%d", time.Now().UnixNano()))
	env := []string{"PAIR_PIDS=" + pids, "PAIR_TIMEOUT=" + strconv.Itoa(int(patience.Seconds()))}
	for len(argv) > 0 && strings.Contains(argv[0], "=") {
		env, argv = append(env, argv[0]), argv[1:]
	}
	p := &pair{program: d.start(t, env, append([]string{"pair"}, argv...)...)}
	waitFor(t, p.name+" to start", func() bool {
		b, err := os.ReadFile(pids)
		if err == nil {
			_, err = fmt.Sscanf(string(b), "server %d\nclient %d\n", &p.server, &p.client)
		}
		if err != nil {
			p.running(t)
		}
		return err == nil
	})
	return p
}

// waitFor looks until a condition holds.
func waitFor(t *testing.T, what string, holds func() bool) {
	t.Helper()
	waitEvery(t, 5*time.Millisecond, what, holds)
}

// waitEvery is waitFor for conditions that are dear to look at.
func waitEvery(t *testing.T, pause time.Duration, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !holds(); time.Sleep(pause) {
		if time.Now().After(deadline) {
			t.Fatalf("waited for %s in vain", what)
		}
	}
}
