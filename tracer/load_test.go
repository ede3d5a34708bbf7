package tracer

import (
	"errors"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/rdmatrace/rdmatrace/bpf"
	"github.com/rdmatrace/rdmatrace/internal/testenv"
)

// TestRemoveTarget: of a process that has ended without destroying its queues nothing
// is left, of others all is.
func TestRemoveTarget(t *testing.T) {
	testenv.Root(t)
	k := attacherOfProgram(t, false).kernel
	queues := k.coll.Maps[bpf.RdmaMapCqs]
	const ended, lives = noThread, noThread + 1
	key := func(i int, pid uint32) bpf.RdmaObjectKey { return bpf.RdmaObjectKey{Object: uint64(i), Pid: pid} }
	for i := range 100 {
		for _, pid := range []uint32{ended, lives} {
			if err := queues.Put(key(i, pid), bpf.RdmaCqState{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := k.removeTarget(ended); err != nil {
		t.Fatal(err)
	}
	var s bpf.RdmaCqState
	for i := range 100 {
		if err := queues.Lookup(key(i, ended), &s); !errors.Is(err, ebpf.ErrKeyNotExist) {
			t.Errorf("queue %d is there still: %v", i, err)
		}
		if err := queues.Lookup(key(i, lives), &s); err != nil {
			t.Errorf("queue %d of another is gone: %v", i, err)
		}
	}
}

// TestMarkTargets: a child whose mark was written over by ours is marked again.
func TestMarkTargets(t *testing.T) {
	testenv.Root(t)
	k := attacherOfProgram(t, false).kernel
	const child, ours = noThread + 3, noThread + 70
	if err := k.coll.Maps[bpf.RdmaMapTargets].Put(uint32(child), bpf.RdmaTarget{}); err != nil {
		t.Fatal(err)
	}
	if err := k.addTarget(ours, false); err != nil {
		t.Fatal(err)
	}
	var words [targetBits / 64]uint64
	if err := k.coll.Variables[bpf.RdmaVarTargetBits].Get(&words); err != nil {
		t.Fatal(err)
	}
	for _, pid := range []uint32{child, ours} {
		if bit := pid % targetBits; words[bit/64]&(1<<(bit%64)) == 0 {
			t.Errorf("process %d is a target that the programs skip", pid)
		}
	}
}
