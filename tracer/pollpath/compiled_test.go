package pollpath

import (
	"bufio"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/rlimit"
)

// extras are flags that change how functions and jumps look.
var extras = map[string][]string{
	"amd64": {"-fcf-protection=none", "-fcf-protection=full", "-fno-jump-tables", "-fPIC -fcf-protection=full -fomit-frame-pointer"},
	"arm64": {"-mbranch-protection=none", "-mbranch-protection=standard", "-fno-jump-tables", "-fPIC -mgeneral-regs-only -fomit-frame-pointer"},
}

// resets: clang -Os lets start_poll return what another function did if that is an
// error, and set its result to 0 anew if not, which the one that turns 0 into an error
// looks like: it is refused.
func resets(cc, opt string) bool { return cc+opt == "clang-Os" }

// TestCompiled builds the polling pattern in every way that a distribution
// might, counts hits of the proposed sites in the running program, and demands
// one per completion and none per empty poll.
func TestCompiled(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root: it places uprobes")
	}
	counter := newHitCounter(t)
	for _, cc := range []string{"gcc", "clang"} {
		if _, err := exec.LookPath(cc); err != nil {
			t.Fatalf("%s is needed: run make deps", cc)
		}
		for _, opt := range []string{"-O0", "-O1", "-O2", "-O3", "-Os"} {
			for _, extra := range extras[runtime.GOARCH] {
				t.Run(cc+opt+" "+extra, func(t *testing.T) {
					exe := filepath.Join(t.TempDir(), "poll")
					args := append(strings.Fields(extra), opt, "-g0", "-o", exe, "testdata/poll.c")
					if out, err := exec.Command(cc, args...).CombinedOutput(); err != nil {
						t.Fatalf("%s: %v\n%s", cc, err, out)
					}
					counter.check(t, exe, resets(cc, opt))
				})
			}
		}
	}
}

// hitCounter counts in an array map how often each site, told by its cookie,
// was hit.
type hitCounter struct {
	hits *ebpf.Map
	prog *ebpf.Program
}

func newHitCounter(t *testing.T) *hitCounter {
	t.Helper()
	if err := rlimit.RemoveMemlock(); err != nil {
		t.Fatal(err)
	}
	hits, err := ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.Array, KeySize: 4, ValueSize: 8, MaxEntries: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { hits.Close() })
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.Kprobe, License: "Dual BSD/GPL", Instructions: asm.Instructions{
		asm.StoreImm(asm.RFP, -4, 0, asm.Word),
		asm.Mov.Reg(asm.R2, asm.RFP),
		asm.Add.Imm(asm.R2, -4),
		asm.LoadMapPtr(asm.R1, hits.FD()),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "out"),
		asm.Mov.Imm(asm.R1, 1),
		asm.StoreXAdd(asm.R0, asm.R1, asm.DWord),
		asm.Mov.Imm(asm.R0, 0).WithSymbol("out"),
		asm.Return(),
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { prog.Close() })
	return &hitCounter{hits, prog}
}

// check the functions of a program.
func (c *hitCounter) check(t *testing.T, exe string, resets bool) {
	c.checkFunction(t, exe, "poll_cq", Find)
	if !resets {
		c.checkFunction(t, exe, "start_poll", FindCurrent)
	} else if found, err := FindCurrent(imageOf(t, exe), symbol(t, exe, "start_poll").Value); err == nil {
		t.Errorf("start_poll: %v are found by now: check them as well", found)
	}
	c.checkFunction(t, exe, "next_poll", FindCurrent)
}

func (c *hitCounter) checkFunction(t *testing.T, exe, name string, find func(Image, uint64) ([]Candidate, error)) {
	candidates, err := find(imageOf(t, exe), symbol(t, exe, name).Value)
	if err != nil {
		t.Errorf("%s: %v", name, err)
		return
	}
	exact := 0
	for _, cand := range candidates {
		const empty, completions = 500, 300
		hits, err := c.run(exe, name, cand.Sites, empty, completions)
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %#x emulated %v, %s: %d hits for %d completions", name, cand.Sites, cand.Emulated, cand.Why, hits, completions)
		if hits == completions {
			exact++
		}
	}
	if exact == 0 {
		t.Errorf("%s: no candidate of %d is hit once per completion", name, len(candidates))
	}
}

// run starts the program, places the probes while it waits, lets it poll.
func (c *hitCounter) run(exe, name string, sites []uint64, empty, completions int) (uint64, error) {
	if err := c.hits.Put(uint32(0), uint64(0)); err != nil {
		return 0, err
	}
	args := []string{fmt.Sprint(empty), fmt.Sprint(completions)}
	if name != "poll_cq" {
		args = append(args, name)
	}
	cmd := exec.Command(exe, args...)
	in, err := cmd.StdinPipe()
	if err != nil {
		return 0, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 0, err
	}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	defer cmd.Process.Kill()
	r := bufio.NewReader(out)
	if _, err := r.ReadString('\n'); err != nil {
		return 0, err
	}
	ex, err := link.OpenExecutable(exe)
	if err != nil {
		return 0, err
	}
	f, err := elf.Open(exe)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	for _, s := range sites {
		off, err := fileOffset(f, s)
		if err != nil {
			return 0, err
		}
		l, err := ex.Uprobe("site", c.prog, &link.UprobeOptions{Address: off, PID: cmd.Process.Pid})
		if err != nil {
			return 0, fmt.Errorf("probe at %#x: %w", s, err)
		}
		defer l.Close()
	}
	fmt.Fprintln(in)
	io.Copy(io.Discard, r)
	if err := cmd.Wait(); err != nil {
		return 0, fmt.Errorf("the program was harmed: %w", err)
	}
	var n uint64
	return n, c.hits.Lookup(uint32(0), &n)
}

func fileOffset(f *elf.File, addr uint64) (uint64, error) {
	for _, p := range f.Progs {
		if p.Type == elf.PT_LOAD && p.Flags&elf.PF_X != 0 && addr >= p.Vaddr && addr < p.Vaddr+p.Filesz {
			return addr - p.Vaddr + p.Off, nil
		}
	}
	return 0, errors.New("address in no executable segment")
}

func symbol(t *testing.T, path, name string) elf.Symbol {
	t.Helper()
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	symbols, err := f.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range symbols {
		if s.Name == name {
			return s
		}
	}
	t.Fatalf("%s has no symbol %s", path, name)
	return elf.Symbol{}
}
