package symbol

import (
	"debug/dwarf"
	"debug/elf"
	"testing"

	"github.com/rdmatrace/rdmatrace/internal/unwindtest"
)

// Whatever DWARF holds, a look-up ends without a panic.
func FuzzDebugInfo(f *testing.F) {
	for _, version := range []string{"-gdwarf-4", "-gdwarf-5"} {
		path := unwindtest.Compile(f, "seed.c", `
static inline __attribute__((always_inline)) int in(int n) { volatile int x = n; return x; }
int out(int n) { for (int i = 0; i < n; i++) { int k = i; in(k); } return in(n) + 1; }
`, "-O2", "-shared", "-fPIC", "-nostdlib", "-ffunction-sections", version)
		e, err := elf.Open(path)
		if err != nil {
			f.Fatal(err)
		}
		defer e.Close()
		data := func(name string) []byte {
			s := e.Section(name)
			if s == nil {
				return nil
			}
			b, err := s.Data()
			if err != nil {
				f.Fatal(err)
			}
			return b
		}
		for _, pc := range []uint64{0, 1, 16} {
			f.Add(data(".debug_abbrev"), data(".debug_info"), data(".debug_line"), data(".debug_str"), data(".debug_rnglists"), pc)
		}
	}
	// Siblings in a circle: a unit (version 4) of one subprogram whose sibling it is.
	f.Add([]byte{1, 0x11, 1, 0x11, 1, 0x12, 7, 0, 0, 2, 0x2e, 1, 1, 0x13, 0, 0, 0},
		[]byte{0x26, 0, 0, 0, 4, 0, 0, 0, 0, 0, 8, 1, 1, 0, 0, 0, 0, 0, 0, 0, 16, 0, 0, 0, 0, 0, 0, 0, 2, 28, 0, 0, 0, 2, 28, 0, 0, 0, 0, 0, 0, 0},
		[]byte(nil), []byte(nil), []byte(nil), uint64(5))
	f.Fuzz(func(t *testing.T, abbrev, info, line, str, lists []byte, pc uint64) {
		var d *debugInfo
		func() {
			defer func() { recover() }() // as openDebugInfo does
			data, err := dwarf.New(abbrev, nil, nil, info, line, nil, nil, str)
			if err != nil {
				return
			}
			if data.AddSection(".debug_rnglists", lists) == nil {
				d = newDebugInfo(data, len(info))
			}
		}()
		if d == nil {
			return
		}
		for _, p := range d.at(pc) {
			readable(p.name)
		}
		for _, u := range d.units {
			d.at(u.low)
			d.at(u.high - 1)
		}
	})
}
