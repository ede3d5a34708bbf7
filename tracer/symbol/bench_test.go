package symbol_test

import (
	"os/exec"
	"testing"

	"github.com/rdmatrace/rdmatrace/internal/unwindtest"
)

// One stack of a C program through libc, with nothing read yet and with all.
func BenchmarkFrames(b *testing.B) {
	path := unwindtest.Compile(b, "chain.c", chainSource, "-O2")
	p := unwindtest.Start(b, exec.Command(path))
	be := open(b, p.PID)
	addrs, _ := be.unw.Unwind(be.space, unwindtest.Freeze(b, p.PID), nil)
	b.Run("cold", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			s := newSymbolizer(b, be)
			s.Frames(p.PID, addrs, nil)
			s.Close()
		}
	})
	b.Run("warm", func(b *testing.B) {
		b.ReportAllocs()
		frames := be.sym.Frames(p.PID, addrs, nil)
		for b.Loop() {
			frames = be.sym.Frames(p.PID, addrs, frames[:0])
		}
	})
	b.Run("snapshot", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := be.store.Snapshot(p.PID); err != nil {
				b.Fatal(err)
			}
		}
	})
}
