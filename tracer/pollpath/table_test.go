package pollpath

import (
	"os/exec"
	"path/filepath"
	"testing"
)

// TestTables: a jump table is followed to its end, which only a compare of the
// index tells, and not at all where there is none. See testdata/tables.S.
func TestTables(t *testing.T) {
	lib := filepath.Join(t.TempDir(), "tables.so")
	if out, err := exec.Command("gcc", "-shared", "-nostdlib", "-o", lib, "testdata/tables.S").CombinedOutput(); err != nil {
		t.Fatalf("gcc is needed (make deps): %v\n%s", err, out)
	}
	im := imageOf(t, lib)
	for name, entries := range map[string]int{
		"bounded": 3, "shifted": 3, "looped": 3, "both": 3,
		"unbounded": 0, "other": 0, "one_way": 0, "anew": 0, "above": 0, "signed": 0, "flags": 0, "part": 0, "two": 0, "out": 0,
	} {
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
	if c, err := Find(im, symbol(t, lib, "inside").Value); err == nil {
		t.Errorf("an instruction in another: %+v", c)
	}
}
