package tracer

import (
	"cmp"
	"fmt"
	"math/bits"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rdmatrace/rdmatrace/bpf"
	"github.com/rdmatrace/rdmatrace/event"
	"github.com/rdmatrace/rdmatrace/testbed/softmlx5/truth"
)

func TestBracketBegin(t *testing.T) {
	word := func(at ...int) (others uint32) {
		for _, i := range at {
			others |= 1 << i
		}
		return ^others
	}
	for _, c := range []struct {
		name               string
		notBegin, notCount uint32
		want               uint32
		ok                 bool
	}{
		{"as it is", word(20), word(18), 20, true},
		{"other words are as many", word(20), word(3, 18, 25), 20, true},
		{"two places", word(20, 24), word(18, 22), 0, false},
		{"nowhere", word(), word(18), 0, false},
		{"no count before it", word(20), word(19), 0, false},
		{"no room for a count before it", word(1), word(0, 31), 0, false},
		{"nothing was struck out", 0, 0, 0, false},
	} {
		at, err := bracketBegin(c.notBegin, c.notCount)
		if at != c.want || (err == nil) != c.ok {
			t.Errorf("%s: %d, %v", c.name, at, err)
		}
	}
	if bits.OnesCount32(word(20)) != buildWords-1 {
		t.Errorf("%d words, not %d", bits.OnesCount32(word(20))+1, buildWords)
	}
}

// buildersArgv is the program that uses all of the builders.
func buildersArgv(t *testing.T, options ...string) []string {
	t.Helper()
	run(t, nil, "make", "-s", "-C", "../testbed/programs")
	path, err := filepath.Abs("../testbed/programs/build/oracle-builders")
	if err != nil {
		t.Fatal(err)
	}
	return append([]string{path}, options...)
}

// bracket is what was recorded of a wr_start .. wr_complete.
type bracket struct {
	wrs []event.Event
	end event.Event
}

// keepBuilt keeps what the builders made, and nothing else: with all that the scheduler
// tells, a recording grows by copies of some 100 MB, for which the rings are not drained.
func (r *recording) keepBuilt(e *event.Event) {
	if e.Flags&event.WRBuilder != 0 && (e.Kind == event.KindWR || e.Kind == event.KindPostEnd) {
		r.events = append(r.events, *e)
	}
}

// brackets are those that wr_complete posted, in their order, by QP.
func (r *recording) brackets(t *testing.T) map[uint32][]bracket {
	t.Helper()
	type key struct{ tid, call uint32 }
	wrs := map[key][]event.Event{}
	var ends []event.Event
	for _, e := range r.events {
		switch {
		case e.Flags&event.WRBuilder == 0:
		case e.Kind == event.KindWR:
			k := key{e.TID, e.Verb.Call}
			wrs[k] = append(wrs[k], e)
		case e.Kind == event.KindPostEnd && e.Verb.Result == 0:
			ends = append(ends, e)
		}
	}
	out := map[uint32][]bracket{}
	for _, e := range ends {
		one := wrs[key{e.TID, e.Verb.Call}]
		if len(one) != int(e.Verb.Count) {
			t.Fatalf("%d WRs of a call that counts %d: %+v, %+v; %v", len(one), e.Verb.Count, e, one, r.nonzero())
		}
		if len(one) > 0 {
			slices.SortFunc(one, func(a, b event.Event) int { return cmp.Compare(a.Verb.Index, b.Verb.Index) })
			out[one[0].Verb.QPNum] = append(out[one[0].Verb.QPNum], bracket{one, e})
		}
	}
	for _, all := range out {
		slices.SortFunc(all, func(a, b bracket) int { return cmp.Compare(a.wrs[0].Time, b.wrs[0].Time) })
	}
	return out
}

// builtTraps are the hits of a bracket whose WQEs are read: wr_start, entry and return of wr_complete.
const builtTraps = 3

// rightWRs holds what was recorded against the log, of queues that were traced
// from their first post on (or, from > 0, from that WR on), and counts the WRs
// that were read from their WQEs. Those marked unreadable are passed over, with
// all up to the next that can be found.
func rightWRs(t *testing.T, got map[uint32][]bracket, rows []truth.Row, pid int, whole bool) (read, blind int) {
	t.Helper()
	for q, rows := range truth.Queues(rows) {
		if q.PID != pid || q.Kind != truth.Send {
			continue
		}
		next := 0
		for _, b := range got[q.QPN] {
			for _, e := range b.wrs {
				if e.Flags&event.WRUnreadable != 0 {
					blind++
					continue
				}
				i := int(uint32(e.Verb.WRID))
				if i >= len(rows) || whole && i != next {
					t.Fatalf("QP %d: WR %d of %d comes where %d was due", q.QPN, i, len(rows), next)
				}
				next = i + 1
				if e.Flags&event.WRWQEValid == 0 && !whole {
					t.Fatalf("QP %d, WR %d: its WQE is not known", q.QPN, i)
				}
				if e.Flags&event.WRWQEValid == 0 {
					e.Verb.WQE = uint16(rows[i].WQE) // nothing had proven yet where that is
				}
				if told, want := wrText(&e), rowText(&rows[i], q.QPN, i); told != want {
					t.Fatalf("QP %d, WR %d, traps %d: %s, the device has %s", q.QPN, i, b.end.Verb.Traps, told, want)
				}
				if b.end.Verb.Traps == builtTraps {
					read++
				}
			}
		}
		if whole && next != len(rows) {
			t.Errorf("QP %d: %d WRs, the device executed %d", q.QPN, next, len(rows))
		}
	}
	return read, blind
}

func wrText(e *event.Event) string {
	v := &e.Verb
	return fmt.Sprintf("%s of %d bytes, id %#x, WQE %d, flags %d", wrOpcodes[v.Opcode], v.Bytes, v.WRID, v.WQE,
		v.SendFlags&(sendSignaled|sendSolicited))
}

// As in <infiniband/verbs.h>: enum ibv_send_flags.
const (
	sendSignaled  = 2
	sendSolicited = 4
)

func rowText(r *truth.Row, qpn uint32, i int) string {
	flags := 0
	if r.Flags.Has(truth.Signaled) {
		flags |= sendSignaled
	}
	if r.Flags.Has(truth.Solicited) {
		flags |= sendSolicited
	}
	return fmt.Sprintf("%s of %d bytes, id %#x, WQE %d, flags %d", r.Opcode, r.Bytes, uint64(qpn)<<32|uint64(i), r.WQE, flags)
}

// TestBuilders traces a program that uses the builders in every way. At first
// setters tell what was built, then the WQEs do; all of it is the log's, on both
// sides of the change.
func TestBuilders(t *testing.T) {
	d := startDevice(t)
	pid, rec := recordCommand(t, onDevice(buildersArgv(t, "count=1500", "pause=500000")...))
	rows := d.stop()
	rec.sawAllVerbs(t)
	brackets := rec.brackets(t)
	read, blind := rightWRs(t, brackets, rows, pid, true)
	datagrams(t, brackets)
	t.Logf("%d WRs were read from their WQEs", read)
	if read < 1000 || blind != 0 {
		t.Errorf("%d WRs were read from their WQEs, %d are unreadable", read, blind)
	}
}

// datagrams checks where those of the datagram QP go to: to itself.
func datagrams(t *testing.T, brackets map[uint32][]bracket) {
	t.Helper()
	own := map[bool]int{}
	for qpn, all := range brackets {
		for _, b := range all {
			for _, e := range b.wrs {
				if to := e.Verb.RemoteQPN; to != 0 && to != qpn {
					t.Fatalf("a datagram of QP %d goes to %d", qpn, to)
				}
				own[e.Verb.RemoteQPN == qpn]++
			}
		}
	}
	if own[true] < 500 || own[false] < 500 {
		t.Errorf("%d WRs to a QP of their own, %d to that of the connection", own[true], own[false])
	}
}

// TestBuildersElsewhere traces with offsets that are not the library's. The
// proof fails, so that the setters stay, and tell all.
func TestBuildersElsewhere(t *testing.T) {
	for _, c := range []struct {
		name string
		move func(*bpf.RdmaMlx5Layout)
	}{
		{"ids", func(l *bpf.RdmaMlx5Layout) { l.QpWrid += 8 }},
		{"queue", func(l *bpf.RdmaMlx5Layout) { l.QpSqStart += 8 }},
		{"size of the queue", func(l *bpf.RdmaMlx5Layout) { l.QpSqBlocks += 4 }},
		{"words", func(l *bpf.RdmaMlx5Layout) { l.QpSqStart += 4 * buildWords }},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := startDevice(t)
			tr, p := traceBuilders(t)
			table := &tr.kernel.layouts.table
			for i := range table {
				c.move(&table[i])
			}
			if err := tr.kernel.coll.Variables[bpf.RdmaVarMlx5Layouts].Set(table); err != nil {
				t.Fatal(err)
			}
			s, rec := buildSlotOf(tr, p), &recording{}
			tried, after := false, 0
			runUntil(t, tr, func(e *event.Event) bool {
				rec.keepBuilt(e)
				switch {
				case e.Kind != event.KindPostEnd:
				case !tried:
					counts, err := tr.kernel.buildCounts(s)
					if err != nil {
						t.Error(err)
					}
					tried = counts.Learned > 0
				case told(tr, s, bpf.RdmaBuildModeBUILD_SETTERS):
					after++
				}
				return after == 200
			})
			rec.context = tr.Context()
			p.kill()
			if read, blind := rightWRs(t, rec.brackets(t), d.stop(), p.cmd.Process.Pid, false); read != 0 || blind != 0 {
				t.Errorf("%d WRs were read from WQEs, %d are unreadable", read, blind)
			}
			if notes := strings.Join(rec.context.Costs, "\n"); !strings.Contains(notes, "each call of a builder costs a trap") {
				t.Errorf("nothing says that the setters stay: %s", notes)
			}
		})
	}
}

// TestBuildersMoved spoils what was proven. The first post that does not fit is
// marked, none is told wrong, and the setters are put in again.
func TestBuildersMoved(t *testing.T) {
	d := startDevice(t)
	tr, p := traceBuilders(t)
	s, rec := buildSlotOf(tr, p), &recording{}
	spoilt, after := false, 0
	runUntil(t, tr, func(e *event.Event) bool {
		rec.keepBuilt(e)
		switch {
		case e.Kind != event.KindPostEnd:
		case !spoilt && told(tr, s, bpf.RdmaBuildModeBUILD_READ) && e.Verb.Traps == builtTraps && e.Verb.Count > 0:
			spoilt = true
			if err := tr.kernel.setBuild(s, bpf.RdmaBuildModeBUILD_READ, toldOf(tr, s).BeginAt-4); err != nil {
				t.Error(err)
			}
		case spoilt && told(tr, s, bpf.RdmaBuildModeBUILD_SETTERS) && e.Verb.Traps > builtTraps:
			after++
		}
		return after == 200
	})
	rec.context = tr.Context()
	p.kill()
	brackets := rec.brackets(t)
	read, blind := rightWRs(t, brackets, d.stop(), p.cmd.Process.Pid, false)
	if read == 0 || blind == 0 {
		t.Errorf("%d WRs were read from WQEs, %d are unreadable", read, blind)
	}
	if n := rec.counter(t, counterNames[bpf.RdmaCounterCOUNT_WQE_UNFIT]); n == 0 {
		t.Error("no post was counted as one whose WQEs did not fit")
	}
	for qpn, all := range brackets {
		last := all[len(all)-1]
		if last.end.Verb.Traps <= builtTraps || last.wrs[0].Flags&event.WRUnreadable != 0 {
			t.Errorf("the last post of QP %d: %d traps, flags %#x", qpn, last.end.Verb.Traps, last.wrs[0].Flags)
		}
	}
	t.Logf("%d WRs were read from WQEs, %d are unreadable", read, blind)
}

// traceBuilders attaches to the program once its queues prove their layout.
func traceBuilders(t *testing.T) (tr *Tracer, p *process) {
	t.Helper()
	p = start(t, onDevice(buildersArgv(t, "pause=500000")...)...)
	pid := p.cmd.Process.Pid
	waitFor(t, "the program to map libmlx5 and talk", func() bool { return len(connected(t, pid)) > 0 })
	waitFor(t, "its queues to prove their layout", func() bool {
		var err error
		if tr, err = New(t.Context(), Config{PIDs: []int{pid}, Log: debugLog(t)}); err != nil {
			t.Fatal(err)
		}
		if tr.targets.get(uint32(pid)).layoutsKnown {
			return true
		}
		if err := tr.Close(); err != nil {
			t.Fatal(err)
		}
		return false
	})
	t.Cleanup(func() {
		if err := tr.Close(); err != nil {
			t.Error(err)
		}
	})
	return tr, p
}

// buildSlotOf is the program's, of which the follower owns all but the number.
func buildSlotOf(tr *Tracer, p *process) *buildSlot {
	return tr.targets.get(uint32(p.cmd.Process.Pid)).attach.builds[0]
}

// toldOf is what the programs were told last of a slot.
func toldOf(tr *Tracer, s *buildSlot) bpf.RdmaBuildSlot {
	tr.kernel.builds.mu.Lock()
	defer tr.kernel.builds.mu.Unlock()
	return tr.kernel.builds.table[s.index]
}

func told(tr *Tracer, s *buildSlot, mode bpf.RdmaBuildMode) bool {
	return bpf.RdmaBuildMode(toldOf(tr, s).Mode) == mode
}
