package tracer

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"slices"
	"time"

	"github.com/rdmatrace/rdmatrace/event"
	"github.com/rdmatrace/rdmatrace/tracer/unwind"
)

// threadStacks gives the stacks of threads that were switched out or sampled ids of
// what they are: the programs have an id for each instruction and stack pointer, of
// which a long trace meets any number. The reader waits for each to be unwound, as
// events that name it follow.
type threadStacks struct {
	keeper *stackKeeper
	ids    map[uint64]uint64 // of the programs', those in the Context; 0: it was left out
	kept   map[uint64]bool   // those in the Context
	left   uint64            // stacks left out

	work     chan *stackRecord
	results  chan *threadStack
	done     chan struct{}
	busy     bool // with one of which the reader has no result
	unwind   func(*stackRecord) *threadStack
	patience *time.Timer

	// looked is when a process's memory map was last read anew, and how long it is not
	// again after a look that brought nothing, ns. The worker's.
	looked map[uint32]mapLook
}

type mapLook struct{ at, wait uint64 }

const (
	// exactStacks differ by the instruction; further ones, by the function that it
	// is in: what is sampled a lot does not drive out what is not.
	exactStacks = 3072
	// threadStacksMost bounds the stacks in the Context.
	threadStacksMost = 6144
	// idsMost bounds what is known of the programs' ids, 3 MB.
	idsMost = 1 << 16
	// lookAgain is the least time between two looks at a memory map for an address that
	// is in no file, lookMost the most after looks that brought nothing: code that is
	// made at run time is in none.
	lookAgain = uint64(100 * time.Millisecond)
	lookMost  = uint64(10 * time.Second)
	// unwindMost is how long the reader waits for a stack.
	unwindMost = 100 * time.Millisecond
)

func newThreadStacks(keeper *stackKeeper) *threadStacks {
	ts := &threadStacks{
		keeper: keeper, ids: map[uint64]uint64{}, kept: map[uint64]bool{}, looked: map[uint32]mapLook{},
		work: make(chan *stackRecord, 1), results: make(chan *threadStack, 1), done: make(chan struct{}),
		patience: time.NewTimer(unwindMost),
	}
	ts.patience.Stop()
	ts.unwind = ts.unwound
	go ts.run()
	return ts
}

// stacksInWindow is how many stacks of threads a CPU may take in 0.13 s: all together
// some 2,000 a second, which cost their unwinder a tenth of a CPU at most.
func stacksInWindow(cpus int) uint32 { return uint32(min(max(256/max(cpus, 1), 2), 64)) }

// take has a stack unwound, for which files of the target are read. They may be on a
// file system that has stopped: the reader does not wait for that, and leaves stacks out
// until it goes on.
func (ts *threadStacks) take(rec *stackRecord) {
	if len(ts.ids) >= idsMost {
		clear(ts.ids)
		ts.keeper.sites.forgetThreads()
	}
	if ts.busy {
		select {
		case r := <-ts.results:
			ts.finish(r)
		default:
			ts.leave(rec.id)
			return
		}
	}
	own := *rec
	own.snapshot.Stack = slices.Clone(rec.snapshot.Stack) // the ring's is written over
	ts.work <- &own
	ts.busy = true
	ts.patience.Reset(unwindMost)
	defer ts.patience.Stop()
	select {
	case r := <-ts.results:
		ts.finish(r)
	case <-ts.patience.C:
		ts.leave(rec.id)
	}
}

// leave a stack out.
func (ts *threadStacks) leave(id uint64) {
	ts.ids[id] = 0
	ts.left++
}

// threadStack is what became of one.
type threadStack struct {
	rec *stackRecord
	unwound
	begin uint64 // of the function that it is in; 0: unknown
}

func (ts *threadStacks) finish(r *threadStack) {
	ts.busy = false
	ts.keeper.sites.addThread(r.rec, r.at)
	ts.ids[r.rec.id] = ts.keep(r.begin, r.raw(r.rec.site.Pid))
}

// run unwinds, beside the reader.
func (ts *threadStacks) run() {
	defer close(ts.done)
	for rec := range ts.work {
		ts.results <- ts.unwind(rec)
	}
}

func (ts *threadStacks) unwound(rec *stackRecord) *threadStack {
	pid := rec.site.Pid
	space := ts.keeper.store.Space(pid)
	u := ts.keeper.unwindIn(space, &rec.snapshot)
	look := ts.looked[pid]
	if (u.stop == unwind.StopUnmapped || space == nil) && rec.time-look.at >= max(look.wait, lookAgain) {
		look.at, look.wait = rec.time, min(2*max(look.wait, lookAgain), lookMost)
		if newer, err := ts.keeper.store.Snapshot(pid); err == nil {
			space = newer
			if u = ts.keeper.unwindIn(space, &rec.snapshot); u.stop != unwind.StopUnmapped {
				look.wait = 0
			}
		}
		ts.looked[pid] = look
	}
	r := &threadStack{rec: rec, unwound: u}
	if space != nil {
		r.begin, _ = ts.keeper.unwinder.Function(space, u.addrs[0])
	}
	return r
}

// stop ends the work. What hangs then is left alone.
func (ts *threadStacks) stop() {
	close(ts.work)
	if !ts.busy {
		<-ts.done
	}
}

// keep gives the id of a stack, 0 if there are too many.
func (ts *threadStacks) keep(begin uint64, raw rawStack) uint64 {
	id := stackID(raw)
	if !ts.kept[id] && len(ts.kept) >= exactStacks && begin != 0 {
		raw.addrs[0] = begin
		id = stackID(raw)
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
	here, known := ts.ids[id]
	if !known {
		ts.left++ // forgotten, or its record was dropped
	}
	return here
}

func (ts *threadStacks) note() string {
	if ts.left == 0 {
		return ""
	}
	return fmt.Sprintf("where threads were in their code is not known %d times: it differed too often, or could not be looked up in time", ts.left)
}
