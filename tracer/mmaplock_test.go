package tracer

import (
	"bytes"
	"testing"

	"github.com/cilium/ebpf/btf"
)

func TestLocksMappings(t *testing.T) {
	number := &btf.Int{Name: "int", Size: 4}
	count := &btf.Typedef{Name: "seqcount_t", Type: &btf.Struct{Name: "seqcount", Size: 4, Members: []btf.Member{{Name: "sequence", Type: number}}}}
	for name, c := range map[string]struct {
		seq   btf.Type
		locks bool
	}{
		"6.14, which counts":     {count, false},
		"6.4, which numbers":     {number, true},
		"without locks of areas": {nil, true},
	} {
		// Its members are in a struct without a name, as in include/linux/mm_types.h.
		inner := &btf.Struct{Size: 8, Members: []btf.Member{{Name: "map_count", Type: number}}}
		if c.seq != nil {
			inner.Members = append(inner.Members, btf.Member{Name: "mm_lock_seq", Type: c.seq, Offset: 32})
		}
		mm := &btf.Struct{Name: "mm_struct", Size: 8, Members: []btf.Member{{Type: inner}}}
		b, err := btf.NewBuilder([]btf.Type{mm}, nil)
		if err != nil {
			t.Fatal(err)
		}
		raw, err := b.Marshal(nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		types, err := btf.LoadSpecFromReader(bytes.NewReader(raw))
		if err != nil {
			t.Fatal(err)
		}
		if got := locksMappings(types); got != c.locks {
			t.Errorf("%s: %v", name, got)
		}
	}
}
