// Package witness says what a thread did in a stretch of time, from what the
// kernel's own tracer (tracefs) recorded of the scheduler and of interrupts. It
// is the independent truth that tests compare rdmatrace's reports with: another
// recorder on the same tracepoints, and another way to count.
//
// It shares no code with attribution, on purpose. All times are CLOCK_MONOTONIC
// nanoseconds, cut to microseconds by the kernel that prints them.
//
// perf records the same, but needs 10 to 25 us a record in an emulated guest, and
// twice as long at a handler's entry as at its end: more than the difference that
// is looked for.
package witness

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
)

// Recording is what was read.
type Recording struct {
	threads map[int]*thread
	cpus    map[int]*processor
}

// interval of time, [Begin, End) ns.
type interval struct{ begin, end uint64 }

// Wait is a stretch in which a thread was runnable and did not run.
type Wait struct {
	Begin, End uint64
	CPU        int  // where it ran then
	Woken      bool // from a sleep; else it was taken off its CPU
}

// wakeup ended a sleep.
type wakeup struct {
	time uint64
	// handler is the entry of the innermost handler that it was made in, or of the
	// first of those that raised each other and led to it; 0: in none.
	handler uint64
}

type thread struct {
	runs  []run
	waits []Wait
	wakes []wakeup
	// since when it has been runnable or running; 0: it is neither, or not known
	runnable, running uint64
	slept             uint64 // since when it sleeps, 0: it doesn't, or not known
	woken             bool
	early             wakeup // made since it came to its CPU
}

type run struct {
	interval
	cpu int
}

type processor struct {
	open   []open
	raised map[string]uint64 // pending softirqs: since when what raised them ran, 0: a task
	tops   []interval        // of the outermost handlers, in order
}

// open is a handler that has not returned.
type open struct {
	name          string
	begin, origin uint64 // origin: of the first of those that raised each other
}

// Read takes what a tracefs file "trace" holds.
func Read(in io.Reader) (*Recording, error) {
	r := &Recording{threads: map[int]*thread{}, cpus: map[int]*processor{}}
	s := bufio.NewScanner(in)
	for s.Scan() {
		if strings.HasPrefix(s.Text(), "#") || s.Text() == "" {
			continue
		}
		if err := r.line(s.Text()); err != nil {
			return nil, fmt.Errorf("%w: %q", err, s.Text())
		}
	}
	return r, s.Err()
}

// columns are a command, which may hold anything, its thread, a CPU, flags, a
// time and the tracepoint.
var columns = regexp.MustCompile(`^ *.{1,16}-\d+ +\[(\d+)\] \S+ +(\d+)\.(\d{6}): (\w+): (.*)$`)

// line takes one record.
func (r *Recording) line(text string) error {
	m := columns.FindStringSubmatch(text)
	if m == nil {
		return errors.New("not a record of tracefs")
	}
	cpu, err := strconv.Atoi(m[1])
	if err != nil {
		return err
	}
	at, err := strconv.ParseUint(m[2]+m[3], 10, 64) // seconds and their six digits are microseconds
	if err != nil {
		return err
	}
	return r.record(cpu, at*1000, m[4], m[5])
}

func (r *Recording) record(cpu int, at uint64, name, args string) error {
	p := r.cpus[cpu]
	if p == nil {
		p = &processor{raised: map[string]uint64{}}
		r.cpus[cpu] = p
	}
	switch {
	case name == "sched_switch":
		return r.switched(p, cpu, at, args)
	case name == "sched_waking":
		tid, err := number(args, " pid=")
		if err == nil {
			r.waking(r.thread(tid), at, p)
		}
		return err
	case name == "sched_wakeup":
		tid, err := number(args, " pid=")
		if err == nil {
			r.wokeUp(r.thread(tid), at)
		}
		return err
	case name == "softirq_raise":
		p.raise(handlerOf(name, "_raise", args))
	case strings.HasSuffix(name, "_entry"):
		p.enter(handlerOf(name, "_entry", args), at)
	case strings.HasSuffix(name, "_exit"):
		p.leave(handlerOf(name, "_exit", args), at)
	}
	return nil
}

// handlerOf names a handler so that its entry and its exit agree.
func handlerOf(name, suffix, args string) string {
	which, _, _ := strings.Cut(args, " ")
	return strings.TrimSuffix(name, suffix) + " " + which
}

// raise makes a softirq pending; the first time counts.
func (p *processor) raise(name string) {
	if _, pending := p.raised[name]; pending {
		return
	}
	p.raised[name] = 0
	if n := len(p.open); n > 0 {
		p.raised[name] = p.open[n-1].origin
	}
}

// enter opens a handler.
func (p *processor) enter(name string, at uint64) {
	origin := at
	if since := p.raised[name]; since != 0 {
		origin = since
	}
	delete(p.raised, name)
	p.open = append(p.open, open{name, at, origin})
}

// leave closes a handler, and with it what lies above it.
func (p *processor) leave(name string, at uint64) {
	for i := len(p.open) - 1; i >= 0; i-- {
		if p.open[i].name != name {
			continue
		}
		begin := p.open[i].begin
		p.open = p.open[:i]
		if i == 0 {
			p.tops = append(p.tops, interval{begin, at})
		}
		return
	}
}

func number(args, key string) (int, error) {
	_, after, ok := strings.Cut(" "+args, key)
	text, _, _ := strings.Cut(after, " ")
	n, err := strconv.Atoi(text)
	if !ok || err != nil {
		return 0, fmt.Errorf("no %s in it", strings.TrimSpace(key))
	}
	return n, nil
}

func (r *Recording) thread(tid int) *thread {
	t := r.threads[tid]
	if t == nil {
		t = &thread{}
		r.threads[tid] = t
	}
	return t
}
