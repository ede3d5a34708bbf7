package tracer

import (
	"errors"
	"os"
	"os/exec"
	"testing"

	"github.com/rdmatrace/rdmatrace/bpf"
	"github.com/rdmatrace/rdmatrace/internal/testenv"
	"github.com/rdmatrace/rdmatrace/tracer/locate"
)

// TestPollSlotsAreReused: a process that ended leaves its slots to others, as new.
func TestPollSlotsAreReused(t *testing.T) {
	testenv.Root(t)
	cfg := Config{PIDs: []int{os.Getpid()}}
	if err := cfg.setDefaults(); err != nil {
		t.Fatal(err)
	}
	k, err := loadKernel(&cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer k.coll.Close()
	ended := exec.Command("true")
	if err := ended.Run(); err != nil {
		t.Fatal(err)
	}
	lib := &locate.Library{FileID: locate.FileID{Dev: 1, Ino: 1}}
	alive, dead := newAttacher(k, nil, os.Getpid(), locate.Host{}), newAttacher(k, nil, ended.Process.Pid, locate.Host{})
	slotOf := func(a *attacher, n int) *pollSlot {
		return a.pollSlot(lib, locate.Function{Library: lib, Verb: locate.PollCQ, Offset: uint64(n)})
	}
	const reused = 5
	for i := range pollSlots {
		a := alive
		if i == reused {
			a = dead
		}
		if s := slotOf(a, i); s.index != i {
			t.Fatalf("slot %d has index %d", i, s.index)
		}
	}
	old := dead.polls[0]
	var seen [pollSlots]uint32
	seen[reused], seen[reused+1] = 1, 1
	taken := [pollSlots]uint32{reused: 7, reused + 1: 9}
	err = errors.Join(k.setPollMode(old, bpf.RdmaPollModePOLL_SITE), k.coll.Variables[bpf.RdmaVarPollSeen].Set(seen),
		k.coll.Variables[bpf.RdmaVarPollTaken].Set(taken))
	if err != nil {
		t.Fatal(err)
	}
	s := slotOf(alive, pollSlots)
	if s.index != reused || s.state != pollIdle || k.polls.table[reused].Mode != uint32(bpf.RdmaPollModePOLL_RETURN) || old.index != noSlot {
		t.Errorf("slot %d, state %d, mode %d", s.index, s.state, k.polls.table[reused].Mode)
	}
	called, err := k.pollCount(bpf.RdmaVarPollSeen, s)
	counts, cerr := k.siteCounts(s)
	if err = errors.Join(err, cerr); err != nil || called != 0 || counts != (siteCounts{}) {
		t.Errorf("called %d, counts %+v, %v", called, counts, err)
	}
	if next := slotOf(alive, pollSlots+1); next.index != noSlot || next.state != pollKept {
		t.Errorf("a slot of a process that lives was given away: %d", next.index)
	}
	if next, err := k.siteCounts(alive.polls[reused]); err != nil || next.taken != 9 {
		t.Errorf("the neighbour's counts: %+v, %v", next, err)
	}
}
