package image

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseMaps(t *testing.T) {
	text := `555555554000-555555556000 r-xp 00001000 fd:00 1234                       /usr/bin/prog
7f5d2a000000-7f5d2a021000 rw-p 00000000 00:00 0 
7f5d2b000000-7f5d2b001000 r-xs 00002000 00:2f 99                         /tmp/with space/lib (deleted) x.so (deleted)
7f5d2c000000-7f5d2c001000 r--p 00000000 08:01 7                          /tmp/new\012line
7ffd1a000000-7ffd1a002000 r-xp 00000000 00:00 0                          [vdso]
7ffd1b000000-7ffd1b001000 rwxp 00000000 00:01 5                          /memfd:jit (deleted)
ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]
`
	want := []Mapping{
		{Start: 0x555555554000, End: 0x555555556000, Offset: 0x1000, Dev: 0xfd << 32, Inode: 1234, Read: true, Exec: true, Path: "/usr/bin/prog"},
		{Start: 0x7f5d2a000000, End: 0x7f5d2a021000, Read: true, Write: true},
		{Start: 0x7f5d2b000000, End: 0x7f5d2b001000, Offset: 0x2000, Dev: 0x2f, Inode: 99, Read: true, Exec: true, Shared: true,
			Path: "/tmp/with space/lib (deleted) x.so", Deleted: true},
		{Start: 0x7f5d2c000000, End: 0x7f5d2c001000, Dev: 8<<32 | 1, Inode: 7, Read: true, Path: "/tmp/new\nline"},
		{Start: 0x7ffd1a000000, End: 0x7ffd1a002000, Read: true, Exec: true, Path: "[vdso]"},
		{Start: 0x7ffd1b000000, End: 0x7ffd1b001000, Dev: 1, Inode: 5, Read: true, Write: true, Exec: true, Path: "/memfd:jit", Deleted: true},
		{Start: 0xffffffffff600000, End: 0xffffffffff601000, Exec: true, Path: "[vsyscall]"},
	}
	got, err := ParseMaps(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	for _, bad := range []string{
		"junk", "1-2", "2-1 r-xp 0 0:0 0 x", "1-2 rx 0 0:0 0 x", "1-2 r-xp 0 00 0 x", "1-2 r-xp 0 0:0 -1 x",
		"g-2 r-xp 0 0:0 0 x", "1-2 r-xp 0 0:0", strings.Repeat("x", 100000),
	} {
		if m, err := ParseMaps(strings.NewReader(bad)); err == nil {
			t.Errorf("%.20q is understood as %+v", bad, m)
		}
	}
}

func FuzzParseMaps(f *testing.F) {
	own, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(own)
	f.Add([]byte("1-2 r-xp 0 0:0 0 \\012\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		maps, err := ParseMaps(bytes.NewReader(text))
		if err != nil {
			return
		}
		for _, m := range maps {
			if m.End < m.Start {
				t.Fatalf("%+v", m)
			}
		}
	})
}

func region(start, end, inode uint64) Region {
	return Region{Mapping: Mapping{Start: start, End: end, Inode: inode, Exec: true}}
}

func TestSpaceRenewed(t *testing.T) {
	cases := []struct {
		name           string
		old, now, want []Region
	}{
		{"first", nil, []Region{region(20, 30, 2), region(10, 20, 1)}, []Region{region(10, 20, 1), region(20, 30, 2)}},
		{"added", []Region{region(10, 20, 1)}, []Region{region(10, 20, 1), region(40, 50, 2)},
			[]Region{region(10, 20, 1), region(40, 50, 2)}},
		{"unmapped stays", []Region{region(10, 20, 1), region(40, 50, 2)}, []Region{region(10, 20, 1)},
			[]Region{region(10, 20, 1), region(40, 50, 2)}},
		{"replaced", []Region{region(10, 20, 1), region(40, 50, 2)}, []Region{region(10, 20, 1), region(45, 60, 3)},
			[]Region{region(10, 20, 1), region(45, 60, 3)}},
		{"touching stays", []Region{region(10, 20, 1), region(40, 50, 2)}, []Region{region(10, 20, 1), region(50, 60, 3), region(30, 40, 4)},
			[]Region{region(10, 20, 1), region(30, 40, 4), region(40, 50, 2), region(50, 60, 3)}},
		{"another program", []Region{region(10, 20, 1), region(40, 50, 2)}, []Region{region(12, 22, 1), region(70, 80, 9)},
			[]Region{region(12, 22, 1), region(70, 80, 9)}},
		{"only anonymous the same", []Region{region(10, 20, 0), region(40, 50, 2)}, []Region{region(10, 20, 0)},
			[]Region{region(10, 20, 0)}},
	}
	for _, tc := range cases {
		sp := NewSpace(1, tc.old)
		sp.renew(tc.now)
		if diff := cmp.Diff(tc.want, sp.Regions()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tc.name, diff)
		}
	}
}

func TestSpaceFind(t *testing.T) {
	sp := NewSpace(1, []Region{region(10, 20, 1), region(20, 30, 2), region(40, 50, 3)})
	for addr, inode := range map[uint64]uint64{10: 1, 19: 1, 20: 2, 29: 2, 40: 3, 49: 3} {
		if r, ok := sp.Find(addr); !ok || r.Inode != inode {
			t.Errorf("%d: %+v, %v", addr, r, ok)
		}
	}
	for _, addr := range []uint64{0, 9, 30, 39, 50, 1<<64 - 1} {
		if r, ok := sp.Find(addr); ok {
			t.Errorf("%d: %+v", addr, r)
		}
	}
	if _, ok := NewSpace(1, nil).Find(5); ok {
		t.Error("an empty space has something")
	}
}
