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
	runs  []Run
	waits []Wait
	wakes []wakeup
	// since when it has been runnable or running; 0: it is neither, or not known
	runnable, running uint64
	slept             uint64 // since when it sleeps, 0: it doesn't, or not known
	woken             bool
	early             wakeup // made since it came to its CPU
}

// Run is a stretch in which a thread had a CPU.
type Run struct {
	Begin, End uint64
	CPU        int
}

type processor struct {
	raised map[string]uint64 // pending softirqs: since when what raised them ran, 0: a task
	on     map[int]*stack    // by the thread that handlers run on top of
}

// stack of the handlers on top of a thread, 0: of the idle task. On PREEMPT_RT it
// may be switched out inside a softirq, and others' handlers run before that ends.
type stack struct {
	open []open
	tops []Top // the outermost ones that have returned, in order
}

// Top is a handler that ran on top of a thread, and those that interrupted it, in
// [Begin, End) ns. Name is that of its tracepoint, and its first argument.
type Top struct {
	Begin, End uint64
	Name       string
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
var columns = regexp.MustCompile(`^ *.{1,16}-(\d+) +\[(\d+)\] \S+ +(\d+)\.(\d{6}): (\w+): (.*)$`)

// line takes one record.
func (r *Recording) line(text string) error {
	m := columns.FindStringSubmatch(text)
	if m == nil {
		return errors.New("not a record of tracefs")
	}
	current, err := strconv.Atoi(m[1])
	if err != nil {
		return err
	}
	cpu, err := strconv.Atoi(m[2])
	if err != nil {
		return err
	}
	at, err := strconv.ParseUint(m[3]+m[4], 10, 64) // seconds and their six digits are microseconds
	if err != nil {
		return err
	}
	return r.record(current, cpu, at*1000, m[5], m[6])
}

func (r *Recording) record(current, cpu int, at uint64, name, args string) error {
	p := r.cpus[cpu]
	if p == nil {
		p = &processor{raised: map[string]uint64{}, on: map[int]*stack{}}
		r.cpus[cpu] = p
	}
	s := p.stack(current)
	switch {
	case name == "sched_switch":
		return r.switched(cpu, at, args)
	case name == "sched_waking":
		tid, err := number(args, " pid=")
		if err == nil {
			r.waking(r.thread(tid), at, s)
		}
		return err
	case name == "sched_wakeup":
		tid, err := number(args, " pid=")
		if err == nil {
			r.wokeUp(r.thread(tid), at)
		}
		return err
	case name == "softirq_raise":
		p.raise(s, handlerOf(name, "_raise", args))
	case strings.HasSuffix(name, "_entry"):
		p.enter(s, handlerOf(name, "_entry", args), at)
	case strings.HasSuffix(name, "_exit"):
		s.leave(handlerOf(name, "_exit", args), at)
	}
	return nil
}

// handlerOf names a handler so that its entry and its exit agree.
func handlerOf(name, suffix, args string) string {
	which, _, _ := strings.Cut(args, " ")
	return strings.TrimSuffix(name, suffix) + " " + which
}

func (p *processor) stack(current int) *stack {
	s := p.on[current]
	if s == nil {
		s = &stack{}
		p.on[current] = s
	}
	return s
}

// raise makes a softirq pending; the first time counts.
func (p *processor) raise(s *stack, name string) {
	if _, pending := p.raised[name]; pending {
		return
	}
	p.raised[name] = 0
	if n := len(s.open); n > 0 {
		p.raised[name] = s.open[n-1].origin
	}
}

// enter opens a handler.
func (p *processor) enter(s *stack, name string, at uint64) {
	origin := at
	if since := p.raised[name]; since != 0 {
		origin = since
	}
	delete(p.raised, name)
	s.open = append(s.open, open{name, at, origin})
}

// leave closes a handler, and with it what lies above it.
func (s *stack) leave(name string, at uint64) {
	for i := len(s.open) - 1; i >= 0; i-- {
		if s.open[i].name != name {
			continue
		}
		begin := s.open[i].begin
		s.open = s.open[:i]
		if i == 0 {
			s.tops = append(s.tops, Top{begin, at, name})
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
