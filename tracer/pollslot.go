package tracer

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/cilium/ebpf/link"

	"github.com/rdmatrace/rdmatrace/bpf"
	"github.com/rdmatrace/rdmatrace/tracer/locate"
	"github.com/rdmatrace/rdmatrace/tracer/pollpath"
)

// As in bpf/trial.bpf.h.
const (
	pollSlots = 128
	slotShift = 16
	trialHits = 32
	noSlot    = -1
	// SEEN_*
	seenCalled  = 1
	seenWritten = 2
)

// pollState is how far the path of a poll function that consumes completions
// is known.
type pollState uint8

const (
	pollIdle     pollState = iota // not looked at yet
	pollUnused                    // it was not called yet
	pollTrying                    // a candidate is tried
	pollAligning                  // the path is found, empty polls are observed a while longer
	pollLearned                   // the sites report: polls that began before are waited for
	pollClosing                   // the entry probe is out, polls that began before are waited for
	pollSites                     // the sites alone report completions
	pollLeaving                   // entry and return are back, polls that the sites report are waited for
	pollKept                      // entry and return stay, see why
)

// pollSlot is one poll function of one process.
type pollSlot struct {
	index   int // of the table, or noSlot
	library *locate.Library
	fn      locate.Function
	attach  *attacher
	links   map[string][]link.Link // by program

	state      pollState
	why        string // it is pollLeaving, or pollKept
	left       bool   // its sites alone reported, and did not do
	candidates []pollpath.Candidate
	tried      int // candidates before the current
	path       pollPath
	delay      time.Duration // of the next retry
	base       siteCounts    // what the slot of an earlier process had counted
	watch      siteWatch     // once it is pollSites
	written    bool          // the kernel writes the entries of its queues, and is observed at that

	// The reader adds to the trial while the follower looks.
	mu    sync.Mutex
	trial trial
}

// siteProgram is for the path on which a function consumes completions.
var siteProgram = map[locate.Verb]string{
	locate.PollCQ:    bpf.RdmaProgPollSite,
	locate.StartPoll: bpf.RdmaProgPollExSite,
	locate.NextPoll:  bpf.RdmaProgPollExSite,
}

// enter, exit and site are the slot's programs.
func (s *pollSlot) enter() string { return verbProbes[s.fn.Verb].enter }
func (s *pollSlot) exit() string  { return verbProbes[s.fn.Verb].exit }
func (s *pollSlot) site() string  { return siteProgram[s.fn.Verb] }

// current says that the function makes a completion the current one of an extended CQ.
func (s *pollSlot) current() bool { return s.fn.Verb != locate.PollCQ }

// cookie is the part of a probe's cookie that names the slot.
func (s *pollSlot) cookie() uint64 {
	if s == nil || s.index == noSlot {
		return 0
	}
	return uint64(s.index+1) << slotShift
}

// pollTable is what the programs know of the slots, and the paths learned so
// far, by build of the library.
type pollTable struct {
	mu      sync.Mutex
	slots   []*pollSlot
	table   [pollSlots]bpf.RdmaPollSlot
	learned map[pathKey]pollPath
}

type pathKey struct {
	build locate.Build
	entry uint64
}

func (s *pollSlot) pathKey() pathKey { return pathKey{s.library.Build, s.fn.Offset} }

// path gives what was learned of a slot's function, in this process or another.
func (t *pollTable) path(s *pollSlot) (p pollPath, known bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p, known = t.learned[s.pathKey()]
	return p, known
}

func (t *pollTable) learn(s *pollSlot, p pollPath) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.learned[s.pathKey()] = p
}

func (t *pollTable) unlearn(s *pollSlot) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.learned, s.pathKey())
}

// pollSlot gives the slot of a poll function, nil for other functions.
func (a *attacher) pollSlot(lib *locate.Library, fn locate.Function) *pollSlot {
	if siteProgram[fn.Verb] == "" || a.kernel.keepEmpty {
		return nil
	}
	for _, s := range a.polls {
		if s.library.FileID == lib.FileID && s.fn.Offset == fn.Offset {
			return s
		}
	}
	t := &a.kernel.polls
	t.mu.Lock()
	defer t.mu.Unlock()
	s := &pollSlot{index: len(t.slots), library: lib, fn: fn, attach: a, links: map[string][]link.Link{}}
	a.polls = append(a.polls, s)
	if len(t.slots) < pollSlots {
		t.slots = append(t.slots, s)
		return s
	}
	if err := a.kernel.reuseSlot(s); err != nil {
		s.index, s.state, s.why = noSlot, pollKept, err.Error()
	}
	return s
}

var errSlots = errors.New("too many poll functions are in use")

// reuseSlot gives s the slot of a process that has ended. Slots are given, and
// their steps are taken, by one goroutine: nothing is under way in it.
func (k *kernel) reuseSlot(s *pollSlot) error {
	t := &k.polls
	i := slices.IndexFunc(t.slots, func(old *pollSlot) bool { return gone(old.attach.pid) })
	if i < 0 {
		return errSlots
	}
	s.index = i
	// Its counters go on; that it was called is a mark which the next poll sets again.
	var err error
	if s.base, err = k.siteCounts(s); err != nil {
		return err
	}
	var seen [pollSlots]uint32
	if err := k.coll.Variables[bpf.RdmaVarPollSeen].Get(&seen); err != nil {
		return fmt.Errorf("read %s: %w", bpf.RdmaVarPollSeen, err)
	}
	seen[i] = 0
	if err := k.coll.Variables[bpf.RdmaVarPollSeen].Set(seen); err != nil {
		return fmt.Errorf("set %s: %w", bpf.RdmaVarPollSeen, err)
	}
	t.table[i] = bpf.RdmaPollSlot{}
	if err := k.coll.Variables[bpf.RdmaVarPollSlots].Set(t.table); err != nil {
		return fmt.Errorf("set %s: %w", bpf.RdmaVarPollSlots, err)
	}
	t.slots[i].index = noSlot
	t.slots[i] = s
	return nil
}

// slot gives one by its index, nil if there is none.
func (t *pollTable) slot(i uint32) *pollSlot {
	t.mu.Lock()
	defer t.mu.Unlock()
	if int(i) >= len(t.slots) {
		return nil
	}
	return t.slots[i]
}

// setPoll changes what the programs know of a slot.
func (k *kernel) setPoll(s *pollSlot, change func(*bpf.RdmaPollSlot)) error {
	t := &k.polls
	t.mu.Lock()
	defer t.mu.Unlock()
	change(&t.table[s.index])
	if err := k.coll.Variables[bpf.RdmaVarPollSlots].Set(t.table); err != nil {
		return fmt.Errorf("tell the programs how to observe %s+%#x: %w", s.library.Path, s.fn.Offset, err)
	}
	return nil
}

func (k *kernel) setPollMode(s *pollSlot, mode bpf.RdmaPollMode) error {
	return k.setPoll(s, func(e *bpf.RdmaPollSlot) { e.Mode = uint32(mode) })
}

// pollCount reads what the programs counted of a slot.
func (k *kernel) pollCount(name string, s *pollSlot) (uint32, error) {
	var all [pollSlots]uint32
	if err := k.coll.Variables[name].Get(&all); err != nil {
		return 0, fmt.Errorf("read %s: %w", name, err)
	}
	return all[s.index], nil
}

// pollsPending counts the threads inside a poll whose return has yet to report.
func (k *kernel) pollsPending(s *pollSlot) (uint64, error) {
	return k.pending(bpf.RdmaProgPollsFound, bpf.RdmaVarPendingSlot, bpf.RdmaVarPollsPending, s.index)
}

// pollsAtSites counts the threads inside a poll that began while the sites reported.
func (k *kernel) pollsAtSites(s *pollSlot) (uint64, error) {
	return k.pending(bpf.RdmaProgPollsFound, bpf.RdmaVarPendingSlot, bpf.RdmaVarPollsAtSites, s.index)
}

// forgetPolls lets no thread count as inside a poll, while entry and return are out.
func (k *kernel) forgetPolls(s *pollSlot) error {
	err := k.coll.Variables[bpf.RdmaVarPendingSlot].Set(uint32(s.index + 1))
	if err == nil {
		err = k.eachTask(bpf.RdmaProgPollsForgotten)
	}
	if err != nil {
		return fmt.Errorf("forget the polls under way: %w", err)
	}
	return nil
}

// pending lets a program count the threads inside a call of a slot.
func (k *kernel) pending(program, slot, counter string, index int) (n uint64, err error) {
	vars := k.coll.Variables
	if err = vars[slot].Set(uint32(index + 1)); err == nil {
		err = vars[counter].Set(uint64(0))
	}
	if err == nil {
		err = k.eachTask(program)
	}
	if err == nil {
		err = vars[counter].Get(&n)
	}
	if err != nil {
		return 0, fmt.Errorf("count the calls under way: %w", err)
	}
	return n, nil
}
