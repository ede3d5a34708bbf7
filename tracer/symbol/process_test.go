package symbol_test

import (
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rdmatrace/rdmatrace/event"
	"github.com/rdmatrace/rdmatrace/internal/unwindtest"
	"github.com/rdmatrace/rdmatrace/tracer/image"
	"github.com/rdmatrace/rdmatrace/tracer/symbol"
	"github.com/rdmatrace/rdmatrace/tracer/unwind"
)

// bench is everything between a process and the frames of its stacks.
type bench struct {
	store *image.Store
	space *image.Space
	unw   *unwind.Unwinder
	sym   *symbol.Symbolizer
}

func open(t testing.TB, pid uint32) *bench {
	t.Helper()
	store := image.NewStore()
	unw, err := unwind.New(runtime.GOARCH)
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{store: store, unw: unw, sym: symbol.New(store)}
	t.Cleanup(func() {
		b.sym.Close()
		store.Close()
	})
	if b.space, err = store.Snapshot(pid); err != nil {
		t.Fatal(err)
	}
	return b
}

// stack unwinds and names a snapshot.
func (b *bench) stack(s *unwind.Snapshot) ([]event.Frame, unwind.Stop) {
	addrs, stop := b.unw.Unwind(b.space, s, nil)
	return b.sym.Frames(b.space.PID, addrs, nil), stop
}

func funcs(frames []event.Frame) []string {
	var names []string
	for _, f := range frames {
		names = append(names, f.Func)
	}
	return names
}

// contains reports whether want occurs in names in this order without gaps.
func contains(names []string, want ...string) bool {
	return len(want) > 0 && strings.Contains("\n"+strings.Join(names, "\n")+"\n", "\n"+strings.Join(want, "\n")+"\n")
}

const chainSource = `
#include <stdio.h>
#include <unistd.h>
#define KEEP __attribute__((noinline, noclone))
KEEP static int c(int n) { volatile char pad[200]; pad[0] = n; puts("ready"); fflush(stdout); for (;;) pause(); return pad[0]; }
KEEP int b(int n) { volatile char pad[1000]; pad[n & 7] = n; int r = c(n + 1); return r + pad[n & 7]; }
KEEP int a(int n) { volatile long x = n; int r = b(n * 3); return r + x; }
int main(int argc, char **argv) { int r = a(argc); return r + 1; }
`

// The chain must come out whatever way the program was built.
func TestChain(t *testing.T) {
	strip := func(t *testing.T, path string) { unwindtest.Run(t, "strip", path) }
	cases := []struct {
		name  string
		flags []string
		after func(t *testing.T, path string)
		want  []string
	}{
		{"omit frame pointer", []string{"-O2", "-fomit-frame-pointer"}, nil, []string{"c", "b", "a", "main"}},
		{"frame pointer", []string{"-O1", "-fno-omit-frame-pointer"}, nil, []string{"c", "b", "a", "main"}},
		{"static", []string{"-O2", "-static"}, nil, []string{"c", "b", "a", "main"}},
		{"no pie", []string{"-O2", "-no-pie"}, nil, []string{"c", "b", "a", "main"}},
		{"no header", []string{"-O2", "-Wl,--no-eh-frame-hdr"}, nil, []string{"c", "b", "a", "main"}},
		{"separate code at odd addresses", []string{"-O2", "-no-pie", "-Wl,-z,separate-code", "-Wl,-Ttext-segment=0x7000000"},
			nil, []string{"c", "b", "a", "main"}},
		{"stripped", []string{"-O2"}, strip, []string{"", "", "", ""}},
		{"stripped, exported", []string{"-O2", "-rdynamic"}, strip, []string{"", "b", "a", "main"}},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			path := unwindtest.Compile(t, "chain.c", chainSource, tc.flags...)
			if tc.after != nil {
				tc.after(t, path)
			}
			p := unwindtest.Start(t, exec.Command(path))
			frames, stop := open(t, p.PID).stack(unwindtest.Freeze(t, p.PID))
			if stop != unwind.StopOutermost {
				t.Errorf("unwinding stopped: %v", stop)
			}
			// Above the chain there are libc's frames, below it those of pause.
			own := slices.DeleteFunc(slices.Clone(frames), func(f event.Frame) bool {
				return f.Module != path || f.Func == "_start"
			})
			names := funcs(own)
			if !contains(names, tc.want...) {
				t.Errorf("chain is %q, want %q, in %q", names, tc.want, funcs(frames))
			}
			for _, f := range own {
				if f.Offset == 0 || f.Addr == 0 {
					t.Errorf("frame %+v does not say where it is", f)
				}
			}
		})
	}
}

func newSymbolizer(t testing.TB, b *bench) *symbol.Symbolizer {
	s := symbol.New(b.store)
	t.Cleanup(func() { s.Close() })
	return s
}

func addrsOf(frames []event.Frame) []uint64 {
	var addrs []uint64
	for _, f := range frames {
		if !f.Inline {
			addrs = append(addrs, f.Addr)
		}
	}
	return addrs
}

func lineText(n int) string { return strconv.Itoa(n) }
