package pollpath

import (
	"debug/elf"
	"os"
	"slices"
	"testing"

	"github.com/rdmatrace/rdmatrace/tracer/locate/object"
)

// imageOf reads an ELF file.
func imageOf(t testing.TB, path string) Image {
	t.Helper()
	r, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	f, err := object.New(r)
	if err != nil {
		t.Fatal(err)
	}
	return ImageOf(f)
}

// imageOfBytes are code from address 0 on, all of one function.
func imageOfBytes(b []byte) Image {
	return Image{
		Machine: elf.EM_X86_64,
		Code: func(addr uint64, n int) []byte {
			if addr >= uint64(len(b)) {
				return nil
			}
			return b[addr:min(addr+uint64(n), uint64(len(b)))]
		},
		Extent: func(addr uint64) (begin, end uint64, ok bool) { return 0, uint64(len(b)), addr < uint64(len(b)) },
	}
}

func TestFindDebian(t *testing.T) {
	const dir = "/usr/lib/x86_64-linux-gnu/"
	tests := []struct {
		lib, name string
		entry     uint64 // of rdma-core 44.0-2
		want      uint64
		stride    Location
		shift     int64 // of what it keeps of the queue's address
	}{
		{dir + "libmlx5.so.1.24.44.0", "mlx5_poll_cq_v1", 0x1e880, 0x1ebbd, r13, 0},
		{dir + "libibverbs/librxe-rdmav34.so", "rxe_poll_cq", 0x2ca0, 0x2d27, rbx, 0x138},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := os.Stat(tt.lib); err != nil {
				t.Skipf("made for Debian 12's ibverbs-providers 44.0: %v", err)
			}
			c, err := Find(imageOf(t, tt.lib), tt.entry)
			if err != nil {
				t.Fatal(err)
			}
			if len(c[0].Sites) != 1 || c[0].Sites[0] != tt.want || !c[0].Emulated {
				t.Errorf("best candidate is %#x (%s), want %#x", c[0].Sites, c[0].Why, tt.want)
			}
			if len(c[0].Strides) != 1 || c[0].Strides[0] != tt.stride {
				t.Errorf("strides %v, want %v", c[0].Strides, tt.stride)
			}
			if tt.shift != 0 && !slices.Contains(c[0].Shifts, tt.shift) {
				t.Errorf("shifts %#x, want %#x among them", c[0].Shifts, tt.shift)
			}
		})
	}
}

// TestFindCurrentDebian: the functions of libmlx5 that set their result to 0 at several
// places jump from there; in others the result has but one register all along, and
// is set to 0 where the ways meet. What mlx5dv_get_clock_info returns, for CQs that
// convert time stamps, is not known.
func TestFindCurrentDebian(t *testing.T) {
	const lib = "/usr/lib/x86_64-linux-gnu/libmlx5.so.1.24.44.0"
	if _, err := os.Stat(lib); err != nil {
		t.Skipf("made for Debian 12's ibverbs-providers 44.0: %v", err)
	}
	im := imageOf(t, lib)
	for _, tt := range []struct {
		name     string
		entry    uint64
		want     []uint64 // nil: it is refused
		emulated bool
	}{
		{"start_poll, with a lock", 0xe730, []uint64{0xea78, 0xec9f, 0xeec8, 0xefba, 0xf1d8, 0xf201}, true},
		{"next_poll", 0x16fc0, []uint64{0x17307, 0x175bb, 0x1777d, 0x17860, 0x179cc, 0x179fa}, true},
		{"next_poll, before CQE version 1", 0x17a20, []uint64{0x17c58}, false},
		{"start_poll, time stamps converted", 0xd100, nil, false},
	} {
		c, err := FindCurrent(im, tt.entry)
		if (err == nil) != (tt.want != nil) {
			t.Errorf("%s: %v", tt.name, err)
		}
		if err == nil && (!slices.Equal(c[0].Sites, tt.want) || c[0].Emulated != tt.emulated) {
			t.Errorf("%s: best candidate is %#x (%s), want %#x", tt.name, c[0].Sites, c[0].Why, tt.want)
		}
	}
}

func TestFindErrors(t *testing.T) {
	other := imageOfBytes([]byte{0xc3})
	other.Machine = elf.EM_PPC64
	tests := []struct {
		name string
		im   Image
	}{
		{"another machine", other},
		{"nothing mapped", imageOfBytes(nil)},
		{"no count: ret", imageOfBytes([]byte{0xc3})},
		{"runs off its code", imageOfBytes([]byte{0x90, 0x90})},
		{"calls itself", imageOfBytes([]byte{0xe8, 0xfb, 0xff, 0xff, 0xff, 0xc3})},
		// xor %eax,%eax; jmp into the next, whose end is an inc %eax: the count is raised there.
		{"an instruction in another", imageOfBytes([]byte{0x31, 0xc0, 0x74, 0x01, 0xb9, 0xff, 0xc0, 0x90, 0x90, 0xc3})},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if c, err := Find(tt.im, 0); err == nil {
				t.Errorf("found %+v", c)
			}
		})
	}
}

// FuzzFind: any bytes give candidates at instruction boundaries of the graph, no
// instruction of which reaches over a site, or an error.
func FuzzFind(f *testing.F) {
	f.Add([]byte{0x31, 0xc0, 0x83, 0xc0, 0x01, 0x39, 0xf0, 0x75, 0xf9, 0xc3}, false)
	f.Add([]byte{0xff, 0xe0}, false)
	f.Add([]byte{0x31, 0xc0, 0x74, 0x01, 0xb9, 0xff, 0xc0, 0x90, 0x90, 0xc3}, false)
	for _, words := range [][]uint32{
		{0x52800000, 0x34000061, 0x11000400, 0x14000001, 0xd65f03c0},
		{0x52800000, 0x7100003f, 0x1a801400, 0xd65f03c0},
		{0x35000068, 0x2a0803e0, 0x14000002, 0x52800040, 0xd65f03c0},
		{0x52800000, 0x7100087f, 0x54000088, 0xb8a35844, 0x8b040044, 0xd61f0080, 0xd65f03c0}, // a table
		{0x52800000, 0x74000041, 0x11000400, 0xd65f03c0},
	} {
		f.Add(bytesOf(words), true)
	}
	f.Fuzz(func(t *testing.T, b []byte, arm bool) {
		im := imageOfBytes(b)
		if arm {
			im.Machine = elf.EM_AARCH64
		}
		counts, _ := Find(im, 0)
		currents, _ := FindCurrent(im, 0)
		for _, x := range append(counts, currents...) {
			if len(x.Sites) == 0 {
				t.Fatal("a candidate without a site")
			}
			for _, s := range x.Sites {
				if s >= uint64(len(b)) || arm && s%4 != 0 {
					t.Fatalf("site %#x is no place in the code", s)
				}
				checkBoundary(t, im, s)
			}
		}
	})
}

// checkBoundary makes sure that no instruction that the analysis sees holds addr
// in its middle, in any function that the entry's wraps.
func checkBoundary(t *testing.T, im Image, addr uint64) {
	t.Helper()
	for entry, left := uint64(0), 4; left > 0; left-- {
		g, err := explore(im, entry)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range g.nodes {
			if n.addr < addr && addr < n.next() {
				t.Fatalf("site %#x lies in the instruction at %#x", addr, n.addr)
			}
		}
		if g.nodes[addr] != nil {
			return
		}
		entry, _ = g.onlyTarget(g.origins()[madeByCall])
	}
	t.Fatalf("site %#x is no instruction", addr)
}
