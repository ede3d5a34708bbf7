package tracer

import (
	"cmp"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/rdmatrace/rdmatrace/event"
	"github.com/rdmatrace/rdmatrace/tracer/locate"
)

// TestPollMissed takes a site out once the sites alone report: that completions
// pass none is seen, where others pass one and where none does, and the returns
// report again.
func TestPollMissed(t *testing.T) {
	for _, c := range []struct {
		name string
		argv []string
		verb locate.Verb
		left bool // another site is hit as well
		why  string
	}{
		{"one of several", []string{"ibv_rc_pingpong", "-t", "-n", "100000000"}, locate.StartPoll, true, "completions did not pass the path"},
		{"all", []string{"ib_read_lat", "-n", "5000000"}, locate.PollCQ, false, "do not pass the path"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := startDevice(t, slowLatency...)
			_, client := d.pair(c.argv...)
			pid := client.cmd.Process.Pid
			tr, err := New(t.Context(), Config{PIDs: []int{pid}, Log: debugLog(t)})
			if err != nil {
				t.Fatal(err)
			}
			sites, after := 0, 0
			runUntil(t, tr, func(e *event.Event) bool {
				switch {
				case e.Kind != event.KindCompletion:
				case bySite(e):
					// The exit probe is out by then, or nearly so.
					if sites++; sites == 2000 {
						tr.targets.work.standingStill(func() { leaveOut(t, tr, c.verb, c.left) })
					}
				case sites >= 2000:
					after++
				}
				return after == 100
			})
			context := tr.Context()
			if err := tr.Close(); err != nil {
				t.Error(err)
			}
			notes := strings.Join(slices.Concat(context.Costs, context.Notes), "\n")
			if !strings.Contains(notes, "empty polls cost two traps each") || !strings.Contains(notes, c.why) {
				t.Errorf("it doesn't tell: %s", notes)
			}
			if n := (&recording{context: context}).counter(t, "completions beside a poll's path"); (n >= fewMissed) != c.left {
				t.Errorf("%d completions were counted as missed", n)
			}
			if gone(pid) {
				t.Error("the program ended")
			}
		})
	}
}

// standingStill does something while the follower does nothing.
func (f *follower) standingStill(do func()) {
	f.mu.Lock()
	f.stopped = true
	f.wake.Signal()
	f.mu.Unlock()
	f.idle.Wait()
	do()
	f.mu.Lock()
	f.stopped = false
	f.mu.Unlock()
	f.idle.Go(f.run)
}

// leaveOut takes that site of a poll function out that is hit most. left: others
// stay, of which one is hit.
func leaveOut(t *testing.T, tr *Tracer, verb locate.Verb, left bool) {
	t.Helper()
	for _, tg := range tr.targets.list() {
		for _, s := range tg.attach.polls {
			if s.fn.Verb != verb || s.links[s.site()] == nil {
				continue
			}
			i := slices.IndexFunc(tg.attach.data, func(b *batch) bool { return b.slot == s && b.program == s.site() })
			b := tg.attach.data[i]
			hit := slices.DeleteFunc(slices.Clone(b.sites), func(o site) bool { return tr.kernel.counted(o.number) == 0 })
			if len(hit) == 0 || left && len(hit) < 2 {
				t.Fatalf("of %d sites %d are hit", len(b.sites), len(hit))
			}
			if !left {
				if err := tr.links.drop(b.links...); err != nil {
					t.Fatal(err)
				}
				return
			}
			file, ex, err := openLibrary(b.library, tg.pid)
			if err != nil {
				t.Fatal(err)
			}
			defer file.Close()
			most := slices.MaxFunc(hit, func(x, y site) int {
				return cmp.Compare(tr.kernel.counted(x.number), tr.kernel.counted(y.number))
			})
			// For a moment they are all out: that isn't what is tested.
			err = errors.Join(tr.kernel.setRound(0), tr.links.drop(b.links...))
			links, lerr := tg.attach.attachSome(ex, b.only(func(o site) bool { return o.offset != most.offset }))
			tr.links.add(links...)
			if err := errors.Join(err, lerr, tr.kernel.setRound(tr.kernel.round)); err != nil {
				t.Fatal(err)
			}
			return
		}
	}
	t.Fatalf("no %v is observed at its sites", verb)
}
