package pollpath

import (
	"os/exec"
	"path/filepath"
	"testing"
)

// build links a library for a machine, on any.
func build(t *testing.T, machine, source string, flags ...string) string {
	t.Helper()
	lib := filepath.Join(t.TempDir(), machine+".so")
	args := append([]string{"--target=" + machine + "-linux-gnu", "-ffreestanding", "-fasynchronous-unwind-tables", "-nostdlib",
		"-fuse-ld=lld", "-shared", "-g0", "-o", lib}, flags...)
	if out, err := exec.Command("clang", append(args, source)...).CombinedOutput(); err != nil {
		t.Fatalf("clang and lld are needed (make deps): %v\n%s", err, out)
	}
	return lib
}

// TestTables: a jump table is followed to its end, which only a compare of the
// index tells, and not at all where there is none. See testdata/tables*.S.
func TestTables(t *testing.T) {
	none := []string{"unbounded", "other", "one_way", "anew", "above", "signed", "flags", "part", "two", "out"}
	t.Run("x86-64", func(t *testing.T) {
		lib := build(t, "x86_64", "testdata/tables.S")
		im := imageOf(t, lib)
		checkTables(t, lib, im, []string{"bounded", "shifted", "looped", "both"}, none)
		if c, err := Find(im, symbol(t, lib, "inside").Value); err == nil {
			t.Errorf("an instruction in another: %+v", c)
		}
	})
	t.Run("arm64", func(t *testing.T) {
		lib := build(t, "aarch64", "testdata/tables_arm64.S")
		checkTables(t, lib, imageOf(t, lib), []string{"bounded", "bytes", "halves", "eights", "shifted", "marked", "looped"}, none)
	})
}

// checkTables: some functions have a table of three entries that is followed.
func checkTables(t *testing.T, lib string, im Image, followed, none []string) {
	for i, name := range append(followed, none...) {
		entries := 0
		if i < len(followed) {
			entries = 3
		}
		t.Run(name, func(t *testing.T) {
			entry := symbol(t, lib, name).Value
			g, err := explore(im, entry)
			if err != nil {
				t.Fatal(err)
			}
			got := 0
			for _, n := range g.nodes {
				got += len(n.table)
			}
			if got != entries || (g.unresolved == 0) != (entries > 0) {
				t.Errorf("%d entries, %d unresolved jumps; want %d entries", got, g.unresolved, entries)
			}
			// What follows the table would be a step.
			c, err := Find(im, entry)
			if (err == nil) != (entries > 0) || err == nil && len(c[0].Sites) != 1 {
				t.Errorf("candidates %+v, %v", c, err)
			}
		})
	}
}
