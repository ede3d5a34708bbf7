package object

import (
	"bytes"
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rdmatrace/rdmatrace/internal/testenv"
)

func open(t testing.TB, path string) *File {
	t.Helper()
	r, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	f, err := New(r)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

const source = `
int first(int x) { return x + 1; }
int second(int x) { return x * 3; }
int (*const table[])(int) = { first, second, 0, second };
int (*later[200])(int) = { [3] = first, [70] = second, [199] = first };
extern int missing(int);
int (*other)(int) = missing;
int third(int x) { return missing(x) + table[x & 1](x); }
`

// build compiles the source into a shared library.
func build(t *testing.T, args ...string) string {
	t.Helper()
	if _, err := exec.LookPath("gcc"); err != nil {
		testenv.Missing(t, "needs gcc")
	}
	out := filepath.Join(t.TempDir(), "lib.so")
	cmd := exec.Command("gcc", append([]string{"-O1", "-fPIC", "-shared", "-Wl,--build-id", "-x", "c", "-", "-o", out}, args...)...)
	cmd.Stdin = strings.NewReader(source)
	if b, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, b)
	}
	return out
}

// TestDefaultVersions: of every name that libibverbs exports twice, Export
// finds the address that objdump marks as the default one. 33 names are double
// in Debian's 44.0; the hidden ones are never called.
func TestDefaultVersions(t *testing.T) {
	libs, _ := filepath.Glob("/usr/lib/*/libibverbs.so.1")
	if len(libs) == 0 {
		testenv.Missing(t, "needs libibverbs")
	}
	out, err := exec.Command("objdump", "-T", libs[0]).Output()
	if err != nil {
		testenv.Missing(t, "needs objdump: %v", err)
	}
	f := open(t, libs[0])
	def, hidden := map[string]uint64{}, map[string]uint64{}
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		if len(fields) < 6 || fields[3] != ".text" && fields[2] != "DF" {
			continue
		}
		var addr uint64
		if _, err := fmt.Sscanf(fields[0], "%x", &addr); err != nil || addr == 0 {
			continue
		}
		name, version := fields[len(fields)-1], fields[len(fields)-2]
		if strings.HasPrefix(version, "(") {
			hidden[name] = addr
		} else {
			def[name] = addr
		}
	}
	double := 0
	for name, addr := range def {
		s, err := f.Export(name)
		if err != nil || s.Vaddr != addr || s.Hidden {
			t.Errorf("%s: %#x, %v; the default version is at %#x", name, s.Vaddr, err, addr)
		}
		if h, ok := hidden[name]; ok && h != addr {
			double++
		}
	}
	if double < 10 {
		t.Errorf("only %d names have two addresses: the test sees nothing", double)
	}
	if _, err := f.Export("ibv_post_send"); err == nil {
		t.Error("ibv_post_send is an inline, but was found")
	}
}

func TestRelocations(t *testing.T) {
	for _, args := range [][]string{nil, {"-Wl,-z,pack-relative-relocs"}, {"-fno-plt", "-Wl,-z,now"}} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			path := build(t, args...)
			f := open(t, path)
			relocs, err := f.Relocs()
			if err != nil {
				t.Fatal(err)
			}
			at := map[string]uint64{}
			for _, name := range []string{"first", "second", "third", "table", "later", "other"} {
				s, err := f.Export(name)
				if err != nil {
					t.Fatal(err)
				}
				at[name] = s.Vaddr
			}
			want := map[uint64]Reloc{}
			word := func(base string, i uint64, fn string) { want[at[base]+8*i] = Reloc{Symbol: fn, Addend: at[fn]} }
			word("table", 0, "first")
			word("table", 1, "second")
			word("table", 3, "second")
			word("later", 3, "first")
			word("later", 70, "second")
			word("later", 199, "first")
			want[at["other"]] = Reloc{Symbol: "missing"}
			got := map[uint64]Reloc{}
			for a, r := range relocs {
				if a >= at["table"] && a < at["table"]+32 || a >= at["later"] && a < at["later"]+1600 || a == at["other"] {
					got[a] = r
				}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
			if w, ok := f.Word(at["table"] + 8); !ok || w != at["second"] {
				t.Errorf("the second word of the table is %#x", w)
			}
		})
	}
}

// TestPackedRelative: words that DT_RELR packs are found, with their contents.
func TestPackedRelative(t *testing.T) {
	plain := open(t, build(t, "-Wl,-Bsymbolic"))
	packed := open(t, build(t, "-Wl,-Bsymbolic", "-Wl,-z,pack-relative-relocs"))
	if _, ok := packed.dyn[dtRELR]; !ok {
		t.Fatal("the linker packed nothing: the test sees nothing")
	}
	targets := func(f *File) []string {
		relocs, err := f.Relocs()
		if err != nil {
			t.Fatal(err)
		}
		names := map[uint64]string{}
		syms, _ := f.Symbols()
		for _, s := range syms {
			names[s.Vaddr] = s.Name
		}
		var out []string
		for _, r := range relocs {
			if n := names[r.Addend]; r.Addend != 0 && n != "" {
				out = append(out, n)
			}
		}
		slices.Sort(out)
		return out
	}
	if diff := cmp.Diff(targets(plain), targets(packed)); diff != "" || len(targets(packed)) < 6 {
		t.Errorf("%d words; %s", len(targets(packed)), diff)
	}
}

// TestFrames: every function of a file that is not stripped begins a frame of
// its size.
func TestFrames(t *testing.T) {
	path := build(t)
	f := open(t, path)
	frames, err := f.Frames()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"first", "second", "third"} {
		s, err := f.Export(name)
		if err != nil {
			t.Fatal(err)
		}
		frame, ok := f.FrameAt(s.Vaddr + s.Size - 1)
		if !ok || frame.Begin != s.Vaddr || frame.End != s.Vaddr+s.Size {
			t.Errorf("%s at %#x, %d bytes: frame %#x", name, s.Vaddr, s.Size, frame)
		}
	}
	if _, ok := f.FrameAt(1); ok || len(frames) < 3 {
		t.Errorf("%d frames, and one at 1: %v", len(frames), ok)
	}
}

// TestOffsets: the offset of code is where its bytes are in the file, whatever
// addresses the linker gave; data and holes have none.
func TestOffsets(t *testing.T) {
	for _, args := range [][]string{nil, {"-Wl,-z,separate-code"}, {"-Wl,-z,noseparate-code"},
		{"-Wl,-Ttext-segment=0x4000000"}, {"-Wl,--section-start=.text=0x123450"}} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			path := build(t, args...)
			f := open(t, path)
			e, err := elf.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer e.Close()
			text := e.Section(".text")
			off, err := f.CodeOffset(text.Addr)
			if err != nil || off != text.Offset {
				t.Errorf("offset %#x, %v; .text is at %#x", off, err, text.Offset)
			}
			if v, ok := f.CodeVaddr(text.Offset); !ok || v != text.Addr {
				t.Errorf("address of %#x is %#x", text.Offset, v)
			}
			b, err := f.Bytes(text.Addr, text.Size)
			want, _ := text.Data()
			if err != nil || !bytes.Equal(b, want) {
				t.Errorf("%d bytes of code, %v", len(b), err)
			}
			if _, err := f.CodeOffset(e.Section(".data").Addr); err == nil {
				t.Error("data has a code offset")
			}
			if _, err := f.CodeOffset(1 << 60); err == nil {
				t.Error("nothing has a code offset")
			}
			if f.BuildID == "" {
				t.Error("no build-id")
			}
		})
	}
}

// FuzzFile: whatever a file holds, it is read or refused.
func FuzzFile(f *testing.F) {
	seeds, _ := filepath.Glob("testdata/*.so")
	if len(seeds) == 0 {
		f.Fatal("no seeds in testdata")
	}
	for _, s := range seeds {
		b, err := os.ReadFile(s)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
		f.Add(b[:len(b)/2])
	}
	f.Add([]byte("\x7fELF"))
	f.Fuzz(func(t *testing.T, b []byte) {
		o, err := New(bytes.NewReader(b))
		if err != nil {
			return
		}
		_, _ = o.Symbols()
		_, _ = o.Export("first")
		_, _ = o.Versions()
		frames, _ := o.Frames()
		for _, fr := range frames {
			if fr.End <= fr.Begin {
				t.Fatalf("frame %#x", fr)
			}
		}
		_, _ = o.Relocs()
		for _, r := range o.Code() {
			if off, err := o.CodeOffset(r.Begin); err == nil {
				if _, ok := o.CodeVaddr(off); !ok {
					t.Fatalf("%#x has an offset that has no address", r.Begin)
				}
			}
			_, _ = o.Rest(r.Begin, 1<<16)
		}
	})
}
