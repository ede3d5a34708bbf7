package code

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"testing"

	"golang.org/x/arch/arm64/arm64asm"
)

// flat is an image that is nothing but code at an address, and words that the
// loader fills in.
type flat struct {
	at    uint64
	bytes []byte
	words map[uint64]uint64
}

func (f flat) Bytes(vaddr, n uint64) ([]byte, error) {
	if vaddr < f.at || vaddr+n > f.at+uint64(len(f.bytes)) || vaddr+n < vaddr {
		return nil, errors.New("outside")
	}
	return f.bytes[vaddr-f.at : vaddr-f.at+n], nil
}

func (f flat) Word(vaddr uint64) (uint64, bool) {
	w, ok := f.words[vaddr]
	return w, ok
}

func follow(t *testing.T, m Machine, b []byte) *Func {
	t.Helper()
	f, err := Follow(m, flat{at: 0x1000, bytes: b, words: map[uint64]uint64{0x2000: 0x1234}}, 0x1000, 0x1000+uint64(len(b)))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func stores(f *Func) []string {
	var out []string
	for _, s := range f.Stores() {
		out = append(out, fmt.Sprintf("[%s%+d] = %s", word(s.Base), s.Disp, word(s.Value)))
	}
	slices.Sort(out)
	return out
}

func word(v Value) string {
	switch v.Kind {
	case ValueConst:
		return fmt.Sprintf("%#x", v.Off)
	case ValueArg:
		return fmt.Sprintf("arg%d%+d", v.Arg, v.Off)
	case ValueLoaded:
		return fmt.Sprintf("*(arg%d%+d)%+d", v.Arg, v.Table, v.Off)
	case ValueOther:
		return fmt.Sprintf("memory%+d", v.Off)
	}
	return "?"
}

// TestAMD64Stores: what functions store, by hand-assembled code.
func TestAMD64Stores(t *testing.T) {
	tests := []struct {
		name string
		code []byte
		want []string
	}{
		{"lea, mov to a member", []byte{
			0x48, 0x8d, 0x05, 0xf9, 0x00, 0x00, 0x00, // lea 0xf9(%rip),%rax
			0x48, 0x89, 0x47, 0x10, 0xc3}, []string{"[arg0+0+16] = 0x1100"}},
		{"behind endbr64, through a copy of the argument", []byte{
			0xf3, 0x0f, 0x1e, 0xfa, 0x48, 0x89, 0xfb, // mov %rdi,%rbx
			0x48, 0x8d, 0x05, 0xf2, 0x00, 0x00, 0x00, 0x48, 0x89, 0x43, 0x08, 0xc3}, []string{"[arg0+0+8] = 0x1100"}},
		{"a word of the argument, moved", []byte{
			0x48, 0x8b, 0x46, 0x18, 0x48, 0x89, 0x47, 0x20, 0xc3}, []string{"[arg0+0+32] = *(arg1+24)+0"}},
		{"two words by a vector register", []byte{
			0x48, 0x8d, 0x05, 0xf9, 0x00, 0x00, 0x00, 0x48, 0x8d, 0x0d, 0xf2, 0x01, 0x00, 0x00,
			0x66, 0x48, 0x0f, 0x6e, 0xc0, // movq %rax,%xmm0
			0x66, 0x48, 0x0f, 0x6e, 0xc9, // movq %rcx,%xmm1
			0x66, 0x0f, 0x6c, 0xc1, // punpcklqdq %xmm1,%xmm0
			0x0f, 0x11, 0x47, 0x40, 0xc3}, // movups %xmm0,0x40(%rdi)
			[]string{"[arg0+0+64] = 0x1100", "[arg0+0+72] = 0x1200"}},
		{"a call leaves nothing in rax, but rbx", []byte{
			0x48, 0x89, 0xfb, 0x48, 0x8d, 0x05, 0xf6, 0x00, 0x00, 0x00,
			0xe8, 0x00, 0x10, 0x00, 0x00, 0x48, 0x89, 0x43, 0x08, 0xc3}, nil},
		{"an address from the global offset table", []byte{
			0x48, 0x8b, 0x05, 0xf9, 0x0f, 0x00, 0x00, // mov 0xff9(%rip),%rax
			0x48, 0x89, 0x07, 0xc3}, []string{"[arg0+0+0] = 0x1234"}},
		{"a word that is half written is unknown", []byte{
			0x48, 0x8d, 0x05, 0xf9, 0x00, 0x00, 0x00, 0xb0, 0x01, // mov $1,%al
			0x48, 0x89, 0x07, 0xc3}, nil},
		{"spilled and reloaded", []byte{
			0x48, 0x83, 0xec, 0x18, 0x48, 0x89, 0x7c, 0x24, 0x08, // mov %rdi,8(%rsp)
			0xe8, 0x00, 0x10, 0x00, 0x00, 0x48, 0x8b, 0x44, 0x24, 0x08, // mov 8(%rsp),%rax
			0x48, 0x8d, 0x0d, 0xe6, 0x00, 0x00, 0x00, 0x48, 0x89, 0x48, 0x30, 0xc3}, []string{"[arg0+0+48] = 0x1100"}},
		{"one of two", []byte{
			0x48, 0x8d, 0x05, 0xf9, 0x00, 0x00, 0x00, 0x48, 0x8d, 0x0d, 0xf2, 0x01, 0x00, 0x00,
			0x85, 0xf6, 0x48, 0x0f, 0x44, 0xc1, // cmove %rcx,%rax
			0x48, 0x89, 0x07, 0xc3}, []string{"[arg0+0+0] = 0x1100", "[arg0+0+0] = 0x1200"}},
		{"code that is not reached does not count", []byte{
			0x48, 0x8d, 0x05, 0xf9, 0x00, 0x00, 0x00, 0xc3, 0x48, 0x89, 0x07, 0xc3}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := follow(t, AMD64{}, tt.code)
			if got := stores(f); !slices.Equal(got, tt.want) || len(f.Undecoded) > 0 {
				t.Errorf("stores %q, want %q; undecoded %#x", got, tt.want, f.Undecoded)
			}
		})
	}
}

// TestARM64Stores: likewise.
func TestARM64Stores(t *testing.T) {
	tests := []struct {
		name string
		code []uint32
		want []string
	}{
		{"adrp, add, str", []uint32{0xb0000001, 0x91004021, 0xf9000801, 0xd65f03c0}, []string{"[arg0+0+16] = 0x2010"}},
		{"adr, str", []uint32{0x10000801, 0xf9000401, 0xd65f03c0}, []string{"[arg0+0+8] = 0x1100"}},
		{"bti c, pair of words", []uint32{0xd503245f, 0x100007e1, 0x10000fc2, 0xa9020801, 0xd65f03c0},
			[]string{"[arg0+0+32] = 0x1100", "[arg0+0+40] = 0x1200"}},
		{"a word of the argument, if not null", []uint32{0xf9400822, 0xb4000042, 0xf9001002, 0xd65f03c0},
			[]string{"[arg0+0+32] = *(arg1+16)+0"}},
		{"vector of two words", []uint32{0x10000801, 0x10000fe2, 0x9e670020, 0x4e181c40, 0x3d800400, 0xd65f03c0},
			[]string{"[arg0+0+16] = 0x1100", "[arg0+0+24] = 0x1200"}},
		{"spilled and reloaded around a call", []uint32{0xa9be7bfd, 0xf9000be0, 0x94000400, 0xf9400be0, 0x100007a1, 0xf9000001, 0xd65f03c0},
			[]string{"[arg0+0+0] = 0x1104"}},
		{"csel", []uint32{0x10000803, 0x10000fe4, 0x9a840065, 0xf9000005, 0xd65f03c0},
			[]string{"[arg0+0+0] = 0x1100", "[arg0+0+0] = 0x1200"}},
		{"an unknown load is unknown", []uint32{0x10000801, 0x38614801, 0xf9000001, 0xd65f03c0}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var b []byte
			for _, w := range tt.code {
				b = binary.LittleEndian.AppendUint32(b, w)
			}
			f := follow(t, ARM64{}, b)
			if got := stores(f); !slices.Equal(got, tt.want) {
				t.Errorf("stores %q, want %q", got, tt.want)
			}
		})
	}
}

// TestBoundaries: what x86asm decodes as a lone prefix, and other bytes that are
// no instruction, end the walk.
func TestBoundaries(t *testing.T) {
	for _, b := range [][]byte{{0x66, 0x0f, 0x38, 0xf8, 0x06, 0xc3}, {0x06}, {0xf3}, {0x0f}, {0xe8, 0, 0}, {}} {
		if i, err := (AMD64{}).Decode(b, 0); err == nil {
			t.Errorf("% x decodes to %d bytes", b, i.Len)
		}
	}
	if i, err := (AMD64{}).Decode(endbr64[:], 0); err != nil || i.Len != 4 {
		t.Errorf("endbr64 has %d bytes, %v", i.Len, err)
	}
}

// FuzzFollow: any bytes are followed to an end, and every instruction that is
// reached lies inside.
func FuzzFollow(f *testing.F) {
	f.Add([]byte{0x48, 0x8d, 0x05, 0xf9, 0, 0, 0, 0x48, 0x89, 0x47, 0x10, 0xeb, 0xf3}, false)
	f.Add([]byte{0x83, 0xff, 0x03, 0x77, 0x0e, 0x48, 0x8d, 0x05, 0x07, 0, 0, 0, 0x48, 0x63, 0x0c, 0xb8, 0x48, 0x01, 0xc1, 0xff, 0xe1, 1, 0, 0, 0}, false)
	f.Add([]byte{0x01, 0x00, 0x00, 0xb0, 0x21, 0x40, 0x00, 0x91, 0x01, 0x08, 0x00, 0xf9, 0xfd, 0xff, 0xff, 0x17}, true)
	f.Fuzz(func(t *testing.T, b []byte, arm bool) {
		if len(b) == 0 || len(b) > 4096 {
			return
		}
		var m Machine = AMD64{}
		if arm {
			m = ARM64{}
		}
		fn, err := Follow(m, flat{at: 0x1000, bytes: b}, 0x1000, 0x1000+uint64(len(b)))
		if err != nil {
			return
		}
		fn.Stores()
		for addr, i := range fn.Insts {
			if addr != i.Addr || !fn.has(addr) || i.Len == 0 || i.End() > fn.End {
				t.Fatalf("instruction at %#x: %+v", addr, i)
			}
		}
	})
}

// FuzzARM64 compares with x/arch's decoder where control goes, and which
// register an instruction of one destination writes.
func FuzzARM64(f *testing.F) {
	for _, w := range []uint32{0x14000010, 0x94000400, 0x54000041, 0xb4000041, 0x36000041, 0xd61f0200, 0xd65f03c0,
		0x10000801, 0xb0000001, 0x91004021, 0xf9400822, 0xa9be7bfd, 0x8b020020, 0x8b22c820, 0x58000041} {
		f.Add(w)
	}
	f.Fuzz(func(t *testing.T, w uint32) {
		b := binary.LittleEndian.AppendUint32(nil, w)
		want, err := arm64asm.Decode(b)
		if err != nil {
			return
		}
		got, err := (ARM64{}).Decode(b, 0x100000)
		if err != nil {
			t.Fatalf("%08x is %v, but was refused", w, want)
		}
		if flow, ok := a64Flow[want.Op]; ok {
			if got.Flow != flow && !(want.Op == arm64asm.B && got.Flow == Branch) {
				t.Errorf("%08x %v: flow %d, want %d", w, want, got.Flow, flow)
			}
		} else if got.Flow != Next {
			t.Errorf("%08x %v: flow %d", w, want, got.Flow)
		}
		for _, a := range want.Args {
			if rel, ok := a.(arm64asm.PCRel); ok && got.Flow != Next && got.Target != 0x100000+uint64(int64(rel)) {
				t.Errorf("%08x %v: target %#x", w, want, got.Target)
			}
		}
		if r, ok := writes(want); ok && !changes(&got, r) {
			t.Errorf("%08x %v: register %d keeps its value", w, want, r)
		}
	})
}

var a64Flow = map[arm64asm.Op]Flow{
	arm64asm.B: Jump, arm64asm.BL: Call, arm64asm.BR: Indirect, arm64asm.BLR: Call, arm64asm.RET: Return,
	arm64asm.CBZ: Branch, arm64asm.CBNZ: Branch, arm64asm.TBZ: Branch, arm64asm.TBNZ: Branch,
	arm64asm.BRK: Stop,
}

// writes is the register that the instruction's first operand names as its
// destination, for those whose first operand is one.
func writes(i arm64asm.Inst) (Reg, bool) {
	switch i.Op {
	case arm64asm.ADD, arm64asm.SUB, arm64asm.ADR, arm64asm.ADRP, arm64asm.MOV, arm64asm.MOVZ, arm64asm.MOVK, arm64asm.MOVN,
		arm64asm.LDR, arm64asm.LDRSW, arm64asm.LDRB, arm64asm.LDRH, arm64asm.LDUR, arm64asm.LDP, arm64asm.AND, arm64asm.ORR,
		arm64asm.EOR, arm64asm.CSEL, arm64asm.SBFM, arm64asm.UBFM, arm64asm.MADD, arm64asm.LSL, arm64asm.MRS, arm64asm.SXTW:
	default:
		return 0, false
	}
	r, ok := i.Args[0].(arm64asm.Reg)
	switch {
	case !ok:
	case r >= arm64asm.X0 && r <= arm64asm.X30:
		return Reg(r - arm64asm.X0), true
	case r >= arm64asm.W0 && r <= arm64asm.W30:
		return Reg(r - arm64asm.W0), true
	}
	return 0, false
}

func changes(i *Inst, r Reg) bool {
	for _, e := range i.Effects() {
		if e.Kind != Store && e.Kind != Compare && e.Dst == r {
			return true
		}
	}
	return false
}
