package locate

import (
	"github.com/rdmatrace/rdmatrace/tracer/locate/object"
	"os"
	"testing"
)

func BenchmarkStatic(b *testing.B) {
	b.ReportAllocs()
	for i := 0; i < b.N; i++ {
		fv, _ := os.Open("/usr/lib/x86_64-linux-gnu/libibverbs.so.1")
		v, _ := object.New(fv)
		m, _ := learnSlots(v)
		f, _ := os.Open("/usr/lib/x86_64-linux-gnu/libmlx5.so.1")
		im, _ := object.New(f)
		opsTables(im, m)
		builders(im)
		f.Close()
		fv.Close()
	}
}
