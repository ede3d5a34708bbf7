package attribution

import (
	"fmt"

	"github.com/rdmatrace/rdmatrace/event"
)

// stolenCPUs counts the work requests that were held up, or worked on, on each CPU of a
// virtual machine. Its hypervisor tells how much of a CPU it took, not when, so what it
// took is in whatever the thread on it seems to have done.
type stolenCPUs struct {
	counted []int64 // by CPU
	latest  []int64 // by CPU: the number of the work request that was counted last
	all     int64
}

// stolenMost CPUs are told apart: more than any machine has.
const stolenMost = 1 << 13

// add a work request with its segments.
func (s *stolenCPUs) add(segments []segment) {
	s.all++
	for i := range segments {
		cpu := int(segments[i].cpu)
		switch segments[i].cause.Class() {
		case Software, Interrupt, Scheduling:
		default:
			continue
		}
		if cpu < 0 || cpu >= stolenMost || cpu < len(s.latest) && s.latest[cpu] == s.all {
			continue
		}
		for cpu >= len(s.counted) {
			s.counted, s.latest = append(s.counted, 0), append(s.latest, 0)
		}
		s.counted[cpu]++
		s.latest[cpu] = s.all
	}
}

// doubt about the work requests on CPUs of which a hundredth of the window or more was
// stolen, of each its largest share that may be in one of them; empty if there are none.
func (s *stolenCPUs) doubt(ctx *event.Context) string {
	window := ctx.Window.End - min(ctx.Window.Begin, ctx.Window.End)
	var concerned int64
	var most uint64
	for _, c := range ctx.Steal {
		if c.CPU < 0 || c.CPU >= len(s.counted) || s.counted[c.CPU] == 0 || c.StolenNS < window/100 {
			continue
		}
		// One on two such CPUs is counted twice: this is an upper bound.
		concerned += s.counted[c.CPU]
		most = max(most, c.StolenNS)
	}
	if concerned = min(concerned, s.all); concerned == 0 {
		return ""
	}
	return fmt.Sprintf("up to %d %% of the work requests ran or waited on CPUs that the hypervisor took for 1 %% of the window or more: "+
		"what it took, %.3g ms of one CPU at most, is in their software, interrupt or scheduling, and the longest of them may be that",
		(concerned*100+s.all-1)/s.all, float64(most)/1e6)
}
