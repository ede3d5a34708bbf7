package pollpath

import (
	"debug/elf"
	"encoding/binary"
	"slices"
	"strings"
	"testing"
)

// TestCompiledARM64 builds the polling pattern for arm64 and looks at what is found. That
// each of these is hit once for every completion TestCompiled shows, on an arm64 machine.
func TestCompiledARM64(t *testing.T) {
	for _, opt := range []string{"-O0", "-O1", "-O2", "-O3", "-Os"} {
		for _, extra := range extras["arm64"] {
			t.Run(opt+" "+extra, func(t *testing.T) {
				lib := build(t, "aarch64", "testdata/poll.c", append(strings.Fields(extra), opt)...)
				im := imageOf(t, lib)
				for name, find := range map[string]func(Image, uint64) ([]Candidate, error){"poll_cq": Find, "start_poll": FindCurrent, "next_poll": FindCurrent} {
					c, err := find(im, symbol(t, lib, name).Value)
					if refused := name == "start_poll" && resets("clang", opt); (err != nil) != refused {
						t.Errorf("%s: %+v, %v", name, c, err)
					}
					if name != "poll_cq" || err != nil {
						continue
					}
					// The function's third argument or a copy of it moves on.
					if len(c[0].Sites) != 1 || !c[0].Emulated || opt != "-O0" && len(c[0].Strides) == 0 && len(c[0].Shifts) == 0 {
						t.Errorf("%s: %+v", name, c)
					}
				}
			})
		}
	}
}

// imageOfWords is code of arm64 from address 0 on.
func imageOfWords(words ...uint32) Image {
	im := imageOfBytes(bytesOf(words))
	im.Machine = elf.EM_AARCH64
	return im
}

func bytesOf(words []uint32) (b []byte) {
	for _, w := range words {
		b = binary.LittleEndian.AppendUint32(b, w)
	}
	return b
}

func TestFindARM64(t *testing.T) {
	const (
		zero = 0x52800000 // mov w0, #0
		ret  = 0xd65f03c0
	)
	tests := []struct {
		name  string
		find  func(Image, uint64) ([]Candidate, error)
		words []uint32
		want  []uint64 // nil: refused
	}{
		{"mov; cbz w1, +12; add w0, w0, #1; b +4; ret", Find, []uint32{zero, 0x34000061, 0x11000400, 0x14000001, ret}, []uint64{12}},
		{"down from zero: sub w2, w2, #1; neg w0, w2", Find,
			[]uint32{0x52800002, 0x34000061, 0x51000442, 0x14000001, 0x4b0203e0, ret}, []uint64{12}},
		{"the count is spilt: str w0, [sp, #12]; ldr w0, [sp, #12]", Find,
			[]uint32{zero, 0x34000081, 0x11000400, 0x14000001, 0xb9000fe0, 0xb9400fe0, ret}, []uint64{12}},
		{"by a push and a pop: str x0, [sp, #-16]!; ldr x0, [sp], #16", Find,
			[]uint32{zero, 0x34000081, 0x11000400, 0x14000001, 0xf81f0fe0, 0xf84107e0, ret}, []uint64{12}},
		{"a pair: stp x1, x0, [sp, #16]; ldp x1, x0, [sp, #16]", Find,
			[]uint32{zero, 0x34000081, 0x11000400, 0x14000001, 0xa90103e1, 0xa94103e1, ret}, []uint64{12}},
		{"it or an error: mov w2, #-2; csel w0, w0, w2, ne", Find,
			[]uint32{zero, 0x34000061, 0x11000400, 0x14000001, 0x12800022, 0x1a821000, ret}, []uint64{12}},
		{"cinc w0, w0, eq raises it, or not", Find, []uint32{zero, 0x7100003f, 0x1a801400, ret}, nil},
		{"beside another raise", Find, []uint32{zero, 0x34000061, 0x11000400, 0x14000001, 0x1a801400, ret}, nil},
		{"what a compare left: cset w0, eq", Find, []uint32{0x7100003f, 0x1a9f17e0, ret}, nil},
		{"cbb<cc>, a branch that is not known", Find, []uint32{zero, 0x74000041, 0x11000400, ret}, nil},
		{"udf", Find, []uint32{zero, 0, 0x11000400, ret}, nil},
		{"runs off its code", Find, []uint32{zero, 0x11000400}, nil},
		{"start_poll: cbz w1, +16; mov w0, #0; b +8; mov w0, #2; ret", FindCurrent,
			[]uint32{0x34000081, zero, 0x14000002, 0xd503201f, 0x52800040, ret}, nil},
		{"start_poll: cbz w1, +12; mov w0, #0; b +8; mov w0, #2; ret", FindCurrent,
			[]uint32{0x34000061, zero, 0x14000002, 0x52800040, ret}, []uint64{8}},
		{"it returns what it compared: cbnz w8, +12; mov w0, w8; b +8; mov w0, #2; ret", FindCurrent,
			[]uint32{0x35000068, 0x2a0803e0, 0x14000002, 0x52800040, ret}, []uint64{8}},
		{"it returns at once: cbnz w0, +8; ret; mov w0, #2; ret", FindCurrent, []uint32{0x35000040, ret, 0x52800040, ret}, []uint64{4}},
		{"or 0: csel w0, w8, wzr, ne", FindCurrent, []uint32{0x52800048, 0x7100003f, 0x1a9f1100, ret}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, err := tt.find(imageOfWords(tt.words...), 0)
			if (err != nil) != (tt.want == nil) {
				t.Fatalf("candidates %+v, %v", c, err)
			}
			if err == nil && !slices.Equal(c[0].Sites, tt.want) {
				t.Errorf("sites %#x, want %#x (%s)", c[0].Sites, tt.want, c[0].Why)
			}
		})
	}
}

// TestBitmask: immediates of logical instructions, as an assembler encodes them.
func TestBitmask(t *testing.T) {
	for word, want := range map[uint32]uint64{
		0x12001c00: 0xff,               // and w0, w0, #0xff
		0x92401400: 0x3f,               // and x0, x0, #0x3f
		0x92401c00: 0xff,               // and x0, x0, #0xff
		0x3200f3e0: 0x55555555,         // mov w0, #0x55555555
		0xb201f3e0: 0xaaaaaaaaaaaaaaaa, // mov x0, #0xaaaaaaaaaaaaaaaa
		0x320183e0: 0x80008000,         // mov w0, #0x80008000
	} {
		a := a64{w: word}
		got, ok := a.bitmask()
		if !ok || got != want {
			t.Errorf("%#x: %#x, %v; want %#x", word, got, ok, want)
		}
	}
}
