package tracer

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/rdmatrace/rdmatrace/tracer/locate"
)

// ownCPUs keeps this process off the CPUs that the targets' threads are bound
// to, as far as that leaves any. Threads that may run anywhere bind nothing:
// the scheduler moves them away from us.
type ownCPUs struct {
	before unix.CPUSet
	moved  bool
}

// leastOwnCPUs is how many CPUs have to be left: a single one may be taken by
// something that never lets go, and a reader that starves loses records.
const leastOwnCPUs = 2

// avoid moves all our threads, if that leaves at least so many CPUs. New
// threads inherit it from those.
func (o *ownCPUs) avoid(pids []int, least int) error {
	if err := unix.SchedGetaffinity(0, &o.before); err != nil {
		return fmt.Errorf("read our CPUs: %w", err)
	}
	rest := o.before
	for _, pid := range pids {
		for _, tid := range threadsOf(pid) {
			var set unix.CPUSet
			// That it has ended meanwhile is no reason to stop.
			if err := unix.SchedGetaffinity(tid, &set); err != nil || set.Count() >= o.before.Count() {
				continue
			}
			for cpu := range len(set) * 64 {
				if set.IsSet(cpu) {
					rest.Clear(cpu)
				}
			}
		}
	}
	if rest.Count() < least || rest == o.before {
		return nil
	}
	o.moved = true
	return setOwnCPUs(&rest)
}

// restore undoes avoid.
func (o *ownCPUs) restore() error {
	if !o.moved {
		return nil
	}
	o.moved = false
	return setOwnCPUs(&o.before)
}

func setOwnCPUs(set *unix.CPUSet) error {
	for _, tid := range threadsOf(os.Getpid()) {
		if err := unix.SchedSetaffinity(tid, set); err != nil && err != unix.ESRCH {
			return fmt.Errorf("move thread %d to other CPUs: %w", tid, err)
		}
	}
	return nil
}

// threadsOf lists a process's threads; none if it is gone.
func threadsOf(pid int) []int {
	tids, err := locate.Threads(fmt.Sprintf("/proc/%d", pid))
	if err != nil {
		return nil
	}
	return tids
}
