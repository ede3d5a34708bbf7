package tracer

import (
	"io"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// What a hit costs beside its trap is what its program runs for. The kernel measures
// that, of all programs of the machine, while somebody asks it to, at some 20 ns a run:
// so it is asked at the begin of a trace, and then for a tenth of the time in which probes
// are in.
const (
	runsLook  = 100 * time.Millisecond // at least so long
	runsEvery = 900 * time.Millisecond
)

// runTimes is what the programs were seen to take.
type runTimes struct {
	asked io.Closer // nil: the kernel does not measure now
	since uint64    // when it was asked to, or last looked at
	off   bool      // it refuses
	begun map[string]runTime
	seen  map[string]runTime
	took  uint64 // ns that seen was measured for
}

// runTime of a program.
type runTime struct {
	ns   uint64
	runs uint64
}

// mean of a run, ns; 0: none was seen.
func (r runTime) mean() float64 {
	if r.runs == 0 {
		return 0
	}
	return float64(r.ns) / float64(r.runs)
}

// look begins and ends a measurement when it is time for that.
func (r *runTimes) look(k *kernel, now uint64) error {
	since := time.Duration(now - r.since)
	switch {
	case r.off:
		return nil
	case r.asked != nil && (k.paused || since >= runsLook):
		return r.end(k, now)
	case r.asked == nil && !k.paused && (r.seen == nil || since >= runsEvery):
		r.since = now
		r.begin(k)
	}
	return nil
}

func (r *runTimes) begin(k *kernel) {
	asked, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
	if err != nil {
		r.off = true // before 5.8, or not allowed: the price is that of the traps
		return
	}
	r.asked, r.begun = asked, k.runTimes()
}

// end adds what was measured.
func (r *runTimes) end(k *kernel, now uint64) error {
	if r.asked == nil {
		return nil
	}
	took := now - r.since
	r.since = now
	if !k.opened.Load() { // they returned at once for a part of it
		err := r.asked.Close()
		r.asked = nil
		return err
	}
	r.took += took
	if r.seen == nil {
		r.seen = map[string]runTime{}
	}
	for name, is := range k.runTimes() {
		was, sum := r.begun[name], r.seen[name]
		r.seen[name] = runTime{sum.ns + is.ns - was.ns, sum.runs + is.runs - was.runs}
	}
	err := r.asked.Close()
	r.asked = nil
	return err
}

// of is what a program takes of a hit, ns; 0: not known.
func (r *runTimes) of(program string) float64 { return r.seen[program].mean() }

// most is what the dearest of some programs takes of a hit, ns.
func (r *runTimes) most(programs []string) (ns float64) {
	for _, name := range programs {
		ns = max(ns, r.of(name))
	}
	return ns
}

// shareOf is what some programs took of one CPU; 0: not known.
func (r *runTimes) shareOf(programs []string) float64 {
	if r.took == 0 {
		return 0
	}
	var ns uint64
	for _, name := range programs {
		ns += r.seen[name].ns
	}
	return float64(ns) / float64(r.took)
}

// runTimes are the kernel's sums, by program.
func (k *kernel) runTimes() map[string]runTime {
	all := map[string]runTime{}
	for name, prog := range k.coll.Programs {
		if s, err := prog.Stats(); err == nil {
			all[name] = runTime{uint64(s.Runtime), s.RunCount}
		}
	}
	return all
}
