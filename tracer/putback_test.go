package tracer

import (
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/rdmatrace/rdmatrace/internal/testenv"
	"github.com/rdmatrace/rdmatrace/tracer/image"
	"github.com/rdmatrace/rdmatrace/tracer/locate"
	"github.com/rdmatrace/rdmatrace/tracer/pollpath"
)

// TestPutBack: after a pause, a probe that cannot be placed any more costs none of
// the others of its program, only the one at the entry of the same function.
func TestPutBack(t *testing.T) {
	testenv.Root(t)
	for _, single := range []bool{false, true} {
		t.Run(fmt.Sprintf("single=%v", single), func(t *testing.T) { putBack(t, single) })
	}
}

func putBack(t *testing.T, single bool) {
	a := attacherOfProgram(t, single)
	lib, offsets := libc(t, a.pid, "getpid", "getuid", "getgid")
	var fns locate.Functions
	for _, o := range offsets {
		fns = append(fns, locate.Function{Library: lib, Verb: locate.PostSend, Offset: o})
	}
	if n, err := a.attach(fns); n != 6 || err != nil {
		t.Fatalf("%d were attached: %v", n, err)
	}
	if err := a.pause(); err != nil {
		t.Fatal(err)
	}
	for _, b := range a.data {
		if b.ret {
			b.sites[1].offset = nowhere
		}
	}
	if err := a.goOn(); err == nil {
		t.Error("nobody is told")
	}
	// attached: how many links, and which functions' probes are said to be missing.
	attached := func() (links int, missing []string) {
		for _, r := range a.probes {
			if r.probe.Error != "" {
				missing = append(missing, fmt.Sprintf("%s %d", r.probe.Kind, slices.Index(offsets, r.key.offset)))
			}
		}
		for _, b := range a.data {
			links += len(b.links)
		}
		slices.Sort(missing)
		return links, missing
	}
	// Those at returns one by one; those at entries as they can be.
	want := 2 + 1
	if single {
		want = 2 + 2
	}
	if n, missing := attached(); n != want || !slices.Equal(missing, []string{"uprobe 1", "uretprobe 1"}) {
		t.Errorf("%d links are in, not %d; missing: %q", n, want, missing)
	}
	// The next time it can be placed, and is.
	err := a.pause()
	for _, b := range a.data {
		if b.ret {
			b.sites[1].offset = offsets[1]
		}
	}
	if err = errors.Join(err, a.goOn()); err != nil {
		t.Fatal(err)
	}
	if n, missing := attached(); len(missing) > 0 || n < 2 {
		t.Errorf("%d links are in; missing: %q", n, missing)
	}
}

const nowhere = 1 << 40 // behind the end of any file

// attacherOfProgram is for a program that does nothing, and has not to be harmed.
func attacherOfProgram(t *testing.T, single bool) *attacher {
	t.Helper()
	pid, _ := startUnharmed(t, exec.Command("cat"))
	return attacherOf(t, pid, single)
}

// startUnharmed starts a program, which ends when its input does.
func startUnharmed(t *testing.T, child *exec.Cmd) (pid int, input io.Writer) {
	t.Helper()
	in, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		if err := child.Wait(); err != nil {
			t.Errorf("the program was harmed: %v", err)
		}
	})
	return child.Process.Pid, in
}

// attacherOf has a kernel of its own, with the gate closed.
func attacherOf(t *testing.T, pid int, single bool) *attacher {
	t.Helper()
	cfg := Config{PIDs: []int{pid}, singleUprobes: single}
	if err := cfg.setDefaults(); err != nil {
		t.Fatal(err)
	}
	k, err := loadKernel(&cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.coll.Close)
	l := &links{}
	t.Cleanup(func() { l.close() })
	return newAttacher(k, l, pid, cfg.Host)
}

// TestSitesNotPutBack: a poll function of which a pause costs one of several sites
// is left to its entry and its return, however far it was on the way to its sites,
// and so it stays when the site can be placed again.
func TestSitesNotPutBack(t *testing.T) {
	testenv.Root(t)
	for _, c := range []struct {
		name  string
		state pollState
	}{
		{"tried", pollTrying}, {"aligned", pollAligning}, {"observed at its sites", pollSites},
	} {
		t.Run(c.name, func(t *testing.T) { sitesNotPutBack(t, c.state) })
	}
}

func sitesNotPutBack(t *testing.T, state pollState) {
	a := attacherOfProgram(t, false)
	f := newFollower(&targets{cfg: &Config{Log: debugLog(t)}, all: []*target{{attach: a, pidfd: -1, snap: &locate.Snapshot{}}}}, a.kernel, a.links)
	lib, offsets := libc(t, a.pid, "getpid", "getuid", "getgid")
	fn := locate.Function{Library: lib, Verb: locate.PollCQ, Offset: offsets[0], Vaddr: offsets[0]}
	if _, err := a.attach(locate.Functions{fn}); err != nil {
		t.Fatal(err)
	}
	s := a.polls[0]
	s.candidates = []pollpath.Candidate{{Sites: offsets[1:]}}
	s.state = state
	a.kernel.polls.learn(s, pollPath{candidate: s.candidate()})
	if state == pollSites {
		if err := errors.Join(f.takeOut(s, s.enter()), f.takeOut(s, s.exit())); err != nil {
			t.Fatal(err)
		}
	}
	// As for a path that is known from another process: in a pause nothing is placed.
	err := f.pause()
	err = errors.Join(err, f.attachSites(s, "known"))
	i := slices.IndexFunc(a.data, func(b *batch) bool { return b.program == s.site() })
	a.data[i].sites[1].offset = nowhere
	if err != nil {
		t.Fatal(err)
	}
	if err := f.goOn(); err == nil {
		t.Error("nobody is told")
	}
	if state == pollSites && s.state == pollLeaving { // polls that the sites report are waited for
		err = f.stepPoll(s, pollStep)
	}
	if err != nil {
		t.Fatal(err)
	}
	check := func() {
		t.Helper()
		if s.state != pollKept || s.why != errSitesOut.Error() {
			t.Errorf("its state is %d: %q", s.state, s.why)
		}
		for program, want := range map[string]bool{s.enter(): true, s.exit(): true, s.site(): false} {
			if in := len(s.links[program]) > 0; in != want || a.has(s, program) != want {
				t.Errorf("%s is in: %t", program, in)
			}
		}
	}
	check()
	if err := errors.Join(f.stepPoll(s, pollStep), f.pause(), f.goOn()); err != nil {
		t.Fatal(err)
	}
	check()
}

// libc is that of a process, with the offsets of some of its functions.
func libc(t *testing.T, pid int, names ...string) (*locate.Library, []uint64) {
	t.Helper()
	var lib *locate.Library
	for lib == nil { // until the program is mapped
		maps, err := image.ReadMaps(uint32(pid))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range maps {
			if m.Exec && strings.Contains(m.Path, "/libc.so") {
				lib = &locate.Library{FileID: locate.FileID{Dev: m.Dev, Ino: m.Inode}, Path: m.Path,
					Open: fmt.Sprintf("/proc/%d/map_files/%x-%x", pid, m.Start, m.End)}
			}
		}
	}
	f, err := elf.Open(lib.Open)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	symbols, err := f.DynamicSymbols()
	if err != nil {
		t.Fatal(err)
	}
	var offsets []uint64
	for _, name := range names {
		i := slices.IndexFunc(symbols, func(s elf.Symbol) bool { return s.Name == name })
		if i < 0 {
			t.Fatalf("no %s", name)
		}
		for _, p := range f.Progs {
			if v := symbols[i].Value; p.Type == elf.PT_LOAD && v >= p.Vaddr && v < p.Vaddr+p.Filesz {
				offsets = append(offsets, v-p.Vaddr+p.Off)
			}
		}
	}
	return lib, offsets
}

// TestSitesMissing: of several sites that report completions, one that is missing is
// too many.
func TestSitesMissing(t *testing.T) {
	lib := &locate.Library{FileID: locate.FileID{Dev: 1, Ino: 2}}
	s := &pollSlot{library: lib, fn: locate.Function{Verb: locate.StartPoll, Offset: 0x100},
		candidates: []pollpath.Candidate{{Sites: []uint64{0x10, 0x20}}}}
	a := &attacher{}
	for _, at := range []uint64{0x10, 0x20} {
		a.probes = append(a.probes, siteReport{key: siteKey{1, 2, 0x100 + at, s.site()}})
	}
	if a.missing(s) {
		t.Error("both are in")
	}
	a.probes[1].probe.Error = "gone"
	if !a.missing(s) {
		t.Error("one is out, and nobody minds")
	}
	if other := (&pollSlot{library: lib, fn: locate.Function{Verb: locate.PollCQ, Offset: 0x800}}); a.missing(other) {
		t.Error("another function's are taken for it")
	}
}
