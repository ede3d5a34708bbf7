package tracer

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rdmatrace/rdmatrace/event"
)

// TestMoved has a target compete with a hog on each of two CPUs and moves it from one
// to the other and back: of a wait that a move cuts in two, it must be told who ran
// instead on either CPU.
func TestMoved(t *testing.T) {
	path := busy(t)
	cpus := someCPUs(t, 2)
	names := map[uint16]string{uint16(cpus[0]): "hog-one", uint16(cpus[1]): "hog-two"}
	for _, cpu := range cpus {
		hog(t, cpu, names[uint16(cpu)])
	}
	const most, wanted = 2000, 10
	var seen recording
	var last uint64 // move
	moves := 0
	rec := recordBusy(t, []string{"taskset", "-c", strconv.Itoa(cpus[0]), path, "spin", "1000000"}, func(e *event.Event, pid int) bool {
		seen.events = append(seen.events, *e)
		// It has come to its CPU since it was moved, and competes for it.
		if e.Kind != event.KindSwitch || e.Time <= last || e.Sched.NextTID != uint32(pid) || cstring(e.Sched.NextComm[:]) != "busy" {
			return false
		}
		moves++
		last = monotonic()
		var set unix.CPUSet
		set.Set(cpus[moves%2])
		if err := unix.SchedSetaffinity(pid, &set); err != nil {
			t.Error(err)
			return true
		}
		return moves == most || moves%20 == 0 && bothSeen(seen.cutWaits(names)) >= wanted
	})
	rec.lossless(t)
	rec.sane(t)
	cut := rec.cutWaits(names)
	t.Logf("%d moves; in %d of %d waits that one cut both hogs were seen", moves, bothSeen(cut), len(cut))
	if bothSeen(cut) < wanted {
		t.Errorf("both hogs were seen too rarely: %+v", cut)
	}
	for _, w := range cut {
		if w.astray {
			t.Errorf("moved from another CPU than where it waited: %+v", w)
		}
	}
}

// cutWait is a wait for one CPU and, after a move, for another one.
type cutWait struct {
	from, to    uint16
	moved       bool
	first, then bool // the hog of that CPU was seen to run meanwhile
	astray      bool // the move does not say where it waited
}

func bothSeen(cut []cutWait) (n int) {
	for _, w := range cut {
		if w.first && w.then {
			n++
		}
	}
	return n
}

// cutWaits are the waits of the only target that a move cut; they end at another one.
func (r *recording) cutWaits(names map[uint16]string) (cut []cutWait) {
	events := slices.Clone(r.events)
	slices.SortStableFunc(events, func(a, b event.Event) int { return cmp.Compare(a.Time, b.Time) })
	var w *cutWait // nil: it runs
	over := func() {
		if w != nil && w.moved {
			cut = append(cut, *w)
		}
		w = nil
	}
	for i := range events {
		e := &events[i]
		s := &e.Sched
		if e.Kind == event.KindMigration {
			if w != nil && w.moved {
				over()
			}
			if w != nil {
				w.to, w.moved, w.astray = e.CPU, true, s.FromCPU != w.from
			}
			continue
		}
		if e.Kind != event.KindSwitch {
			continue
		}
		if w != nil && (cstring(s.PrevComm[:]) == names[e.CPU] || cstring(s.NextComm[:]) == names[e.CPU]) {
			w.first = w.first || !w.moved && e.CPU == w.from
			w.then = w.then || w.moved && e.CPU == w.to
		}
		if e.Flags&event.SwitchNextTarget != 0 {
			over()
		}
		if e.Flags&event.SwitchPrevTarget != 0 && s.PrevState == 0 {
			w = &cutWait{from: e.CPU, first: cstring(s.NextComm[:]) == names[e.CPU]}
		}
	}
	return cut
}

// TestFoundAsleep attaches to a thread that sleeps: in what, must be told.
func TestFoundAsleep(t *testing.T) {
	d := startDevice(t)
	server, _ := d.server("ibv_rc_pingpong", "-e")
	pid := server.cmd.Process.Pid
	want := event.SystemCall{Number: unix.SYS_ACCEPT}
	waitFor(t, "the server to sleep", func() bool {
		raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/syscall", pid))
		if err != nil {
			t.Fatal(err)
		}
		var number int32
		n, err := fmt.Sscanf(string(raw), "%d 0x%x", &number, &want.Arg)
		return n == 2 && err == nil && number == want.Number
	})
	var found *event.Task
	recordUntil(t, Config{PIDs: []int{pid}}, func(e *event.Event) bool {
		if e.Kind == event.KindTask && e.TID == uint32(pid) && e.Object.Task.Event == event.TaskFound {
			found = e.Object.Task
		}
		return found != nil
	})
	switch {
	case found == nil:
		t.Error("not found")
	case found.State == 0 || found.Sleep == nil || *found.Sleep != want:
		t.Errorf("found %+v in %+v, want %+v", found, found.Sleep, want)
	}
}
