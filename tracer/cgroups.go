package tracer

import (
	"github.com/rdmatrace/rdmatrace/event"
	"github.com/rdmatrace/rdmatrace/tracer/facts"
)

// cgroupWatch names the cgroups of the tasks that are switched to and from.
type cgroupWatch struct {
	facts *facts.Cgroups
	own   map[uint32]uint64 // of targets, by process
}

func newCgroupWatch() *cgroupWatch {
	return &cgroupWatch{facts.OpenCgroups(), map[uint32]uint64{}}
}

func (w *cgroupWatch) watch(e *event.Event) {
	if e.Kind != event.KindSwitch {
		return
	}
	s := &e.Sched
	w.facts.See(s.NextCgroup)
	w.facts.See(s.PrevCgroup)
	if e.Flags&event.SwitchNextTarget != 0 {
		w.ofTarget(s.NextPID, s.NextCgroup)
	}
	if e.Flags&event.SwitchPrevTarget != 0 {
		w.ofTarget(s.PrevPID, s.PrevCgroup)
	}
}

func (w *cgroupWatch) ofTarget(pid uint32, id uint64) {
	if id != 0 && w.own[pid] != id {
		w.own[pid] = id
	}
}

// describe adds what is known to the context, whose targets are there.
func (w *cgroupWatch) describe(c *event.Context) {
	var note string
	if c.Cgroups, note = w.facts.Finish(); note != "" {
		c.Notes = append(c.Notes, note)
	}
	for i := range c.Targets {
		c.Targets[i].CgroupID = w.own[c.Targets[i].PID]
	}
}

func (w *cgroupWatch) close() error { return w.facts.Close() }
