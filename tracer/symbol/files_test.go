package symbol_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/rdmatrace/rdmatrace/event"
	"github.com/rdmatrace/rdmatrace/internal/unwindtest"
	"github.com/rdmatrace/rdmatrace/tracer/unwind"
)

const cppSource = `
#include <cstdio>
#include <unistd.h>
#define KEEP __attribute__((noinline))
namespace {
KEEP int wait_for(int n) { volatile char pad[50]; pad[0] = n; puts("ready"); fflush(stdout); for (;;) pause(); return pad[0]; }
}
namespace net { template <typename T> struct Queue { virtual ~Queue() {} virtual KEEP int poll(T n) { volatile T x = n; return wait_for(n) + x; } }; }
KEEP static int run(net::Queue<int> *q) { volatile int y = 1; auto f = [&](int k) KEEP { volatile int z = k; return q->poll(k + 1) + z; }; return f(3) + y; }
int main() { net::Queue<int> q; return run(&q) + 1; }
`

func TestCPPNames(t *testing.T) {
	path := unwindtest.Compile(t, "names.cc", cppSource, "-O2", "-fomit-frame-pointer")
	p := unwindtest.Start(t, exec.Command(path))
	frames, stop := open(t, p.PID).stack(unwindtest.Freeze(t, p.PID))
	names := funcs(frames)
	if stop != unwind.StopOutermost || !contains(names, "(anonymous namespace)::wait_for", "net::Queue<int>::poll", "run()::{lambda(int)#1}::operator()", "run", "main") {
		t.Errorf("%q, %v", names, stop)
	}
}

const inlineSource = `
#include <stdio.h>
#include <unistd.h>
__attribute__((noinline)) static int stay(int n) { volatile char pad[50]; pad[0] = n; puts("ready"); fflush(stdout); for (;;) pause(); return pad[0]; }
static inline __attribute__((always_inline)) int deepest(int n) {
	return stay(n) + 1;
}
static inline __attribute__((always_inline)) int deep(int n) {
	return deepest(n + 2) + 2;
}
__attribute__((noinline)) int outer(int n) {
	volatile int x = n;
	return deep(n) + x;
}
int main(void) { return outer(1) + 1; }
`

// sources gives func:line of the frames of a program, and "!" for inlined ones.
func sources(frames []event.Frame, path string) []string {
	var out []string
	for _, f := range frames {
		if f.Module == path && filepath.Base(f.File) != "" {
			mark := ""
			if f.Inline {
				mark = "!"
			}
			out = append(out, mark+f.Func+":"+strings.TrimPrefix(filepath.Base(f.File), ".")+":"+lineText(f.Line))
		}
	}
	return out
}

var inlineWant = []string{"!deepest:inline.c:6", "!deep:inline.c:9", "outer:inline.c:13", "main:inline.c:15"}

func TestLinesAndInlines(t *testing.T) {
	for _, version := range []string{"-gdwarf-4", "-gdwarf-5"} {
		path := unwindtest.Compile(t, "inline.c", inlineSource, "-O2", version)
		p := unwindtest.Start(t, exec.Command(path))
		frames, _ := open(t, p.PID).stack(unwindtest.Freeze(t, p.PID))
		if got := sources(frames, path); !contains(got, inlineWant...) {
			t.Errorf("%s: %q, want %q in it", version, got, inlineWant)
		}
		for i, f := range frames {
			if f.Inline && (i+1 == len(frames) || frames[i+1].Addr != f.Addr) {
				t.Errorf("%s: inlined frame %+v is not at the address of its caller", version, f)
			}
		}
	}
}

// The debug information is in a file of its own: beside the program, and only
// if it belongs to it.
func TestDebugFile(t *testing.T) {
	path := unwindtest.Compile(t, "inline.c", inlineSource, "-O2", "-g")
	debug := path + ".debug"
	unwindtest.Run(t, "objcopy", "--only-keep-debug", path, debug)
	unwindtest.Run(t, "strip", path)
	unwindtest.Run(t, "objcopy", "--add-gnu-debuglink="+debug, path)
	check := func(name string, want bool, notes bool) {
		t.Helper()
		p := unwindtest.Start(t, exec.Command(path))
		b := open(t, p.PID)
		frames, stop := b.stack(unwindtest.Freeze(t, p.PID))
		if got := sources(frames, path); stop != unwind.StopOutermost || contains(got, inlineWant...) != want {
			t.Errorf("%s: %q, %v", name, got, stop)
		}
		if got := b.sym.Notes(); (got != nil) != notes {
			t.Errorf("%s: notes %q", name, got)
		}
	}
	check("beside it", true, false)
	if err := os.Mkdir(filepath.Join(filepath.Dir(path), ".debug"), 0o755); err != nil {
		t.Fatal(err)
	}
	moved := filepath.Join(filepath.Dir(path), ".debug", filepath.Base(debug))
	if err := os.Rename(debug, moved); err != nil {
		t.Fatal(err)
	}
	check("in .debug", true, false)
	other := unwindtest.Compile(t, "inline.c", strings.ReplaceAll(inlineSource, "pad[50]", "pad[51]"), "-O2", "-g")
	unwindtest.Run(t, "objcopy", "--only-keep-debug", other, moved)
	check("of another build", false, true)
}

// Without a build-id the checksum has to be right.
func TestDebugFileByChecksum(t *testing.T) {
	path := unwindtest.Compile(t, "inline.c", inlineSource, "-O2", "-g", "-Wl,--build-id=none")
	debug := path + ".debug"
	unwindtest.Run(t, "objcopy", "--only-keep-debug", path, debug)
	unwindtest.Run(t, "strip", path)
	unwindtest.Run(t, "objcopy", "--add-gnu-debuglink="+debug, path)
	for _, right := range []bool{true, false} {
		p := unwindtest.Start(t, exec.Command(path))
		frames, _ := open(t, p.PID).stack(unwindtest.Freeze(t, p.PID))
		if got := sources(frames, path); contains(got, inlineWant...) != right {
			t.Errorf("right checksum %v: %q", right, got)
		}
		p.Kill()
		f, err := os.OpenFile(debug, os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Write([]byte{0}); err != nil {
			t.Fatal(err)
		}
		f.Close()
	}
}

// Fedora's packages have their local symbols compressed inside.
func TestEmbeddedSymbols(t *testing.T) {
	if _, err := exec.LookPath("xz"); err != nil {
		t.Fatal("xz is needed to build the test's program")
	}
	path := unwindtest.Compile(t, "chain.c", chainSource, "-O2")
	mini := filepath.Join(t.TempDir(), "mini")
	unwindtest.Run(t, "objcopy", "-S", "--keep-symbol=a", "--keep-symbol=b", "--keep-symbol=c", "--remove-section=.comment", path, mini)
	unwindtest.Run(t, "xz", mini)
	unwindtest.Run(t, "strip", path)
	unwindtest.Run(t, "objcopy", "--add-section", ".gnu_debugdata="+mini+".xz", path)
	p := unwindtest.Start(t, exec.Command(path))
	b := open(t, p.PID)
	frames, _ := b.stack(unwindtest.Freeze(t, p.PID))
	if names := funcs(frames); !contains(names, "c", "b", "a", "") {
		t.Errorf("%q", names)
	}
	if n := b.sym.Notes(); n != nil {
		t.Errorf("notes: %q", n)
	}
}

// Damaged .gnu_debugdata costs its names, and a note.
func TestEmbeddedSymbolsDamaged(t *testing.T) {
	path := unwindtest.Compile(t, "chain.c", chainSource, "-O2")
	junk := filepath.Join(t.TempDir(), "junk")
	if err := os.WriteFile(junk, []byte("\xfd7zXZ\x00 this is not xz"), 0o644); err != nil {
		t.Fatal(err)
	}
	unwindtest.Run(t, "strip", path)
	unwindtest.Run(t, "objcopy", "--add-section", ".gnu_debugdata="+junk, path)
	p := unwindtest.Start(t, exec.Command(path))
	b := open(t, p.PID)
	frames, stop := b.stack(unwindtest.Freeze(t, p.PID))
	if stop != unwind.StopOutermost || len(frames) < 6 {
		t.Errorf("%q, %v", funcs(frames), stop)
	}
	if n := b.sym.Notes(); len(n) != 1 || !strings.Contains(n[0], ".gnu_debugdata") {
		t.Errorf("notes: %q", n)
	}
}

// Names that the tracer gives cover the whole function of a stripped file, and
// no other. A function that has a symbol keeps it.
func TestGivenNames(t *testing.T) {
	for _, c := range []struct {
		name  string
		flags []string
		off   uint64
		want  []string
	}{
		{"stripped", []string{"-O2", "-s"}, 0, []string{"", "mlx5: post_send", "", ""}},
		{"something off", []string{"-O2", "-s"}, 1, []string{"", "", "", ""}},
		{"with symbols", []string{"-O2"}, 0, []string{"c", "b", "a", "main"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := unwindtest.Compile(t, "chain.c", chainSource, c.flags...)
			p := unwindtest.Start(t, exec.Command(path))
			b := open(t, p.PID)
			frames, _ := b.stack(unwindtest.Freeze(t, p.PID))
			frames = slices.DeleteFunc(frames, func(f event.Frame) bool { return f.Module != path })
			if len(frames) < len(c.want) {
				t.Fatalf("%+v", frames)
			}
			second := frames[1] // called by the first: its address is a call's
			r, ok := b.space.Find(second.Addr)
			vaddr, ok2 := r.Vaddr(second.Addr)
			start, _, ok3 := unwind.NewTables().Extent(r.File, vaddr)
			offset, _, ok4 := r.File.Offset(start)
			if !ok || !ok2 || !ok3 || !ok4 {
				t.Fatal(second)
			}
			for _, by := range [][2]string{{r.File.BuildID, ""}, {"", r.Path}} {
				b.sym = newSymbolizer(t, b)
				b.sym.Name(by[0], by[1], offset+c.off, "mlx5: post_send")
				got := funcs(b.sym.Frames(p.PID, addrsOf(frames), nil))[:len(c.want)]
				if !slices.Equal(got, c.want) {
					t.Errorf("by %q: %q, want %q", by, got, c.want)
				}
			}
		})
	}
}

// Addresses of nothing.
func TestUnknownAddresses(t *testing.T) {
	b := open(t, uint32(os.Getpid()))
	got := b.sym.Frames(b.space.PID, []uint64{0, 5, 1<<64 - 1}, nil)
	for i, f := range got {
		if f.Func != "" || f.Module != "" || f.Offset != 0 {
			t.Errorf("%d: %+v", i, f)
		}
	}
	if got := b.sym.Frames(1<<30, []uint64{5}, nil); len(got) != 1 || got[0].Addr != 5 {
		t.Errorf("of no process: %+v", got)
	}
	if runtime.GOARCH == "amd64" { // arm64 has no such page
		if got := b.sym.Frames(b.space.PID, []uint64{0xffffffffff600001}, nil); got[0].Module != "[vsyscall]" {
			t.Logf("no vsyscall page here: %+v", got)
		}
	}
}
