package unwind

import "testing"

// Whatever a file and a stack hold, unwinding ends, without a panic and with
// addresses of executable memory.
func FuzzUnwind(f *testing.F) {
	for _, name := range []string{"amd64", "arm64"} {
		a, err := archOf(name)
		if err != nil {
			f.Fatal(err)
		}
		frame, header := frames(a, x86Functions)
		for _, fn := range x86Functions {
			stack := stackOf(addr(fn.begin+8), stackAt+24, addr(0x1210), 0, stackAt+48, addr(0x1110), addr(0x1610), 0, 1, addr(0x1310))
			f.Add(frame, header, stack, uint16(fn.begin), uint64(stackAt+8), name == "arm64")
			f.Add(frame, []byte(nil), stack, uint16(fn.begin+1), uint64(0), name == "arm64")
		}
	}
	f.Fuzz(func(t *testing.T, frame, header, stack []byte, ip uint16, fp uint64, arm bool) {
		name := "amd64"
		if arm {
			name = "arm64"
		}
		u, err := New(name)
		if err != nil {
			t.Fatal(err)
		}
		if len(header) == 0 {
			header = nil
		}
		file := madeFile(t, frame, header)
		space := spaceOf(file)
		s := &Snapshot{IP: mappedAt + uint64(ip)%codeSize, SP: stackAt, FP: fp, Stack: stack}
		s.Regs = [6]uint64{fp, fp, stackAt, s.IP, 1, 0}
		addrs, stop := u.Unwind(space, s, nil)
		if len(addrs) == 0 || addrs[0] != s.IP || len(addrs) > MaxFrames || stop >= Stops {
			t.Fatalf("%d addresses, stop %d", len(addrs), stop)
		}
		for _, a := range addrs {
			if _, ok := space.Find(a); !ok {
				t.Fatalf("address %#x is nowhere", a)
			}
		}
		vaddr := uint64(codeAt) + uint64(ip)%codeSize
		if begin, size, ok := NewTables().Extent(file, vaddr); ok && vaddr-begin >= size {
			t.Fatalf("%#x is not in %#x+%#x", vaddr, begin, size)
		}
	})
}

// One full snapshot: 32 frames of a real library's depth, warm.
func BenchmarkUnwind(b *testing.B) {
	u, err := New("amd64")
	if err != nil {
		b.Fatal(err)
	}
	frame, header := frames(u.arch, x86Functions)
	space := spaceOf(madeFile(b, frame, header))
	words := make([]uint64, 0, 128)
	for range 31 {
		words = append(words, 0, 0, 0xb, addr(0x1210))
	}
	s := &Snapshot{IP: addr(0x1210), SP: stackAt, Stack: stackOf(append(words, 0, 0, 0xb, addr(0x1310))...)}
	addrs := make([]uint64, 0, MaxFrames)
	b.ReportAllocs()
	for b.Loop() {
		var stop Stop
		if addrs, stop = u.Unwind(space, s, addrs[:0]); stop != StopOutermost || len(addrs) != 33 {
			b.Fatal(stop, len(addrs))
		}
	}
}
