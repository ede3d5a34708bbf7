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
		pool  string // a member of struct uprobe_task
		locks bool
	}{
		"6.14":                   {count, "ri_pool", false},
		"6.4, which numbers":     {number, "depth", true},
		"6.12, which counts":     {count, "depth", true},
		"without locks of areas": {nil, "ri_pool", true},
	} {
		// Its members are in a struct without a name, as in include/linux/mm_types.h.
		inner := &btf.Struct{Size: 8, Members: []btf.Member{{Name: "map_count", Type: number}}}
		if c.seq != nil {
			inner.Members = append(inner.Members, btf.Member{Name: "mm_lock_seq", Type: c.seq, Offset: 32})
		}
		task := &btf.Struct{Name: "uprobe_task", Size: 4, Members: []btf.Member{{Name: c.pool, Type: number}}}
		mm := &btf.Struct{Name: "mm_struct", Size: 8, Members: []btf.Member{{Type: inner}}}
		if got := locksMappings(typesOf(t, mm, task)); got != c.locks {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// typesOf are those of a kernel that has these.
func typesOf(t *testing.T, all ...btf.Type) *btf.Spec {
	t.Helper()
	b, err := btf.NewBuilder(all, nil)
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
	return types
}

func TestRingsSleep(t *testing.T) {
	number := &btf.Int{Name: "int", Size: 4}
	member := func(of, name string, typ btf.Type) *btf.Struct {
		return &btf.Struct{Name: of, Size: 4, Members: []btf.Member{{Name: name, Type: typ}}}
	}
	ring := func(lock string) *btf.Struct {
		return member("bpf_ringbuf", "spinlock", &btf.Typedef{Name: lock, Type: number})
	}
	usual, rt := member("task_struct", "prio", number), member("task_struct", "softirq_disable_cnt", number)
	for name, c := range map[string]struct {
		types  []btf.Type
		sleeps bool
	}{
		"PREEMPT_RT":            {[]btf.Type{rt, ring("spinlock_t")}, true},
		"PREEMPT_RT with a fix": {[]btf.Type{rt, ring("raw_spinlock_t")}, false},
		"any other":             {[]btf.Type{usual, ring("spinlock_t")}, false},
		"it does not say":       {[]btf.Type{rt}, false},
	} {
		if got := ringsSleep(typesOf(t, c.types...)); got != c.sleeps {
			t.Errorf("%s: %v", name, got)
		}
	}
}
