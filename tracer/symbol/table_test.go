package symbol

import (
	"debug/elf"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// symbols of a made-up table.
type sym struct {
	name       string
	addr, size uint64
	rank       uint64
}

func tableOf(syms ...sym) *table {
	var names strings.Builder
	names.WriteByte(0)
	t := &table{}
	for _, s := range syms {
		t.entries = append(t.entries, entry{key: s.addr<<rankBits | s.rank, size: uint32(s.size), name: uint32(names.Len())})
		names.WriteString(s.name + "\x00")
	}
	slices.SortFunc(t.entries, func(a, b entry) int { return int(int64(a.key - b.key)) })
	t.names, t.limit = strings.NewReader(names.String()), uint64(names.Len())
	return t
}

func TestFind(t *testing.T) {
	tab := tableOf(
		sym{"first", 0x1000, 0x10, rankGlobal},
		sym{"__write", 0x2000, 0x20, rankWeak}, sym{"write", 0x2000, 0x20, rankWeak}, sym{"__libc_write", 0x2000, 0x20, rankGlobal},
		sym{"outer", 0x3000, 0x100, rankGlobal}, sym{"inner", 0x3040, 0x10, rankLocal},
		sym{"assembly", 0x4000, 0, rankUntyped}, sym{"next", 0x4040, 0x10, rankGlobal},
		sym{"short", 0x5000, 8, rankGlobal}, sym{"long", 0x5000, 0x80, rankLocal},
		sym{"last", 0x6000, 0, rankUnsized},
	)
	for _, tc := range []struct {
		addr, floor uint64
		want        string
		begin       uint64
	}{
		{0xfff, 0, "", 0}, {0x1000, 0, "first", 0x1000}, {0x100f, 0, "first", 0x1000},
		{0x1010, 0, "", 0}, {0x1fff, 0, "", 0}, // between functions: no name rather than a wrong one
		{0x2001, 0, "__libc_write", 0x2000}, // a strong one before weak ones
		{0x3001, 0, "outer", 0x3000}, {0x3045, 0, "inner", 0x3040}, {0x3055, 0, "outer", 0x3000}, {0x3100, 0, "", 0},
		{0x4010, 0, "assembly", 0x4000}, {0x4010, 0x4000, "assembly", 0x4000}, {0x4010, 0x4008, "", 0},
		{0x403f, 0, "assembly", 0x4000}, {0x4040, 0, "next", 0x4040}, {0x4060, 0, "", 0},
		{0x5004, 0, "short", 0x5000}, {0x5010, 0, "long", 0x5000},
		{0x7000, 0, "last", 0x6000}, {0x7000, 0x6800, "", 0},
		{1<<64 - 1, 0x6800, "", 0},
	} {
		name, begin, ok := tab.find(tc.addr, tc.floor)
		if name != tc.want || ok != (tc.want != "") || (ok && begin != tc.begin) {
			t.Errorf("%#x: %q at %#x, want %q at %#x", tc.addr, name, begin, tc.want, tc.begin)
		}
	}
	if got, _, _ := tableOf(sym{"__write", 1, 2, 1}, sym{"write", 1, 2, 1}, sym{"a_longer_one", 1, 2, 1}).find(1, 0); got != "write" {
		t.Errorf("plainest of three weak names: %q", got)
	}
	if name, _, ok := tableOf().find(5, 0); ok {
		t.Errorf("an empty table has %q", name)
	}
}

func TestDamagedNames(t *testing.T) {
	tab := tableOf(sym{"f", 0x1000, 0x10, rankGlobal})
	for name, names := range map[string]string{
		"cut short":   "\x00f",
		"no end":      "\x00" + strings.Repeat("f", 2*maxName),
		"not there":   "",
		"empty names": "\x00\x00",
	} {
		tab.names, tab.limit = strings.NewReader(names), uint64(len(names))
		if got, _, ok := tab.find(0x1000, 0); ok {
			t.Errorf("%s: %.20q", name, got)
		}
	}
}

func TestDebugLink(t *testing.T) {
	e := &elf.File{}
	if name, _ := debugLink(e); name != "" {
		t.Errorf("a file without has %q", name)
	}
}

// The symbols of all files together are bounded.
func TestSymbolBudget(t *testing.T) {
	libc, err := filepath.Glob("/lib*/*/libc.so.6")
	if err != nil || len(libc) == 0 {
		t.Fatalf("no libc to read: %v", err)
	}
	e, err := elf.Open(libc[0])
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	all := budget{symbols: maxSymbols}
	whole, err := readTable(e, elf.SHT_DYNSYM, &all)
	if err != nil || len(whole.entries) < 1000 || all.symbols != maxSymbols-len(whole.entries) {
		t.Fatalf("%v, %d left", err, all.symbols)
	}
	few := budget{symbols: 100}
	part, err := readTable(e, elf.SHT_DYNSYM, &few)
	if err == nil || len(part.entries) != 100 || few.symbols != 0 {
		t.Errorf("%d symbols, %v", len(part.entries), err)
	}
	if none, err := readTable(e, elf.SHT_DYNSYM, &few); none != nil {
		t.Errorf("%d symbols more, %v", len(none.entries), err)
	}
}
