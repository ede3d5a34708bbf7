package tracer

import (
	"bytes"
	"fmt"
	"os"
)

// unseen estimates what threads run that come and go in a pause, where nobody sees
// them post or poll: that part of what the processes run then, which threads that
// ended had of what they ran in the window before. Without it a job of such threads
// would not seem to run in pauses at all.
type unseen struct {
	paused     bool
	job, ended uint64  // what the processes, and threads that ended, had run when this window or pause began, ns
	part       float64 // that threads which ended had in the latest window
	past       float64 // estimated of the pauses before, ns
}

// turn ends a window and begins a pause, or the reverse.
func (u *unseen) turn(job, ended uint64) {
	switch ran := float64(job - min(job, u.job)); {
	case u.paused:
		u.past += u.part * ran
	case ran > 0:
		u.part = min(float64(ended-u.ended)/ran, 1)
	}
	u.paused = !u.paused
	u.job, u.ended = job, ended
}

// ran is the estimate so far.
func (u *unseen) ran(job uint64) float64 {
	if !u.paused {
		return u.past
	}
	return u.past + u.part*float64(job-min(job, u.job))
}

// jobRan is what all threads of the targets ran so far, those too that have ended;
// of processes that have ended, nothing.
func (f *follower) jobRan() (sum uint64) {
	for _, tg := range f.targets.list() {
		if ran, err := processRan(tg.pid); err == nil {
			sum += ran
		}
	}
	return sum
}

// tickNS is the unit of times in /proc/PID/stat, whatever the kernel's own is:
// USER_HZ is 100.
const tickNS = 10_000_000

// processRan is how long a process has run, ns: its utime and stime.
func processRan(pid int) (ns uint64, err error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	// Its name, the second field, may hold anything; after it, utime is the twelfth.
	fields := bytes.Fields(raw[bytes.LastIndexByte(raw, ')')+1:])
	if len(fields) < 13 {
		return 0, fmt.Errorf("read how long process %d ran: %q", pid, raw)
	}
	for _, field := range fields[11:13] {
		var ticks uint64
		if _, err := fmt.Sscan(string(field), &ticks); err != nil {
			return 0, fmt.Errorf("read how long process %d ran: %w", pid, err)
		}
		ns += ticks * tickNS
	}
	return ns, nil
}
