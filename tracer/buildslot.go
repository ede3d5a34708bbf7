package tracer

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/rdmatrace/rdmatrace/bpf"
	"github.com/rdmatrace/rdmatrace/tracer/locate"
)

// buildSlots is as in bpf/wqe.bpf.h.
const buildSlots = 128

// buildState is how far it is known how to read what builders built.
type buildState uint8

const (
	buildIdle      buildState = iota // the send queue's layout is not known yet
	buildLearning                    // the words of a bracket are looked for
	buildComparing                   // what is read is compared with what the setters were told
	buildClosing                     // it is relied on: brackets that began before are waited for
	buildReading                     // the setters' probes are out
	buildKept                        // they stay, see why
)

// buildModes are what the programs do in each state.
var buildModes = [...]bpf.RdmaBuildMode{
	buildIdle: bpf.RdmaBuildModeBUILD_SETTERS, buildLearning: bpf.RdmaBuildModeBUILD_LEARN,
	buildComparing: bpf.RdmaBuildModeBUILD_COMPARE, buildClosing: bpf.RdmaBuildModeBUILD_READ,
	buildReading: bpf.RdmaBuildModeBUILD_READ, buildKept: bpf.RdmaBuildModeBUILD_SETTERS,
}

// buildSlot is a library with builders in one process.
type buildSlot struct {
	index   int // of the table, or noSlot
	library *locate.Library
	attach  *attacher

	state   buildState
	why     string // it is buildKept
	beginAt uint32 // which word is the index at which a bracket began
	delay   time.Duration
}

// cookie is the part of a probe's cookie that names the slot.
func (s *buildSlot) cookie() uint64 {
	if s == nil || s.index == noSlot {
		return 0
	}
	return uint64(s.index+1) << slotShift
}

// reads says that no setter needs a probe.
func (s *buildSlot) reads() bool {
	return s != nil && (s.state == buildClosing || s.state == buildReading)
}

func (s *buildSlot) mode() bpf.RdmaBuildMode { return buildModes[s.state] }

// setterPrograms are those of what is called between wr_start and wr_complete.
var setterPrograms = []string{bpf.RdmaProgBuildWr, bpf.RdmaProgBuildData, bpf.RdmaProgBuildUdAddr}

// isBuilder says that the verb is one of ibv_wr_*.
func isBuilder(v locate.Verb) bool {
	return isSetter(v) || v == locate.WRStart || v == locate.WRComplete || v == locate.WRAbort || sameWQE(v)
}

// sameWQE says that WQEs alone don't tell the verb from another: its probe stays.
func sameWQE(v locate.Verb) bool { return v == locate.WRBindMW || v == locate.WRLocalInv }

// isSetter says that the WQE tells all that the verb's probe does.
func isSetter(v locate.Verb) bool {
	return slices.Contains(setterPrograms, verbProbes[v].enter) && !sameWQE(v)
}

// buildTable is what the programs know of the slots.
type buildTable struct {
	mu    sync.Mutex
	slots []*buildSlot
	table [buildSlots]bpf.RdmaBuildSlot
}

var errBuildSlots = errors.New("too many libraries with builders are in use")

// buildSlot gives the slot of a builder's library, nil for other functions.
func (a *attacher) buildSlot(lib *locate.Library, fn locate.Function) *buildSlot {
	if lib.Role&locate.RoleMLX5 == 0 || !isBuilder(fn.Verb) {
		return nil
	}
	for _, s := range a.builds {
		if s.library.FileID == lib.FileID {
			return s
		}
	}
	t := &a.kernel.builds
	t.mu.Lock()
	defer t.mu.Unlock()
	s := &buildSlot{index: noSlot, library: lib, attach: a}
	a.builds = append(a.builds, s)
	if err := a.kernel.giveBuildSlot(s); err != nil {
		s.state, s.why = buildKept, err.Error()
	}
	return s
}

// giveBuildSlot gives s a slot that was never used, or that of a process that
// has ended. The table is locked.
func (k *kernel) giveBuildSlot(s *buildSlot) error {
	t := &k.builds
	if len(t.slots) < buildSlots {
		s.index = len(t.slots)
		t.slots = append(t.slots, s)
		return nil
	}
	i := slices.IndexFunc(t.slots, func(old *buildSlot) bool { return gone(old.attach.pid) })
	if i < 0 {
		return errBuildSlots
	}
	t.slots[i].index = noSlot
	t.slots[i], s.index = s, i
	t.table[i] = bpf.RdmaBuildSlot{Epoch: t.table[i].Epoch + 1}
	return k.tellBuilds(s.library)
}

func (k *kernel) tellBuilds(lib *locate.Library) error {
	if err := k.coll.Variables[bpf.RdmaVarBuildSlots].Set(k.builds.table); err != nil {
		return fmt.Errorf("tell the programs how to observe the builders of %s: %w", lib.Path, err)
	}
	return nil
}

// setBuild tells the programs what to do in a slot.
func (k *kernel) setBuild(s *buildSlot, mode bpf.RdmaBuildMode, beginAt uint32) error {
	if s.index == noSlot {
		return nil
	}
	t := &k.builds
	t.mu.Lock()
	defer t.mu.Unlock()
	e := &t.table[s.index]
	e.Mode, e.BeginAt = uint32(mode), beginAt
	return k.tellBuilds(s.library)
}

// buildCounts reads what the programs counted of a slot.
func (k *kernel) buildCounts(s *buildSlot) (bpf.RdmaBuildCounts, error) {
	if s.index == noSlot {
		return bpf.RdmaBuildCounts{}, nil
	}
	var all [buildSlots]bpf.RdmaBuildCounts
	if err := k.coll.Variables[bpf.RdmaVarBuildCounts].Get(&all); err != nil {
		return bpf.RdmaBuildCounts{}, fmt.Errorf("read %s: %w", bpf.RdmaVarBuildCounts, err)
	}
	k.builds.mu.Lock()
	defer k.builds.mu.Unlock()
	if c := all[s.index]; c.Epoch == k.builds.table[s.index].Epoch {
		return c, nil
	}
	return bpf.RdmaBuildCounts{}, nil // of a process before
}
