package unwind

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"

	"github.com/go-delve/delve/pkg/dwarf/frame"

	"github.com/rdmatrace/rdmatrace/tracer/image"
)

// libraries of this machine, the larger the better.
func libraries(t testing.TB) []string {
	t.Helper()
	var found []string
	for _, pattern := range []string{
		"/lib/*/libc.so.6", "/lib64/libc.so.6", "/usr/lib/*/libstdc++.so.6", "/usr/lib64/libstdc++.so.6",
		"/usr/lib/*/libmlx5.so.1", "/usr/lib/*/libibverbs.so.1",
	} {
		m, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, m...)
	}
	if len(found) == 0 {
		t.Fatal("no library to read: not even a libc")
	}
	return found
}

func openLibrary(t testing.TB, path string) *image.File {
	t.Helper()
	h, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	f, err := image.NewFile(h, path)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// What delve makes of the same call frame information, everywhere in the
// machine's libraries, must be what we make of it.
func TestAgreesWithDelve(t *testing.T) {
	for _, path := range libraries(t) {
		t.Run(filepath.Base(path), func(t *testing.T) {
			f := openLibrary(t, path)
			s := f.ELF.Section(".eh_frame")
			data, err := s.Data()
			if err != nil {
				t.Fatal(err)
			}
			theirs, err := frame.Parse(data, binary.LittleEndian, 0, 8, s.Addr)
			if err != nil {
				t.Fatal(err)
			}
			tables := NewTables()
			for _, fde := range theirs {
				if fde.End() == fde.Begin() {
					continue
				}
				for _, pc := range []uint64{fde.Begin(), (fde.Begin() + fde.End()) / 2, fde.End() - 1} {
					ctx, err := fde.EstablishFrame(pc)
					if err != nil {
						t.Fatalf("delve at %#x: %v", pc, err)
					}
					e, err := tables.find(f, pc)
					if err != nil {
						t.Fatalf("at %#x: %v", pc, err)
					}
					if e.begin != fde.Begin() || e.begin+e.size != fde.End() {
						t.Fatalf("at %#x: FDE %#x+%#x, delve has %#x-%#x", pc, e.begin, e.size, fde.Begin(), fde.End())
					}
					compareRows(t, pc, e, ctx)
				}
			}
			if len(theirs) < 100 {
				t.Errorf("only %d functions were compared", len(theirs))
			}
		})
	}
}

func compareRows(t *testing.T, pc uint64, e *fde, theirs *frame.FrameContext) {
	t.Helper()
	ours, err := e.rowAt(pc)
	if err != nil {
		t.Fatalf("at %#x: %v", pc, err)
	}
	switch c := theirs.CFA; c.Rule {
	case frame.RuleCFA:
		if ours.cfa.kind != ruleValue || uint64(ours.cfa.reg) != c.Reg || ours.cfa.offset != c.Offset {
			t.Fatalf("at %#x: CFA is %+v, delve has %+v", pc, ours.cfa, c)
		}
	default:
		if ours.cfa.kind != ruleValueExpr || !bytes.Equal(ours.cfa.expr, c.Expression) {
			t.Fatalf("at %#x: CFA is %+v, delve has %+v", pc, ours.cfa, c)
		}
	}
	for reg := range uint64(columns) {
		r, set := theirs.Regs[reg]
		o := ours.regs[reg]
		agree := false
		switch {
		case !set:
			agree = o.kind == ruleSame
		case r.Rule == frame.RuleUndefined: // delve's for DW_CFA_restore, too
			agree = o.kind == ruleUndefined || o.kind == ruleSame || o.kind == ruleOffset
		case r.Rule == frame.RuleSameVal:
			agree = o.kind == ruleSame
		case r.Rule == frame.RuleOffset:
			agree = o.kind == ruleOffset && o.offset == r.Offset
		case r.Rule == frame.RuleExpression:
			agree = o.kind == ruleExpr && bytes.Equal(o.expr, r.Expression)
		case r.Rule == frame.RuleValExpression:
			agree = o.kind == ruleValueExpr && bytes.Equal(o.expr, r.Expression)
		case r.Rule == frame.RuleRegister:
			agree = o.kind == ruleRegister && uint64(o.reg) == r.Reg
		}
		if !agree {
			t.Fatalf("at %#x: register %d is %+v, delve has %+v", pc, reg, o, r)
		}
	}
	if ours.returnReg != theirs.RetAddrReg {
		t.Fatalf("at %#x: return address in %d, delve has %d", pc, ours.returnReg, theirs.RetAddrReg)
	}
}

// The header's table and a walk through .eh_frame find the same entries.
func TestScanAgreesWithHeader(t *testing.T) {
	for _, path := range libraries(t) {
		f := openLibrary(t, path)
		header, err := newTable(f)
		if err != nil {
			t.Fatal(err)
		}
		if header.index != nil {
			t.Errorf("%s has no header", path)
		}
		scan := &table{file: f, cies: map[uint64]*cie{}}
		if err := scan.scan(); err != nil {
			t.Fatal(err)
		}
		for _, e := range scan.index {
			h, err := header.find(e.begin)
			if err != nil {
				t.Fatalf("%s at %#x: %v", path, e.begin, err)
			}
			s, err := scan.find(e.begin)
			if err != nil {
				t.Fatalf("%s at %#x: %v", path, e.begin, err)
			}
			if h.begin != s.begin || h.size != s.size || !bytes.Equal(h.program, s.program) {
				t.Fatalf("%s at %#x: %+v by header, %+v by scan", path, e.begin, h, s)
			}
		}
		text := f.ELF.Section(".text")
		for _, pc := range []uint64{0, 1, text.Addr + text.Size + 1<<30, 1<<64 - 1} {
			if e, err := header.find(pc); err == nil {
				t.Errorf("%s has %+v at %#x", path, e, pc)
			}
			if e, err := scan.find(pc); err == nil {
				t.Errorf("%s has %+v at %#x by scan", path, e, pc)
			}
		}
	}
}

func BenchmarkFind(b *testing.B) {
	path := libraries(b)[0]
	if p := os.Getenv("UNWIND_LIBRARY"); p != "" {
		path = p
	}
	f := openLibrary(b, path)
	var starts []uint64
	t, err := newTable(f)
	if err != nil {
		b.Fatal(err)
	}
	var s *elf.Section = f.ELF.Section(".text")
	for i := range uint64(1000) {
		starts = append(starts, s.Addr+s.Size/1000*i)
	}
	b.Run("open", func(b *testing.B) {
		b.ReportAllocs()
		for range b.N {
			if _, err := newTable(f); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("find", func(b *testing.B) {
		b.ReportAllocs()
		for i := range b.N {
			e, err := t.find(starts[i%len(starts)])
			if err == nil {
				_, err = e.rowAt(e.begin + e.size - 1)
			}
			if err != nil && !noFrame(err) {
				b.Fatal(err)
			}
		}
	})
}
