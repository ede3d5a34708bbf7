package unwind

import (
	"slices"
	"testing"

	"github.com/rdmatrace/rdmatrace/tracer/image"
)

const stackAt = 0x7ffc00001000

// On x86-64: leaf pushes nothing, mid pushes rbx and makes 16 bytes of room,
// outer ends the chain; bare has no call frame information.
var x86Functions = []function{
	{begin: 0x1100, size: 0x20},
	{begin: 0x1200, size: 0x40, program: []byte{
		0x41, cfaDefOffset, 16, 0x80 | 3, 2, // advance 1; CFA rsp+16; rbx at CFA-16
		0x44, cfaDefOffset, 32, // advance 4; CFA rsp+32
	}},
	{begin: 0x1300, size: 0x40, program: []byte{cfaUndefined, 16}},
	{begin: 0x1400, size: 0x40, program: []byte{cfaUndefined + 0x39}}, // 0x40: advance 0
	{begin: 0x1500, size: 0x40, program: []byte{0x3f}},                // no such instruction
	{begin: 0x1600, size: 0x40, signal: true, program: []byte{ // registers saved by the kernel
		cfaDefExpr, 2, opBreg0 + 7, 16, // CFA is rsp+16
		cfaExpr, 16, 2, opBreg0 + 7, 8, // rip at rsp+8
		cfaValExpr, 7, 2, opBreg0 + 7, 16, // rsp is rsp+16
	}},
	// .plt as linkers describe it: 8 more from the 11th byte of an entry on.
	{begin: 0x1800, size: 0x40, program: []byte{cfaDefExpr, 11,
		opBreg0 + 7, 8, opBreg0 + 16, 0, opLit0 + 15, opAnd, opLit0 + 11, opGe, opLit0 + 3, opShl, opPlus}},
}

func TestWalk(t *testing.T) {
	jit := image.Region{Mapping: image.Mapping{Start: 0x7f0000000000, End: 0x7f0000001000, Exec: true}}
	trampoline := image.Region{Mapping: image.Mapping{Start: 0x7fffffffe000, End: 0x7ffffffff000, Exec: true, Path: "[uprobes]"}}
	leaf, mid, outer := addr(0x1100), addr(0x1210), addr(0x1310)
	cases := []struct {
		name  string
		ip    uint64
		fp    uint64
		stack []uint64
		want  []uint64
		stop  Stop
	}{
		{"complete", leaf, 0, []uint64{mid, 0, 0, 0xb, outer}, []uint64{leaf, mid - 1, outer - 1}, StopOutermost},
		{"zero return address", leaf, 0, []uint64{0}, []uint64{leaf}, StopOutermost},
		{"bytes end", leaf, 0, []uint64{mid, 0, 0}, []uint64{leaf, mid - 1}, StopBytes},
		{"no bytes", leaf, 0, nil, []uint64{leaf}, StopBytes},
		{"wild return address", leaf, 0, []uint64{0xdeadbeef}, []uint64{leaf}, StopUnmapped},
		{"wild ip", 0x1234, 0, []uint64{mid}, []uint64{0x1234}, StopUnmapped},
		{"last byte of a function", leaf, 0, []uint64{addr(0x1240), 0, 0, 0xb, outer}, []uint64{leaf, addr(0x123f), outer - 1}, StopOutermost},
		{"prologue of mid", addr(0x1200), 0, []uint64{outer}, []uint64{addr(0x1200), outer - 1}, StopOutermost},
		{"after push in mid", addr(0x1201), 0, []uint64{0xb, outer}, []uint64{addr(0x1201), outer - 1}, StopOutermost},
		{"malformed program", addr(0x1501), 0, []uint64{outer}, []uint64{addr(0x1501)}, StopBadFrame},
		{"no information, frame pointer", addr(0x1700), stackAt + 16, []uint64{1, 2, stackAt + 64, outer},
			[]uint64{addr(0x1700), outer - 1}, StopOutermost},
		{"no information, no frame pointer", addr(0x1700), 0x55, []uint64{1, 2, 3, outer}, []uint64{addr(0x1700)}, StopNoFrame},
		{"frame pointer below", addr(0x1700), stackAt - 16, []uint64{1, 2, 3, outer}, []uint64{addr(0x1700)}, StopNoFrame},
		{"frame pointer beyond the bytes", addr(0x1700), stackAt + 24, []uint64{1, 2, 3, outer}, []uint64{addr(0x1700)}, StopNoFrame},
		{"into anonymous code and out", leaf, stackAt + 16, []uint64{0x7f0000000100, 0, stackAt + 512, outer},
			[]uint64{leaf, 0x7f00000000ff, outer - 1}, StopOutermost},
		{"anonymous code without frame pointer", leaf, 7, []uint64{0x7f0000000100, 0, 0, outer},
			[]uint64{leaf, 0x7f00000000ff}, StopNoFrame},
		{"return probe", leaf, stackAt + 16, []uint64{0x7fffffffe000, 0, stackAt + 512, outer}, []uint64{leaf}, StopProbe},
		{"first half of a PLT entry", addr(0x1816), 0, []uint64{outer}, []uint64{addr(0x1816), outer - 1}, StopOutermost},
		{"second half of a PLT entry", addr(0x181b), 0, []uint64{5, outer}, []uint64{addr(0x181b), outer - 1}, StopOutermost},
		{"signal", leaf, 0, []uint64{addr(0x1601), 0xaa, mid, 0, 0, 0xb, outer}, []uint64{leaf, addr(0x1601), mid, outer - 1}, StopOutermost},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			for _, headerless := range []bool{false, true} {
				u, err := New("amd64")
				if err != nil {
					t.Fatal(err)
				}
				frame, header := frames(u.arch, x86Functions)
				if headerless {
					header = nil
				}
				space := spaceOf(madeFile(t, frame, header), jit, trampoline)
				s := &Snapshot{IP: tc.ip, SP: stackAt, FP: tc.fp, Stack: stackOf(tc.stack...)}
				s.Regs[1] = tc.fp
				for range 2 { // the second time from the caches
					got, stop := u.Unwind(space, s, nil)
					if !slices.Equal(got, tc.want) || stop != tc.stop {
						t.Errorf("got %#x, %v; want %#x, %v", got, stop, tc.want, tc.stop)
					}
				}
			}
		})
	}
}

// A snapshot of a return probe: the address has been returned to.
func TestReturned(t *testing.T) {
	u, err := New("amd64")
	if err != nil {
		t.Fatal(err)
	}
	frame, header := frames(u.arch, x86Functions)
	space := spaceOf(madeFile(t, frame, header))
	// The call was mid's last instruction; beyond it there is nothing.
	s := &Snapshot{IP: addr(0x1240), SP: stackAt, Stack: stackOf(0, 0, 0xb, addr(0x1310)), Returned: true}
	got, stop := u.Unwind(space, s, nil)
	if want := []uint64{addr(0x1240), addr(0x1310) - 1}; !slices.Equal(got, want) || stop != StopOutermost {
		t.Errorf("got %#x, %v", got, stop)
	}
}

// A chain of frames that lead to themselves ends, and a long one is cut.
func TestLoops(t *testing.T) {
	self := []function{
		{begin: 0x1100, size: 0x100, program: []byte{cfaDef, 6, 0, 0x80 | 16, 0}}, // CFA is rbp, which stays
		{begin: 0x1200, size: 0x100},
	}
	u, err := New("amd64")
	if err != nil {
		t.Fatal(err)
	}
	frame, header := frames(u.arch, self)
	space := spaceOf(madeFile(t, frame, header))
	s := &Snapshot{IP: addr(0x1180), SP: stackAt, FP: stackAt + 8, Stack: stackOf(0, addr(0x1150), addr(0x1150))}
	s.Regs[1] = s.FP
	if got, stop := u.Unwind(space, s, nil); len(got) != 2 || stop != StopLoop {
		t.Errorf("loop: got %#x, %v", got, stop)
	}
	deep := make([]uint64, stackWords)
	for i := range deep {
		deep[i] = addr(0x1250)
	}
	s = &Snapshot{IP: addr(0x1250), SP: stackAt, Stack: stackOf(deep...)}
	if got, stop := u.Unwind(space, s, nil); len(got) != MaxFrames || stop != StopDepth {
		t.Errorf("recursion: got %d frames, %v", len(got), stop)
	}
}

// stackWords is a full stack record.
const stackWords = 16384 / 8

// On arm64 the return address is in x30, or saved with a signature over it.
func TestARM64(t *testing.T) {
	u, err := New("arm64")
	if err != nil {
		t.Fatal(err)
	}
	frame, header := frames(u.arch, []function{
		{begin: 0x1100, size: 0x20},
		{begin: 0x1200, size: 0x40, program: []byte{
			cfaNegateRA,
			0x44, cfaDefOffset, 32, 0x80 | 29, 4, 0x80 | 30, 3, // advance 4; x29 at CFA-32, x30 at CFA-24
		}},
		{begin: 0x1300, size: 0x40, program: []byte{cfaUndefined, 30}},
	})
	// Of a machine with addresses of 52 bits.
	trampoline := image.Region{Mapping: image.Mapping{Start: 0xfffffffffe000, End: 0xffffffffff000, Exec: true, Path: "[uprobes]"}}
	space := spaceOf(madeFile(t, frame, header), trampoline)
	leaf, mid, outer := addr(0x1104), addr(0x1210), addr(0x1310)
	const signature, wide = 0x002a << 48, 0x2a << 56
	for name, tc := range map[string]struct {
		ip, lr uint64
		stack  []uint64
		want   []uint64
		stop   Stop
	}{
		"leaf":           {leaf, mid, []uint64{stackAt + 64, outer | signature, 0, 0}, []uint64{leaf, mid - 1, outer - 1}, StopOutermost},
		"entry of mid":   {addr(0x1200), outer | signature, nil, []uint64{addr(0x1200), outer - 1}, StopOutermost},
		"leaf into leaf": {leaf, addr(0x1108), nil, []uint64{leaf, addr(0x1107)}, StopLoop},
		"52 bits":        {addr(0x1200), outer | wide, nil, []uint64{addr(0x1200), outer - 1}, StopOutermost},
		"under a probe":  {addr(0x1200), trampoline.Start | wide, nil, []uint64{addr(0x1200)}, StopProbe},
		"bytes end":      {leaf, mid, []uint64{0}, []uint64{leaf, mid - 1}, StopBytes},
	} {
		s := &Snapshot{IP: tc.ip, SP: stackAt, FP: stackAt, Stack: stackOf(tc.stack...)}
		s.Regs[0] = tc.lr
		if got, stop := u.Unwind(space, s, nil); !slices.Equal(got, tc.want) || stop != tc.stop {
			t.Errorf("%s: got %#x, %v; want %#x, %v", name, got, stop, tc.want, tc.stop)
		}
	}
	if _, err := New("riscv64"); err == nil {
		t.Error("riscv64 is said to be supported")
	}
}

// On arm64 the signal trampoline is known by its code. What the signal interrupted may be a
// leaf, whose caller is in x30.
func TestSignalFrameARM64(t *testing.T) {
	u, err := New("arm64")
	if err != nil {
		t.Fatal(err)
	}
	frame, header := frames(u.arch, []function{
		{begin: 0x1100, size: 0x20},
		{begin: 0x1200, size: 0x40, program: []byte{cfaDefOffset, 16, 0x80 | 29, 2, 0x80 | 30, 1}},
		{begin: 0x1300, size: 0x40, program: []byte{cfaUndefined, 30}},
	})
	space := spaceOf(madeFile(t, frame, header, sigreturnARM64.code...))
	handler, trampoline, leaf, mid, outer := addr(0x1220), addr(plainAt), addr(0x1104), addr(0x1210), addr(0x1310)
	stack := []uint64{0, trampoline}
	saved := make([]uint64, (128+176+8)/8+33)
	copy(saved[len(saved)-3:], []uint64{mid, stackAt + 8*uint64(len(stack)+len(saved)), leaf}) // x30, sp, pc
	stack = append(append(stack, saved...), 0, outer)
	whole := []uint64{handler, trampoline, leaf, mid - 1, outer - 1}
	for _, c := range []struct {
		words int
		want  []uint64
		stop  Stop
	}{
		{len(stack), whole, StopOutermost},
		{len(stack) - 2, whole[:4], StopBytes},
		{len(stack) - 3, whole[:2], StopBytes},
		{20, whole[:2], StopBytes},
	} {
		s := &Snapshot{IP: handler, SP: stackAt, Stack: stackOf(stack[:c.words]...)}
		if got, stop := u.Unwind(space, s, nil); !slices.Equal(got, c.want) || stop != c.stop {
			t.Errorf("%d words: got %#x, %v; want %#x, %v", c.words, got, stop, c.want, c.stop)
		}
	}
	within := &Snapshot{IP: trampoline + 4, SP: stackAt + 16, Stack: stackOf(stack[2:]...)}
	if got, stop := u.Unwind(space, within, nil); !slices.Equal(got, append([]uint64{trampoline + 4}, whole[2:]...)) || stop != StopOutermost {
		t.Errorf("in the trampoline: got %#x, %v", got, stop)
	}
}

// What is kept does not grow with what is seen.
func TestRowsAreBounded(t *testing.T) {
	u, err := New("amd64")
	if err != nil {
		t.Fatal(err)
	}
	f := openLibrary(t, libraries(t)[0])
	text := f.ELF.Section(".text")
	found := 0
	for pc := text.Addr; pc < text.Addr+text.Size && found < 3*maxRows; pc += 16 {
		if _, err := u.row(f, pc); err == nil {
			found++
		}
		if len(u.rows) > maxRows {
			t.Fatalf("%d rows are kept", len(u.rows))
		}
	}
	if found < 2*maxRows {
		t.Errorf("only %d rows were asked for", found)
	}
}
