package locate

import (
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rdmatrace/rdmatrace/internal/testenv"
)

// TestPreflightInLinker: a program that is caught while its dynamic linker still
// looks for its libraries is waited for. The first library that this one needs is
// a pipe in one directory, which the linker reads, and, as it gives a header of
// another word size, searches on.
func TestPreflightInLinker(t *testing.T) {
	testenv.Root(t)
	tool(t, "gcc")
	installed(t)
	first, second := t.TempDir(), t.TempDir()
	source := write(t, t.TempDir(), "x.c", "int main(void) { for (;;) ; }\n")
	program := filepath.Join(second, "program")
	run(t, exec.Command("gcc", "-shared", "-o", filepath.Join(second, "libfirst.so"), "-x", "c", "/dev/null"))
	run(t, exec.Command("gcc", "-o", program, filepath.Join(source, "x.c"), "-Wl,--no-as-needed", "-L"+second, "-lfirst", "-libverbs"))
	pipe := filepath.Join(first, "libfirst.so")
	if err := unix.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+first+":"+second)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	// It opens once the linker does.
	w, err := os.OpenFile(pipe, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	type result struct {
		facts *Facts
		err   error
	}
	done := make(chan result)
	go func() {
		f, err := Preflight(cmd.Process.Pid, Host{})
		done <- result{f, err}
	}()
	head := make([]byte, 832) // what glibc reads at once
	copy(head, elf.ELFMAG+"\x01")
	if _, err := w.Write(head); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	if r := <-done; r.err != nil || !r.facts.Verbs {
		t.Errorf("%+v, %v", r.facts, r.err)
	}
}
