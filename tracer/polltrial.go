package tracer

import (
	"errors"
	"fmt"
	"slices"

	"github.com/rdmatrace/rdmatrace/bpf"
	"github.com/rdmatrace/rdmatrace/tracer/pollpath"
)

// pollPath is where a poll function consumes completions, and where its
// addresses are found there.
type pollPath struct {
	candidate   pollpath.Candidate
	learned     pollpath.Learned
	completions int // that it was learned from
}

// trial collects the polls observed while a candidate is tried.
type trial struct {
	open   map[trialKey]*trialCall
	calls  []trialCall // complete ones
	seen   int         // completions in calls
	asked  int         // completions when it was last looked at
	active bool
}

// trialKey tells polls apart: a thread makes one at a time.
type trialKey struct {
	begin uint64
	tid   uint32
}

// trialCall is a poll as its records tell it.
type trialCall struct {
	pollpath.Call
	sp       uint64
	hits     int // by the poll's own record
	got      int // hit records that came
	returned bool
	consumed trialIndex
	mask     uint32 // of the index: the bits that count
	at       []trialIndex
	// What an extended CQ's current completion was, at the return and at the hits.
	is   current
	seen []current
}

// current is what is public of an extended CQ's current completion.
type current struct {
	wrID   uint64
	status uint32
}

// trialIndex is the CQ's consumer index somewhere.
type trialIndex struct {
	value uint32
	known bool
}

const (
	// trialLook: after so many more completions the trial is looked at again.
	trialLook = 16
	// trialPolls are recorded between two looks at most; trialMost in all.
	trialPolls = 256
	trialMost  = 4096
	// trialOpen bounds the polls of which records are missing.
	trialOpen = 4096
)

func (t *trial) begin() { *t = trial{open: map[trialKey]*trialCall{}, active: true} }

// call gives the poll that a record belongs to; nil when it is of no use any more.
func (t *trial) call(key trialKey) *trialCall {
	if !t.active {
		return nil
	}
	c := t.open[key]
	if c == nil && len(t.open) < trialOpen {
		c = &trialCall{}
		t.open[key] = c
	}
	return c
}

func (t *trial) hit(r *bpf.RdmaTrialHitRecord) (look bool) {
	key := trialKey{r.Begin, r.H.Tid}
	c := t.call(key)
	if c == nil || r.Index >= trialHits {
		return false
	}
	for int(r.Index) >= len(c.Hits) {
		c.Hits = append(c.Hits, [pollpath.Snapshot]uint64{})
		c.at = append(c.at, trialIndex{})
		c.seen = append(c.seen, current{})
	}
	c.Hits[r.Index] = snapshotOf(r)
	c.at[r.Index] = trialIndex{r.Consumed, r.ConsumedKnown != 0}
	c.seen[r.Index] = current{r.WrId, r.Status}
	c.got++
	return t.complete(key, c)
}

// snapshotOf puts a hit's words into the order of a pollpath.Snapshot.
func snapshotOf(r *bpf.RdmaTrialHitRecord) (words [pollpath.Snapshot]uint64) {
	n := copy(words[:], r.Registers[:])
	n += copy(words[n:], r.Stack[:])
	for i := range r.Frame {
		words[n+i] = r.Frame[len(r.Frame)-1-i]
	}
	return words
}

func (t *trial) poll(r *bpf.RdmaTrialPollRecord) (look bool) {
	key := trialKey{r.Begin, r.H.Tid}
	c := t.call(key)
	if c == nil {
		return false
	}
	c.CQ, c.WC, c.Want, c.Got, c.sp = r.Cq, r.Wc, r.Want, r.Got, r.Sp
	c.hits, c.returned = int(r.Hits), true
	c.is = current{r.WrId, r.Status}
	c.consumed, c.mask = trialIndex{r.Consumed, r.ConsumedKnown != 0}, r.ConsumedMask
	return t.complete(key, c)
}

// complete takes c to the calls if nothing of it is missing, and says whether
// there is reason to look at them.
func (t *trial) complete(key trialKey, c *trialCall) bool {
	if !c.returned || c.got < min(c.hits, trialHits) {
		return false
	}
	delete(t.open, key)
	if c.hits > trialHits && c.hits == int(c.Got) {
		return false // its later hits were not recorded
	}
	t.calls = append(t.calls, *c)
	t.seen += max(int(c.Got), c.hits)
	if t.seen < t.asked+trialLook {
		return false
	}
	t.asked = t.seen
	return true
}

// errIndex: the consumer's index isn't what the entries can be found by.
var errIndex = errors.New("the CQ's consumer index is not past exactly one more entry at each hit")

// errCurrent: a hit comes too early.
var errCurrent = errors.New("the CQ's current completion is not there yet at each hit")

// learn says where the completion is found at the candidate's sites; is it the
// current one of an extended CQ, no more than the CQ.
func (t *trial) learn(c pollpath.Candidate, isCurrent bool) (pollPath, error) {
	calls := make([]pollpath.Call, len(t.calls))
	for i := range t.calls {
		calls[i] = t.calls[i].Call
	}
	learn := pollpath.Learn
	if isCurrent {
		learn = pollpath.LearnCurrent
	}
	learned, err := learn(calls, c)
	if err != nil {
		return pollPath{}, err
	}
	for i := range t.calls {
		if c := &t.calls[i]; slices.ContainsFunc(c.seen, func(at current) bool { return at != c.is }) {
			return pollPath{}, errCurrent
		}
	}
	if err := t.checkIndex(); err != nil {
		return pollPath{}, err
	}
	return pollPath{candidate: c, learned: learned, completions: t.seen}, nil
}

// checkIndex makes sure that at each hit the consumer's index, as memory shows
// it, is past just the completion of that hit: a compiler may keep it in a
// register. Another thread's poll can move it before this one returns, so a
// few may disagree.
func (t *trial) checkIndex() error {
	right, wrong := 0, 0
	for i := range t.calls {
		c := &t.calls[i]
		for h, at := range c.at {
			if at.known && c.consumed.known && (c.consumed.value-at.value)&c.mask == uint32(len(c.at)-1-h)&c.mask {
				right++
			} else {
				wrong++
			}
		}
	}
	if right < 3*wrong || right < trialLook {
		return fmt.Errorf("%w (%d of %d)", errIndex, right, right+wrong)
	}
	return nil
}

// noteTrial takes a record of a trial; false: it is another kind of record.
func (f *follower) noteTrial(kind bpf.RdmaRecordKind, raw []byte) bool {
	var slot, pid uint32
	var hit bpf.RdmaTrialHitRecord
	var poll bpf.RdmaTrialPollRecord
	switch kind {
	case bpf.RdmaRecordKindRECORD_TRIAL_HIT:
		if !load(raw, &hit) {
			return false
		}
		slot, pid = hit.Slot, hit.H.Pid
	case bpf.RdmaRecordKindRECORD_TRIAL_POLL:
		if !load(raw, &poll) {
			return false
		}
		slot, pid = poll.Slot, poll.H.Pid
	default:
		return false
	}
	s := f.kernel.polls.slot(slot)
	if s == nil || s.attach.pid != int(pid) {
		return true // of one that has ended, whose slot is another's
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	look := false
	if kind == bpf.RdmaRecordKindRECORD_TRIAL_HIT {
		look = s.trial.hit(&hit)
	} else {
		look = s.trial.poll(&poll)
	}
	if look {
		f.add(change{what: pollLook, pid: uint32(s.attach.pid), slot: s})
	}
	return true
}
