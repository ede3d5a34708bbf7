// Package unwindtest builds programs with a known chain of calls, starts them
// and takes snapshots of their stacks, for the tests of stacks and symbols.
package unwindtest

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rdmatrace/rdmatrace/tracer/unwind"
)

// StackBytes is STACK_BYTES_MAX of bpf/event.h: what a record holds at most.
const StackBytes = 16384

var compilers = map[string]string{".c": "gcc", ".cc": "g++", ".rs": "rustc"}

// Compile builds a program or library from source and returns its path. The
// compiler is chosen by the extension of name.
func Compile(t testing.TB, name, source string, flags ...string) string {
	t.Helper()
	dir := t.TempDir()
	src := filepath.Join(dir, name)
	if err := os.WriteFile(src, []byte(source), 0o644); err != nil {
		t.Fatal(err)
	}
	out := strings.TrimSuffix(src, filepath.Ext(src))
	args := append([]string{"-o", out, src}, flags...)
	Run(t, compilers[filepath.Ext(name)], args...)
	return out
}

// Run runs a tool, which must succeed.
func Run(t testing.TB, tool string, args ...string) {
	t.Helper()
	if out, err := exec.Command(tool, args...).CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v\n%s", tool, strings.Join(args, " "), err, out)
	}
}

// Process is a running program.
type Process struct {
	PID   uint32
	Lines []string // what it wrote before "ready"
	cmd   *exec.Cmd
}

// Start starts a program and waits until it has written the line "ready"; it
// is killed when the test ends.
func Start(t testing.TB, cmd *exec.Cmd) *Process {
	t.Helper()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &Process{PID: uint32(cmd.Process.Pid), cmd: cmd}
	t.Cleanup(p.Kill)
	sc := bufio.NewScanner(out)
	for sc.Scan() {
		if sc.Text() == "ready" {
			go io.Copy(io.Discard, out)
			return p
		}
		p.Lines = append(p.Lines, sc.Text())
	}
	t.Fatalf("%s ended before it was ready: %v", cmd.Path, p.Lines)
	return nil
}

// Kill ends the program and waits for that.
func (p *Process) Kill() {
	p.cmd.Process.Kill()
	p.cmd.Wait()
}

// Freeze stops a thread, takes the registers and the stack that a stack_record
// would hold, and lets it run again.
func Freeze(t testing.TB, tid uint32) *unwind.Snapshot {
	t.Helper()
	runtime.LockOSThread() // the tracer is a thread
	defer runtime.UnlockOSThread()
	id := int(tid)
	if err := unix.PtraceAttach(id); err != nil {
		t.Fatalf("ptrace %d: %v", id, err)
	}
	defer unix.PtraceDetach(id)
	if _, err := unix.Wait4(id, nil, unix.WALL, nil); err != nil {
		t.Fatalf("wait for %d to stop: %v", id, err)
	}
	s, err := registers(id)
	if err != nil {
		t.Fatalf("registers of %d: %v", id, err)
	}
	s.Stack = readStack(t, id, s.SP)
	return s
}

// readStack reads upwards in steps of 1 KiB, as the probe does: the stack may
// end before StackBytes.
func readStack(t testing.TB, pid int, sp uint64) []byte {
	t.Helper()
	const step = 1024
	stack := make([]byte, 0, StackBytes)
	for len(stack) < StackBytes {
		part := stack[len(stack) : len(stack)+step]
		local := []unix.Iovec{{Base: &part[0], Len: step}}
		remote := []unix.RemoteIovec{{Base: uintptr(sp) + uintptr(len(stack)), Len: step}}
		n, err := unix.ProcessVMReadv(pid, local, remote, 0)
		if err != nil || n < step {
			stack = stack[:len(stack)+max(n, 0)]
			break
		}
		stack = stack[:len(stack)+step]
	}
	return stack
}
