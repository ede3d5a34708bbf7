package image

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rdmatrace/rdmatrace/event"
	"github.com/rdmatrace/rdmatrace/internal/testenv"
)

// copyOf copies an executable of this machine to a place of its own.
func copyOf(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	to := filepath.Join(t.TempDir(), "program")
	if err := os.WriteFile(to, b, 0o755); err != nil {
		t.Fatal(err)
	}
	return to
}

// start runs "cat", or what it is called by, until the test ends. That it
// answers shows that it has been executed and its libraries are mapped.
func start(t *testing.T, cmd *exec.Cmd) uint32 {
	t.Helper()
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
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	if _, err := in.Write([]byte("x\n")); err != nil {
		t.Fatal(err)
	}
	if _, err := out.Read(make([]byte, 2)); err != nil {
		t.Fatal(err)
	}
	return uint32(cmd.Process.Pid)
}

func snapshot(t *testing.T, s *Store, pid uint32) *Space {
	t.Helper()
	sp, err := s.Snapshot(pid)
	if err != nil {
		t.Fatal(err)
	}
	return sp
}

// fileOf returns the file that a path has in a space.
func fileOf(t *testing.T, sp *Space, path string) *File {
	t.Helper()
	for _, r := range sp.Regions() {
		if r.Path == path {
			if r.File == nil {
				t.Fatalf("%s was not opened", path)
			}
			return r.File
		}
	}
	t.Fatalf("%s is not mapped: %+v", path, sp.Regions())
	return nil
}

func TestStore(t *testing.T) {
	program := copyOf(t, "cat")
	one, two := start(t, exec.Command(program)), start(t, exec.Command(program))
	s := NewStore()
	defer s.Close()
	a, b := fileOf(t, snapshot(t, s, one), program), fileOf(t, snapshot(t, s, two), program)
	if a != b {
		t.Error("one file was opened twice")
	}
	if a.BuildID == "" || a.ELF.Entry == 0 {
		t.Errorf("%+v", a)
	}
	// The program's entry point: file, addresses and offsets agree.
	for _, r := range s.Space(one).Regions() {
		if r.File != a {
			continue
		}
		vaddr, ok := r.Vaddr(r.Start)
		offset, size, ok2 := a.Offset(vaddr)
		if !ok || !ok2 || offset != r.Mapping.Offset || offset != r.FileOffset(r.Start) || size == 0 {
			t.Errorf("region %+v: vaddr %#x, offset %#x+%#x", r.Mapping, vaddr, offset, size)
		}
		if d := a.ELF.Entry - vaddr; d < r.End-r.Start {
			var code [16]byte
			if n, err := a.ReadVaddr(code[:], a.ELF.Entry); n != 16 || err != nil {
				t.Errorf("entry point: %d bytes, %v", n, err)
			}
		}
	}
	maps := s.Mappings()
	if !slices.IsSortedFunc(maps, func(x, y mapping) int { return int(x.PID) - int(y.PID) }) {
		t.Error("mappings are not sorted")
	}
	if i := slices.IndexFunc(maps, func(m mapping) bool { return m.PID == two && m.Path == program }); i < 0 || maps[i].BuildID != a.BuildID {
		t.Errorf("mappings: %+v", maps)
	}
	if n := s.Notes(); n != nil {
		t.Errorf("notes: %q", n)
	}
	fileOf(t, s.Space(one), vdsoPath)
}

// The file was replaced by a new one, as package updates do: what is mapped
// counts.
func TestDeletedFile(t *testing.T) {
	testenv.Root(t) // map_files
	program := copyOf(t, "cat")
	pid := start(t, exec.Command(program))
	if err := os.Remove(program); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(program, []byte("another file"), 0o755); err != nil {
		t.Fatal(err)
	}
	s := NewStore()
	defer s.Close()
	f := fileOf(t, snapshot(t, s, pid), program)
	if f.ELF.Machine == 0 || f.BuildID == "" {
		t.Errorf("%+v", f)
	}
	if m := s.Mappings(); !slices.ContainsFunc(m, func(m mapping) bool { return m.Path == program && m.Deleted }) {
		t.Errorf("mappings do not say that it is deleted: %+v", m)
	}
}

// A target in a container: its path leads elsewhere for us.
func TestMountNamespace(t *testing.T) {
	testenv.Root(t)
	program := copyOf(t, "cat")
	hidden := filepath.Join(filepath.Dir(program), "inside")
	for _, dir := range []string{hidden, hidden + "/bin"} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	inside := filepath.Join(hidden, "bin", "program")
	// A tmpfs that only the target sees has the program.
	pid := start(t, exec.Command("unshare", "-m", "sh", "-c",
		`mount -t tmpfs none "$1/bin" && cp "$2" "$1/bin/program" && exec "$1/bin/program"`, "sh", hidden, program))
	if _, err := os.Stat(inside); err == nil {
		t.Fatal("the program is visible from outside")
	}
	s := NewStore()
	defer s.Close()
	f := fileOf(t, snapshot(t, s, pid), inside)
	h, err := f.Open(inside)
	if err != nil {
		t.Fatalf("open through the target's root: %v", err)
	}
	h.Close()
}

// What was read stays when the process has gone; that it has gone is an error.
func TestProcessGone(t *testing.T) {
	cmd := exec.Command(copyOf(t, "cat"))
	pid := start(t, cmd)
	s := NewStore()
	defer s.Close()
	before := snapshot(t, s, pid)
	cmd.Process.Kill() // not waited for yet: a zombie has an empty map
	zombie := func() bool {
		b, _ := os.ReadFile("/proc/" + pidText(pid) + "/stat")
		return bytes.Contains(b, []byte(") Z"))
	}
	for !zombie() {
		runtime.Gosched()
	}
	sp, err := s.Snapshot(pid)
	if err == nil || sp != before || len(sp.Regions()) == 0 {
		t.Errorf("zombie: %v, %+v", err, sp)
	}
	cmd.Wait()
	if sp, err := s.Snapshot(pid); err == nil || sp != before {
		t.Errorf("gone: %v, %+v", err, sp)
	}
	if f := fileOf(t, before, cmd.Path); len(f.ELF.Sections) == 0 {
		t.Errorf("%+v", f)
	}
	if sp, err := s.Snapshot(1 << 30); err == nil || sp != nil {
		t.Errorf("never there: %v, %+v", err, sp)
	}
}

// Executable mappings of files that are not ELF, of deleted memfds and of
// devices: none of them is an error, and devices are not opened.
func TestOddMappings(t *testing.T) {
	text := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(text, bytes.Repeat([]byte("no ELF\n"), 1000), 0o644); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(text)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	m, err := unix.Mmap(int(f.Fd()), 0, 4096, unix.PROT_READ|unix.PROT_EXEC, unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(m)
	s := NewStore()
	defer s.Close()
	sp := snapshot(t, s, uint32(os.Getpid()))
	i := slices.IndexFunc(sp.Regions(), func(r Region) bool { return r.Path == text })
	if i < 0 || sp.Regions()[i].File != nil {
		t.Errorf("%d, %+v", i, sp.Regions())
	}
	if n := s.Notes(); n != nil {
		t.Errorf("notes: %q", n)
	}
	if f, err := OpenRegular("/dev/null", 0); err == nil {
		f.Close()
		t.Error("a device was opened")
	}
	if f, err := OpenRegular(text, 1); err == nil {
		f.Close()
		t.Error("another inode was opened")
	}
}

// Damaged headers are errors, whatever debug/elf does with them.
func FuzzNewFile(f *testing.F) {
	b, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b[:4096])
	vdso, err := ownVDSO()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(vdso)
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := NewFile(bytes.NewReader(b), "fuzz")
		if err != nil {
			return
		}
		for _, l := range e.loads {
			if v, ok := e.Vaddr(l.offset); ok {
				e.Offset(v)
				var p [32]byte
				if n, err := e.ReadVaddr(p[:], v); n == 0 && err == nil {
					t.Fatal("nothing was read, without an error")
				}
			}
		}
	})
}

// Notes have a padded name and description; the build-id is the GNU one.
func TestBuildIDNote(t *testing.T) {
	note := func(name string, typ uint32, desc []byte, align int) []byte {
		var b []byte
		b = binary.LittleEndian.AppendUint32(b, uint32(len(name)))
		b = binary.LittleEndian.AppendUint32(b, uint32(len(desc)))
		b = binary.LittleEndian.AppendUint32(b, typ)
		b = append(b, name...)
		for len(b)%align != 0 {
			b = append(b, 0)
		}
		b = append(b, desc...)
		for len(b)%align != 0 {
			b = append(b, 0)
		}
		return b
	}
	id := []byte{1, 2, 3, 4, 5}
	property := note("GNU\x00", 5, make([]byte, 13), 8)
	for name, tc := range map[string]struct {
		notes []byte
		align uint64
		want  string
	}{
		"alone":           {note("GNU\x00", ntGNUBuildID, id, 4), 4, "0102030405"},
		"after others":    {slices.Concat(note("Go\x00\x00", ntGNUBuildID, id, 4), note("GNU\x00", 1, id, 4), note("GNU\x00", ntGNUBuildID, []byte{9}, 4)), 4, "09"},
		"aligned to 8":    {slices.Concat(property, note("GNU\x00", ntGNUBuildID, id, 8)), 8, "0102030405"},
		"cut short":       {note("GNU\x00", ntGNUBuildID, id, 4)[:18], 4, ""},
		"name too long":   {append(binary.LittleEndian.AppendUint32(nil, 1<<31), make([]byte, 20)...), 4, ""},
		"only something":  {property, 8, ""},
		"nothing":         {nil, 4, ""},
		"other's note":    {note("XYZ\x00", ntGNUBuildID, id, 4), 0, ""},
		"alignment of 1":  {note("GNU\x00", ntGNUBuildID, id, 4), 1, "0102030405"},
		"empty id":        {note("GNU\x00", ntGNUBuildID, nil, 4), 4, ""},
		"huge id claimed": {[]byte{4, 0, 0, 0, 255, 255, 255, 255, 3, 0, 0, 0, 'G', 'N', 'U', 0}, 4, ""},
	} {
		if got := buildIDNote(tc.notes, tc.align); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

// Two segments share a page of the file; the executable one is meant.
func TestSharedPage(t *testing.T) {
	f := &File{loads: []load{{vaddr: 0x1000, offset: 0, filesz: 0x2000}, {vaddr: 0x5100, offset: 0x100, filesz: 0x1000, exec: true}}}
	for offset, want := range map[uint64]uint64{0: 0x1000, 0x100: 0x5100, 0x10ff: 0x60ff, 0x1100: 0x2100} {
		if got, ok := f.Vaddr(offset); !ok || got != want {
			t.Errorf("offset %#x: %#x, %v; want %#x", offset, got, ok, want)
		}
	}
	if _, ok := f.Vaddr(0x2000); ok {
		t.Error("an offset behind every segment has an address")
	}
	if _, _, ok := f.Offset(0x6100); ok {
		t.Error("an address behind every segment has an offset")
	}
}

func TestNotesAreBounded(t *testing.T) {
	s := NewStore()
	for range 3 * maxNotes {
		s.note("/a\xff", os.ErrPermission)
		s.note("/b", &elf.FormatError{})
	}
	n := s.Notes()
	if len(n) != maxNotes+1 || !strings.Contains(n[0], "/a\uFFFD") || !strings.Contains(n[maxNotes], "more") {
		t.Errorf("%d notes: %q", len(n), n)
	}
}

type mapping = event.Mapping

func pidText(pid uint32) string { return strconv.FormatUint(uint64(pid), 10) }
