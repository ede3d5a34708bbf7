package tracer

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"time"

	"github.com/rdmatrace/rdmatrace/event"
	"github.com/rdmatrace/rdmatrace/tracer/image"
	"github.com/rdmatrace/rdmatrace/tracer/unwind"
)

// threadStacks gives the stacks of threads that were switched out or sampled ids of
// what they are: the programs have an id for each instruction and stack pointer, of
// which a long trace meets any number. They are unwound while they are read, as
// events that name them follow.
type threadStacks struct {
	keeper *stackKeeper
	ids    map[uint64]uint64 // of the programs', those in the Context; 0: it was left out
	kept   map[uint64]bool   // those in the Context
	looked map[uint32]uint64 // by process: when its memory map was last read anew, ns
	left   uint64            // stacks left out
}

const (
	// exactStacks differ by the instruction; further ones, by the function that it
	// is in: what is sampled a lot does not drive out what is not.
	exactStacks = 3072
	// threadStacksMost bounds the stacks in the Context.
	threadStacksMost = 6144
	// idsMost bounds what is known of the programs' ids, 3 MB.
	idsMost = 1 << 16
	// lookAgain is the least time between two looks at a memory map for an address that
	// is in no file: code that is made at run time is in none.
	lookAgain = uint64(100 * time.Millisecond)
)

func newThreadStacks(keeper *stackKeeper) *threadStacks {
	return &threadStacks{keeper: keeper, ids: map[uint64]uint64{}, kept: map[uint64]bool{}, looked: map[uint32]uint64{}}
}

// take unwinds a stack. It may read files of the target.
func (ts *threadStacks) take(rec *stackRecord) {
	if len(ts.ids) >= idsMost {
		clear(ts.ids)
		ts.keeper.sites.forgetThreads()
	}
	pid := rec.site.Pid
	space := ts.keeper.store.Space(pid)
	u := ts.keeper.unwindIn(space, &rec.snapshot)
	if (u.stop == unwind.StopUnmapped || space == nil) && rec.time-ts.looked[pid] >= lookAgain {
		ts.looked[pid] = rec.time
		if newer, err := ts.keeper.store.Snapshot(pid); err == nil {
			space = newer
			u = ts.keeper.unwindIn(space, &rec.snapshot)
		}
	}
	ts.keeper.sites.addThread(rec, u.at)
	ts.ids[rec.id] = ts.keep(space, u.raw(pid))
}

// keep gives the id of a stack, 0 if there are too many.
func (ts *threadStacks) keep(space *image.Space, raw rawStack) uint64 {
	id := stackID(raw)
	if !ts.kept[id] && len(ts.kept) >= exactStacks && space != nil {
		if begin, ok := ts.keeper.unwinder.Function(space, raw.addrs[0]); ok {
			raw.addrs[0] = begin
			id = stackID(raw)
		}
	}
	switch {
	case ts.kept[id]:
	case len(ts.kept) >= threadStacksMost:
		ts.left++
		return 0
	default:
		ts.kept[id] = true
		ts.keeper.keep(id, raw)
	}
	return id
}

// stackID is the same for equal stacks of a process, and never 0. Those of posting
// sites, which the programs give, are as random.
func stackID(raw rawStack) uint64 {
	h := fnv.New64a()
	var b [8]byte
	put := func(v uint64) {
		binary.LittleEndian.PutUint64(b[:], v)
		_, _ = h.Write(b[:]) // never fails
	}
	put(uint64(raw.pid))
	for _, a := range raw.addrs {
		put(a)
	}
	return max(h.Sum64(), 1)
}

// resolve puts the id of the Context's stack in place of the programs'.
func (ts *threadStacks) resolve(e *event.Event) {
	switch e.Kind {
	case event.KindSwitch:
		e.Sched.PrevStack = ts.of(e.Sched.PrevStack)
	case event.KindSample:
		e.Sample.Stack = ts.of(e.Sample.Stack)
	}
}

func (ts *threadStacks) of(id uint64) uint64 {
	if id == 0 {
		return 0
	}
	return ts.ids[id]
}

func (ts *threadStacks) note() string {
	if ts.left == 0 {
		return ""
	}
	return fmt.Sprintf("where threads were in their code differed too often: %d stacks of them were left out", ts.left)
}
