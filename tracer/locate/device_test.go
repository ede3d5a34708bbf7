package locate

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rdmatrace/rdmatrace/internal/testenv"
)

const testbed = "../../testbed/softmlx5"

var buildTestbed = sync.OnceValues(func() ([]byte, error) {
	return exec.Command("make", "-C", testbed).CombinedOutput()
})

// softDevice is a running software ConnectX.
type softDevice struct{ dir string }

// device starts a software ConnectX for the time of the test.
func device(t *testing.T) softDevice {
	t.Helper()
	testenv.Root(t)
	for _, name := range []string{"make", "gcc", "ib_write_bw"} {
		tool(t, name)
	}
	installed(t)
	if out, err := buildTestbed(); err != nil {
		t.Fatalf("make -C %s: %v\n%s", testbed, err, out)
	}
	d := softDevice{t.TempDir()}
	run(t, d.command("start"))
	t.Cleanup(func() { _ = d.command("stop").Run() })
	return d
}

func (d softDevice) command(args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(testbed, "softmlx5"), args...)
	cmd.Env = append(os.Environ(), "SOFTMLX5_DIR="+d.dir)
	return cmd
}

// await polls until ok, or fails the test when the process has gone.
func await(t *testing.T, pid int, what string, ok func() bool) {
	t.Helper()
	for !ok() {
		if _, err := os.Stat(fmt.Sprintf("/proc/%d", pid)); err != nil {
			t.Fatalf("process %d ended before %s", pid, what)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// pair runs a perftest program as server and client, and returns both when
// they run. They are ended with the test.
func (d softDevice) pair(t *testing.T, args ...string) (server, client int) {
	t.Helper()
	pids := filepath.Join(t.TempDir(), "pids")
	cmd := d.command(append([]string{"pair"}, args...)...)
	cmd.Env = append(cmd.Env, "PAIR_PIDS="+pids, "PAIR_TIMEOUT=300")
	log := &strings.Builder{}
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	t.Cleanup(func() { _ = cmd.Process.Signal(os.Interrupt); _ = cmd.Process.Kill(); killAll(server, client); <-ended })
	for {
		select {
		case <-ended:
			t.Fatalf("%v ended: %s", args, log)
		case <-time.After(10 * time.Millisecond):
		}
		b, err := os.ReadFile(pids)
		if err != nil {
			continue
		}
		if _, err := fmt.Sscanf(string(b), "server %d\nclient %d\n", &server, &client); err == nil {
			return server, client
		}
	}
}

func killAll(pids ...int) {
	for _, pid := range pids {
		if p, err := os.FindProcess(pid); err == nil && pid > 0 {
			_ = p.Kill()
		}
	}
}

// program is a run of testdata/objects.c.
type program struct {
	pid int
	in  io.WriteCloser
	out *bufio.Scanner
	objectList
}

// objectList is what it says of itself.
type objectList struct {
	contexts  []uint64
	qps       []QP
	cqs       []CQ
	untouched memoryRange
	watched   memoryRange
}

// memoryRange is a piece of memory.
type memoryRange struct{ begin, size uint64 }

// objects starts the program that makes objects; env adds to its environment.
func (d softDevice) objects(t *testing.T, env ...string) *program {
	t.Helper()
	return d.start(t, buildObjects(t, "-libverbs"), nil, env...)
}

func buildObjects(t *testing.T, libs ...string) string {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "objects")
	run(t, exec.Command("gcc", append([]string{"-Wall", "-Wextra", "-Werror", "-O1", "-o", bin, "testdata/objects.c"}, libs...)...))
	return bin
}

// start starts it, by way of a command that executes it in the end.
func (d softDevice) start(t *testing.T, bin string, by []string, env ...string) *program {
	t.Helper()
	cmd := d.command("run", bin)
	if len(by) > 0 {
		cmd.Args = append(slices.Clone(by), cmd.Args...)
		cmd.Path, cmd.Err = exec.LookPath(by[0])
	}
	cmd.Env = append(cmd.Env, env...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &program{pid: cmd.Process.Pid, in: in, out: bufio.NewScanner(out)}
	t.Cleanup(func() { in.Close(); _ = cmd.Process.Kill(); _ = cmd.Wait() })
	p.read(t)
	return p
}

// tell sends a command and reads what it made.
func (p *program) tell(t *testing.T, command string) {
	t.Helper()
	if _, err := fmt.Fprintln(p.in, command); err != nil {
		t.Fatal(err)
	}
	p.read(t)
}

func (p *program) read(t *testing.T) {
	t.Helper()
	for p.out.Scan() {
		line := p.out.Text()
		kind, rest, _ := strings.Cut(line, " ")
		var a, c uint64
		var n, fd, ex, all, typ int
		var err error
		switch kind {
		case "done":
			return
		case "context":
			_, err = fmt.Sscanf(rest, "0x%x", &a)
			p.contexts = append(p.contexts, a)
		case "cq":
			_, err = fmt.Sscanf(rest, "0x%x 0x%x %d %d %d", &a, &c, &n, &fd, &ex)
			p.cqs = append(p.cqs, CQ{Addr: a, Context: c, CQE: uint32(n), ChannelFD: int32(fd), Ex: ex != 0})
		case "qp":
			_, err = fmt.Sscanf(rest, "0x%x 0x%x %d %d %d %d", &a, &c, &n, &typ, &ex, &all)
			p.qps = append(p.qps, QP{Addr: a, Context: c, Num: uint32(n), Type: uint32(typ), Ex: ex != 0, SigAll: uint8(all)})
		case "untouched":
			_, err = fmt.Sscanf(rest, "0x%x %d", &p.untouched.begin, &p.untouched.size)
		case "watched":
			_, err = fmt.Sscanf(rest, "0x%x %d", &p.watched.begin, &p.watched.size)
		}
		if err != nil {
			t.Fatalf("line %q: %v", line, err)
		}
	}
	t.Fatal("the program ended")
}

func openProcess(t *testing.T, pid int) *Process {
	t.Helper()
	p, err := Open(pid)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

func scan(t *testing.T, p *Process) *Snapshot {
	t.Helper()
	s, err := p.Scan(context.Background(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}
