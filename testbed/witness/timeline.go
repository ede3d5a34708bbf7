package witness

import (
	"slices"
	"strings"
)

// switched: prev leaves, next comes. "R" and "R+" (preempted) are states in
// which prev goes on waiting for a CPU.
func (r *Recording) switched(cpu int, at uint64, args string) error {
	prev, err := number(args, " prev_pid=")
	if err != nil {
		return err
	}
	next, err := number(args, " next_pid=")
	if err != nil {
		return err
	}
	_, state, _ := strings.Cut(args, " prev_state=")
	if prev != 0 {
		r.thread(prev).leaves(cpu, at, strings.HasPrefix(state, "R"))
	}
	if next != 0 {
		r.thread(next).comes(cpu, at)
	}
	return nil
}

func (t *thread) leaves(cpu int, at uint64, runnable bool) {
	if t.running != 0 {
		t.runs = append(t.runs, Run{t.running, at, cpu})
	}
	t.running, t.runnable, t.woken, t.slept = 0, 0, false, 0
	if runnable {
		t.runnable = at
	} else {
		t.slept = at
	}
}

func (t *thread) comes(cpu int, at uint64) {
	if t.runnable != 0 {
		t.waits = append(t.waits, Wait{t.runnable, at, cpu, t.woken})
	}
	t.running, t.runnable, t.slept = at, 0, 0
	t.early = wakeup{}
}

// waking is where a wakeup begins; from then on the thread waits.
func (r *Recording) waking(t *thread, at uint64, s *stack) {
	up := wakeup{time: at}
	if n := len(s.open); n > 0 {
		up.handler = s.open[n-1].origin
	}
	if t.running != 0 {
		t.early = up
		return
	}
	t.wake(up)
}

func (t *thread) wake(up wakeup) {
	if t.slept == 0 {
		return
	}
	t.runnable, t.woken, t.slept = up.time, true, 0
	t.wakes = append(t.wakes, up)
}

// wokeUp is where it ends. One that began while the thread was still leaving
// its CPU has ended its sleep at once.
func (r *Recording) wokeUp(t *thread, at uint64) {
	if t.slept != 0 && t.early.time != 0 {
		up := t.early
		up.time = max(up.time, t.slept)
		t.wake(up)
	}
}

// Waits are a thread's in [begin, end), cut to it.
func (r *Recording) Waits(tid int, begin, end uint64) (out []Wait) {
	for _, w := range r.thread(tid).waits {
		w.Begin, w.End = max(w.Begin, begin), min(w.End, end)
		if w.Begin < w.End {
			out = append(out, w)
		}
	}
	return out
}

// Tops are the handlers that ran on top of a thread that was running in
// [begin, end), cut to it.
func (r *Recording) Tops(tid int, begin, end uint64) (out []Top) {
	for _, on := range r.Runs(tid, begin, end) {
		tops := r.cpus[on.CPU].stack(tid).tops
		i, _ := slices.BinarySearchFunc(tops, on.Begin, func(top Top, t uint64) int {
			if top.End <= t {
				return -1
			}
			return 1
		})
		for ; i < len(tops) && tops[i].Begin < on.End; i++ {
			out = append(out, Top{max(tops[i].Begin, on.Begin), min(tops[i].End, on.End), tops[i].Name})
		}
	}
	return out
}

// OnTop is for how long handlers ran on top of a thread that was running in
// [begin, end), ns; what is nested counts once.
func (r *Recording) OnTop(tid int, begin, end uint64) (ns uint64) {
	for _, top := range r.Tops(tid, begin, end) {
		ns += top.End - top.Begin
	}
	return ns
}

// Runs are when a thread had a CPU in [begin, end), cut to it.
func (r *Recording) Runs(tid int, begin, end uint64) (out []Run) {
	for _, on := range r.thread(tid).runs {
		on.Begin, on.End = max(on.Begin, begin), min(on.End, end)
		if on.Begin < on.End {
			out = append(out, on)
		}
	}
	return out
}

// Handled is for how long, in [begin, end), the handlers ran that woke the
// thread in it: from their entry to the wakeup, ns.
func (r *Recording) Handled(tid int, begin, end uint64) (ns uint64) {
	for _, up := range r.thread(tid).wakes {
		if up.handler != 0 && up.time > begin && up.time <= end {
			ns += up.time - max(up.handler, begin)
		}
	}
	return ns
}
