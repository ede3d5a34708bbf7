package pollpath

import (
	"debug/elf"
	"os"
	"slices"
	"testing"
)

// codeOf reads an ELF file's loaded bytes by virtual address.
func codeOf(t testing.TB, path string) (elf.Machine, Code) {
	t.Helper()
	f, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	type segment struct {
		addr uint64
		data []byte
	}
	var segments []segment
	for _, p := range f.Progs {
		if p.Type != elf.PT_LOAD {
			continue
		}
		data := make([]byte, p.Filesz)
		if _, err := p.ReadAt(data, 0); err != nil {
			t.Fatal(err)
		}
		segments = append(segments, segment{p.Vaddr, data})
	}
	return f.Machine, func(addr uint64, n int) []byte {
		for _, s := range segments {
			if addr >= s.addr && addr < s.addr+uint64(len(s.data)) {
				b := s.data[addr-s.addr:]
				return b[:min(n, len(b))]
			}
		}
		return nil
	}
}

func TestFindDebian(t *testing.T) {
	const dir = "/usr/lib/x86_64-linux-gnu/"
	tests := []struct {
		lib, name string
		entry     uint64 // of rdma-core 44.0-2
		size      uint64
		want      uint64
		stride    Location
		shift     int64 // of what it keeps of the queue's address
	}{
		{dir + "libmlx5.so.1.24.44.0", "mlx5_poll_cq_v1", 0x1e880, 0xee1, 0x1ebbd, r13, 0},
		{dir + "libibverbs/librxe-rdmav34.so", "rxe_poll_cq", 0x2ca0, 0xaa, 0x2d27, rbx, 0x138},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := os.Stat(tt.lib); err != nil {
				t.Skipf("made for Debian 12's ibverbs-providers 44.0: %v", err)
			}
			m, code := codeOf(t, tt.lib)
			c, err := Find(m, code, tt.entry, tt.size)
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
	m, code := codeOf(t, lib)
	for _, tt := range []struct {
		name        string
		entry, size uint64
		want        []uint64 // nil: it is refused
		emulated    bool
	}{
		{"start_poll, with a lock", 0xe730, 0xaf1, []uint64{0xea78, 0xec9f, 0xeec8, 0xefba, 0xf1d8, 0xf201}, true},
		{"next_poll", 0x16fc0, 0xa51, []uint64{0x17307, 0x175bb, 0x1777d, 0x17860, 0x179cc, 0x179fa}, true},
		{"next_poll, before CQE version 1", 0x17a20, 0xa41, []uint64{0x17c58}, false},
		{"start_poll, time stamps converted", 0xd100, 0xab6, nil, false},
	} {
		c, err := FindCurrent(m, code, tt.entry, tt.size)
		if (err == nil) != (tt.want != nil) {
			t.Errorf("%s: %v", tt.name, err)
		}
		if err == nil && (!slices.Equal(c[0].Sites, tt.want) || c[0].Emulated != tt.emulated) {
			t.Errorf("%s: best candidate is %#x (%s), want %#x", tt.name, c[0].Sites, c[0].Why, tt.want)
		}
	}
}

func TestFindErrors(t *testing.T) {
	code := func(b ...byte) Code {
		return func(addr uint64, n int) []byte {
			if addr >= uint64(len(b)) {
				return nil
			}
			return b[addr:min(addr+uint64(n), uint64(len(b)))]
		}
	}
	tests := []struct {
		name string
		m    elf.Machine
		code Code
	}{
		{"another machine", elf.EM_PPC64, code(0xc3)},
		{"nothing mapped", elf.EM_X86_64, code()},
		{"no count: ret", elf.EM_X86_64, code(0xc3)},
		{"runs off its code", elf.EM_X86_64, code(0x90, 0x90)},
		{"calls itself", elf.EM_X86_64, code(0xe8, 0xfb, 0xff, 0xff, 0xff, 0xc3)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if c, err := Find(tt.m, tt.code, 0, 0); err == nil {
				t.Errorf("found %+v", c)
			}
		})
	}
}

// FuzzFind: any bytes give candidates at instruction boundaries of the graph, or an error.
func FuzzFind(f *testing.F) {
	f.Add([]byte{0x31, 0xc0, 0x83, 0xc0, 0x01, 0x39, 0xf0, 0x75, 0xf9, 0xc3})
	f.Add([]byte{0xff, 0xe0})
	f.Fuzz(func(t *testing.T, b []byte) {
		code := func(addr uint64, n int) []byte {
			if addr >= uint64(len(b)) {
				return nil
			}
			return b[addr:min(addr+uint64(n), uint64(len(b)))]
		}
		counts, _ := Find(elf.EM_X86_64, code, 0, 0)
		currents, _ := FindCurrent(elf.EM_X86_64, code, 0, 0)
		for _, x := range append(counts, currents...) {
			if len(x.Sites) == 0 {
				t.Fatal("a candidate without a site")
			}
			for _, s := range x.Sites {
				if s >= uint64(len(b)) {
					t.Fatalf("site %#x lies outside the code", s)
				}
			}
		}
	})
}
