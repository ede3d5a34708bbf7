package place

import (
	"debug/elf"
	"encoding/binary"
	"testing"
)

func words(w ...uint32) []byte {
	var b []byte
	for _, x := range w {
		b = binary.LittleEndian.AppendUint32(b, x)
	}
	return b
}

func TestEntry(t *testing.T) {
	x86, arm := elf.EM_X86_64, elf.EM_AARCH64
	tests := []struct {
		name     string
		machine  elf.Machine
		code     []byte
		offset   uint64
		emulated bool
	}{
		{"push %r15", x86, []byte{0x41, 0x57, 0x41, 0x56}, 0, true},
		{"push %rbx", x86, []byte{0x53}, 0, true},
		{"tail jump", x86, []byte{0xe9, 0xeb, 0xe8, 0xff, 0xff}, 0, true},
		{"nop", x86, []byte{0x90, 0xc3}, 0, true},
		{"endbr64, push", x86, []byte{0xf3, 0x0f, 0x1e, 0xfa, 0x55}, 4, true},
		{"endbr64, mov %rdi,%rax, push", x86, []byte{0xf3, 0x0f, 0x1e, 0xfa, 0x48, 0x89, 0xf8, 0x53}, 7, true},
		{"arm_cq: mov 0x1c8(%rdi),%eax, then the argument is overwritten", x86,
			[]byte{0x8b, 0x87, 0xc8, 0x01, 0x00, 0x00, 0x89, 0xc7, 0x55}, 0, false},
		{"sub $8,%rsp moves the return address", x86, []byte{0x48, 0x83, 0xec, 0x08, 0x53}, 0, false},
		{"a store may be anywhere", x86, []byte{0x48, 0x89, 0x07, 0x53}, 0, false},
		{"test, jcc", x86, []byte{0x85, 0xf6, 0x74, 0x10}, 2, true},
		{"call", x86, []byte{0xe8, 0, 0, 0, 0}, 0, true},
		{"16-bit call is not emulated", x86, []byte{0x66, 0xe8, 0, 0, 0, 0}, 0, false},
		{"5-byte nop, then push", x86, []byte{0x0f, 0x1f, 0x44, 0x00, 0x00, 0x55}, 5, true},
		{"ret", x86, []byte{0xc3}, 0, false},
		{"xor %eax,%eax, ret", x86, []byte{0x31, 0xc0, 0xc3}, 0, false},
		{"xor %edx,%edx is an argument", x86, []byte{0x31, 0xd2, 0x53}, 0, false},

		{"stp x29,x30,[sp,#-32]!", arm, words(0xa9be7bfd), 0, false},
		{"b", arm, words(0x14000010), 0, true},
		{"bti c, b", arm, words(0xd503245f, 0x14000010), 4, true},
		{"bti c, cbz x1", arm, words(0xd503245f, 0xb4000041), 4, true},
		{"paciasp, then b: the link register is signed", arm, words(0xd503233f, 0x14000010), 0, false},
		{"ldr x9,[x0,#8], cbz x9", arm, words(0xf9400409, 0xb4000049), 4, true},
		{"ldr x1,[x0,#8] is an argument", arm, words(0xf9400401, 0xb4000041), 0, false},
		{"ldr x9,[x0],#8 writes x0 back", arm, words(0xf8408409, 0xb4000049), 0, false},
		{"adrp x9", arm, words(0x90000009), 0, true},
		{"nop, then cbz x1: not every kernel simulates nop", arm, words(0xd503201f, 0xb4000041), 4, true},
		{"ret", arm, words(0xd65f03c0), 0, true},
		{"br x16", arm, words(0xd61f0200), 0, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Entry(tt.machine, tt.code)
			if err != nil {
				t.Fatal(err)
			}
			if got.Offset != tt.offset || got.Emulated != tt.emulated {
				t.Errorf("Entry = +%d emulated %v (%s), want +%d emulated %v", got.Offset, got.Emulated, got.Why, tt.offset, tt.emulated)
			}
		})
	}
}

func TestEntryErrors(t *testing.T) {
	if _, err := Entry(elf.EM_PPC64, []byte{1, 2, 3, 4}); err == nil {
		t.Error("an unknown machine was accepted")
	}
	for _, m := range []elf.Machine{elf.EM_X86_64, elf.EM_AARCH64} {
		if s, err := Entry(m, nil); err == nil {
			t.Errorf("%v: empty code gave %+v", m, s)
		}
	}
}

// FuzzEntry: whatever the bytes, the site is a boundary that decoding from the
// entry reaches, and everything before it is transparent.
func FuzzEntry(f *testing.F) {
	f.Add([]byte{0xf3, 0x0f, 0x1e, 0xfa, 0x55}, true)
	f.Add([]byte{0x85, 0xf6, 0x74, 0x10}, true)
	f.Add(words(0xd503245f, 0xb4000041), false)
	f.Fuzz(func(t *testing.T, code []byte, x86 bool) {
		m := elf.EM_AARCH64
		if x86 {
			m = elf.EM_X86_64
		}
		site, err := Entry(m, code)
		if err != nil {
			return
		}
		off := uint64(0)
		for off < site.Offset {
			in, ok := steppers[m](code[off:])
			if !ok || !in.transparent || in.emulated {
				t.Fatalf("site +%d passes over %+v at +%d", site.Offset, in, off)
			}
			off += uint64(in.size)
		}
		if off != site.Offset {
			t.Fatalf("site +%d is no boundary: decoding reaches +%d", site.Offset, off)
		}
		in, ok := steppers[m](code[off:])
		if !ok || in.emulated != site.Emulated {
			t.Fatalf("site +%d: %+v, emulated %v", off, in, site.Emulated)
		}
	})
}
