package symbol_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"

	"github.com/rdmatrace/rdmatrace/internal/testenv"
	"github.com/rdmatrace/rdmatrace/internal/unwindtest"
	"github.com/rdmatrace/rdmatrace/tracer/unwind"
)

// A thread's chain ends where the C library created it.
func TestThread(t *testing.T) {
	path := unwindtest.Compile(t, "thread.c", `
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>
#include <sys/syscall.h>
__attribute__((noinline)) static int work(int n) { volatile char pad[300]; pad[1] = n; printf("%d\nready\n", (int)syscall(SYS_gettid)); fflush(stdout); for (;;) pause(); return pad[1]; }
static void *body(void *p) { return (void *)(long)(work(3) + 1); }
int main(void) { pthread_t t; pthread_create(&t, 0, body, 0); pthread_join(t, 0); return 0; }
`, "-O2", "-fomit-frame-pointer", "-pthread")
	p := unwindtest.Start(t, exec.Command(path))
	tid, err := strconv.ParseUint(p.Lines[0], 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	b := open(t, p.PID)
	frames, stop := b.stack(unwindtest.Freeze(t, uint32(tid)))
	if names := funcs(frames); stop != unwind.StopOutermost || !contains(names, "work", "body") || slices.Contains(names, "main") {
		t.Errorf("thread: %q, %v", names, stop)
	}
	frames, stop = b.stack(unwindtest.Freeze(t, p.PID))
	if names := funcs(frames); stop != unwind.StopOutermost || !slices.Contains(names, "main") || slices.Contains(names, "body") {
		t.Errorf("main: %q, %v", names, stop)
	}
}

// A signal handler stands on what it interrupted, on the same stack.
func TestSignalHandler(t *testing.T) {
	path := unwindtest.Compile(t, "signal.c", `
#include <signal.h>
#include <stdio.h>
#include <unistd.h>
__attribute__((noinline)) static int handled(int n) { volatile char pad[64]; pad[0] = n; puts("ready"); fflush(stdout); for (;;) pause(); return pad[0]; }
static void handler(int s) { handled(s + 1); write(2, "", 0); }
__attribute__((noinline)) static int interrupted(int n) { volatile int v = n; for (;;) v++; return v; }
int main(void) { signal(SIGALRM, handler); ualarm(1000, 0); return interrupted(2) + 1; }
`, "-O2", "-fomit-frame-pointer")
	p := unwindtest.Start(t, exec.Command(path))
	frames, stop := open(t, p.PID).stack(unwindtest.Freeze(t, p.PID))
	names := funcs(frames)
	i, j := slices.Index(names, "handler"), slices.Index(names, "interrupted")
	if stop != unwind.StopOutermost || i < 0 || j != i+2 || !contains(names, "handled", "handler") || !contains(names, "interrupted", "main") {
		t.Errorf("%q, %v", names, stop)
	}
}

// Code made at run time has no call frame information: with a frame pointer
// the chain goes on, without one it ends there, and nothing is made up.
func TestRunTimeCode(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("the code made here is x86-64's")
	}
	const source = `
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <sys/mman.h>
__attribute__((noinline)) int called(void) { volatile char pad[100]; pad[0] = 1; puts("ready"); fflush(stdout); for (;;) pause(); return pad[0]; }
static const unsigned char code[] = { CODE };
__attribute__((noinline)) static int caller(int (*f)(int (*)(void))) { volatile int x = f(called); return x + 1; }
int main(void) {
	void *p = mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	memcpy(p, code, sizeof(code));
	return caller(p) + 1;
}
`
	for name, tc := range map[string]struct {
		code string
		stop unwind.Stop
	}{
		// push rbp; mov rbp, rsp; call rdi; pop rbp; ret
		"frame pointer": {"0x55, 0x48, 0x89, 0xe5, 0xff, 0xd7, 0x5d, 0xc3", unwind.StopOutermost},
		// push rbp; mov ebp, 5; sub rsp, 16; call rdi; ...
		"without": {"0x55, 0xbd, 5, 0, 0, 0, 0x48, 0x83, 0xec, 0x10, 0xff, 0xd7, 0x48, 0x83, 0xc4, 0x10, 0x5d, 0xc3", unwind.StopNoFrame},
	} {
		t.Run(name, func(t *testing.T) {
			path := unwindtest.Compile(t, "jit.c", source, "-O2", "-fomit-frame-pointer", "-DCODE="+tc.code)
			p := unwindtest.Start(t, exec.Command(path))
			frames, stop := open(t, p.PID).stack(unwindtest.Freeze(t, p.PID))
			names := funcs(frames)
			if stop != tc.stop {
				t.Errorf("stopped: %v, want %v", stop, tc.stop)
			}
			// In both the made code is between called and the rest; without a frame
			// pointer it is the last that is known.
			want := []string{"called", "", "caller", "main"}
			if tc.stop != unwind.StopOutermost {
				want = []string{"called", "", "end"}
			}
			if !contains(append(names, "end"), want...) {
				t.Errorf("%q, want %q in it", names, want)
			}
			for _, f := range frames {
				if f.Func == "" && f.Module == "" && (f.Offset != 0 || f.Addr == 0) {
					t.Errorf("frame of no file: %+v", f)
				}
			}
		})
	}
}

// More stack than a record holds: every frame in it comes out, and it is said
// that there are more.
func TestDeepRecursion(t *testing.T) {
	path := unwindtest.Compile(t, "deep.c", `
#include <stdio.h>
#include <unistd.h>
__attribute__((noinline)) int down(int n) {
	volatile char pad[200];
	pad[n & 127] = n;
	if (n == 0) { puts("ready"); fflush(stdout); for (;;) pause(); }
	return down(n - 1) + pad[n & 127];
}
int main(void) { return down(500); }
`, "-O2", "-fomit-frame-pointer", "-fno-optimize-sibling-calls")
	p := unwindtest.Start(t, exec.Command(path))
	frames, stop := open(t, p.PID).stack(unwindtest.Freeze(t, p.PID))
	downs := 0
	for _, f := range frames {
		if f.Func == "down" {
			downs++
		}
	}
	// A frame is 200 bytes of pad, a return address, what is saved, rounded to 16.
	if stop != unwind.StopBytes || downs < unwindtest.StackBytes/256-8 || downs > unwindtest.StackBytes/216 {
		t.Errorf("%d frames of down, %v", downs, stop)
	}
}

// A library loaded after the first look is found by the second, and what has
// been unloaded since is still known.
func TestLibraryLoadedLater(t *testing.T) {
	lib := unwindtest.Compile(t, "late.c", `
__attribute__((noinline)) int late(int (*f)(int), int n) { volatile char pad[40]; pad[0] = 2; return f(n) + pad[0]; }
`, "-O2", "-shared", "-fPIC")
	path := unwindtest.Compile(t, "loader.c", `
#include <dlfcn.h>
#include <stdio.h>
#include <unistd.h>
__attribute__((noinline)) static int wait_here(int n) { char c; volatile char pad[30]; pad[0] = n; read(0, &c, 1); return pad[0]; }
int main(int argc, char **argv) {
	puts("ready"); fflush(stdout);
	wait_here(0);
	void *h = dlopen(argv[1], RTLD_NOW);
	int (*late)(int (*)(int), int) = dlsym(h, "late");
	late(wait_here, 5);
	dlclose(h);
	return wait_here(6);
}
`, "-O2", "-ldl")
	cmd := exec.Command(path, lib)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	p := unwindtest.Start(t, cmd)
	b := open(t, p.PID)
	mapped := func() bool {
		text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(int(p.PID)), "maps"))
		return err == nil && strings.Contains(string(text), lib)
	}
	next := func(want bool) {
		t.Helper()
		if _, err := in.Write([]byte{1}); err != nil {
			t.Fatal(err)
		}
		for mapped() != want {
			time.Sleep(time.Millisecond)
		}
	}
	next(true)
	var s *unwind.Snapshot
	for { // until it waits inside of late
		s = unwindtest.Freeze(t, p.PID)
		_, stop := b.stack(s)
		if stop == unwind.StopUnmapped {
			break
		}
	}
	if _, err := b.store.Snapshot(p.PID); err != nil {
		t.Fatal(err)
	}
	for {
		s = unwindtest.Freeze(t, p.PID)
		if frames, _ := b.stack(s); contains(funcs(frames), "wait_here", "late") {
			break
		}
	}
	next(false)
	if _, err := b.store.Snapshot(p.PID); err != nil {
		t.Fatal(err)
	}
	frames, stop := b.stack(s)
	if names := funcs(frames); stop != unwind.StopOutermost || !contains(names, "wait_here", "late", "main") {
		t.Errorf("after dlclose: %q, %v", names, stop)
	}
}

// The target has gone and its files are deleted: names come all the same.
func TestTargetGone(t *testing.T) {
	path := unwindtest.Compile(t, "chain.c", chainSource, "-O2")
	p := unwindtest.Start(t, exec.Command(path))
	b := open(t, p.PID)
	s := unwindtest.Freeze(t, p.PID)
	p.Kill()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if _, err := b.store.Snapshot(p.PID); err == nil {
		t.Error("the process is still there")
	}
	frames, stop := b.stack(s)
	if names := funcs(frames); stop != unwind.StopOutermost || !contains(names, "c", "b", "a", "main") {
		t.Errorf("%q, %v", names, stop)
	}
}

// Somebody's return probe has replaced a return address: the chain ends with
// that reason and without a wrong frame.
func TestUnderReturnProbe(t *testing.T) {
	testenv.Root(t)
	path := unwindtest.Compile(t, "chain.c", strings.ReplaceAll(chainSource, `puts("ready"); fflush(stdout);`, ``)+`
#include <stdlib.h>
__attribute__((constructor)) static void begin(void) { char x; puts("ready"); fflush(stdout); if (read(0, &x, 1) < 1) exit(1); }
`, "-O2", "-no-pie")
	cmd := exec.Command(path)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	p := unwindtest.Start(t, cmd)
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Type: ebpf.Kprobe, License: "GPL", Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer prog.Close()
	exe, err := link.OpenExecutable(path)
	if err != nil {
		t.Fatal(err)
	}
	probe, err := exe.Uretprobe("a", prog, &link.UprobeOptions{PID: int(p.PID)})
	if err != nil {
		t.Fatal(err)
	}
	defer probe.Close()
	if _, err := in.Write([]byte{1}); err != nil {
		t.Fatal(err)
	}
	b := open(t, p.PID)
	for {
		s := unwindtest.Freeze(t, p.PID)
		if _, err := b.store.Snapshot(p.PID); err != nil {
			t.Fatal(err)
		}
		frames, stop := b.stack(s)
		names := funcs(frames)
		if !slices.Contains(names, "c") {
			continue // not there yet
		}
		if stop != unwind.StopProbe || names[len(names)-1] != "a" || !contains(names, "c", "b", "a") {
			t.Errorf("%q, %v", names, stop)
		}
		break
	}
}
