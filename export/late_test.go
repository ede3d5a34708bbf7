package export

import (
	"math"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rdmatrace/rdmatrace/attribution"
	"github.com/rdmatrace/rdmatrace/event"
)

// lateOf sums stacks up; so much of what ran has no sample.
func lateOf(unsampled int64, stacks ...attribution.LateStack) (l attribution.Late) {
	l = attribution.Late{UnsampledNS: unsampled, RanNS: unsampled, Stacks: stacks}
	for _, s := range stacks {
		l.Samples += s.Samples
		switch s.Doing {
		case attribution.Ran:
			l.RanNS += s.NS
		case attribution.Slept:
			l.SleptNS += s.NS
		case attribution.WaitedForCPU:
			l.WaitedNS += s.NS
		}
	}
	l.DelayNS = l.RanNS + l.SleptNS + l.WaitedNS
	return l
}

// pollingLate is of a thread that was preempted in its poll loop.
func pollingLate(r *attribution.Report) attribution.Late {
	const pid = 4242
	poll := addStack(r.Context, pid, 2, false, "mlx5_poll_cq_v1", "run_iter_lat_write", "main", "__libc_start_main")
	return lateOf(690_000, attribution.LateStack{PID: pid, Stack: poll, Doing: attribution.WaitedForCPU, NS: 4_530_000},
		attribution.LateStack{PID: pid, Stack: poll, Doing: attribution.Ran, NS: 15_000, Samples: 3})
}

// eventModeLate is of a progress thread that serves requests, writes a log and waits for a lock.
func eventModeLate(r *attribution.Report) attribution.Late {
	pid := r.Context.Targets[0].PID
	stack := func(id uint64, truncated bool, functions ...string) uint64 {
		return addStack(r.Context, pid, id, truncated, functions...)
	}
	serve := stack(20, false, "crc32c_hw", "inline verify_block", "serve_request", "progress_loop", "start_thread", "clone3")
	hash := stack(21, false, "XXH64_update", "serve_request", "progress_loop", "start_thread", "clone3")
	lock := stack(22, false, "__lll_lock_wait", "pthread_mutex_lock", "log_line", "serve_request", "progress_loop", "start_thread", "clone3")
	again := stack(25, false, "crc32c_hw", "inline verify_block", "serve_request", "progress_loop", "start_thread", "clone3") // another instruction
	write := stack(23, false, "write", "log_flush", "log_line", "serve_request", "progress_loop", "start_thread", "clone3")
	event := stack(24, true, "ibv_get_cq_event", "progress_loop")
	l := lateOf(31_000_000,
		attribution.LateStack{PID: pid, Stack: event, Doing: attribution.WaitedForCPU, NS: 480_000_000},
		attribution.LateStack{PID: pid, Stack: serve, Doing: attribution.Ran, NS: 290_000_000, Samples: 58},
		attribution.LateStack{PID: pid, Stack: lock, Doing: attribution.Slept, NS: 95_000_000},
		attribution.LateStack{PID: pid, Stack: hash, Doing: attribution.Ran, NS: 45_000_000, Samples: 9},
		attribution.LateStack{PID: pid, Stack: write, Doing: attribution.Slept, NS: 20_000_000},
		attribution.LateStack{PID: pid, Stack: again, Doing: attribution.Ran, NS: 20_000_000, Samples: 4},
		attribution.LateStack{PID: pid, Stack: 0, Doing: attribution.WaitedForCPU, NS: 9_000_000},
		attribution.LateStack{PID: pid, Stack: write, Doing: attribution.WaitedForCPU, NS: 1_000_000},
		attribution.LateStack{Doing: attribution.Slept, NS: 500_000, Rest: true})
	l.UnknownNS, l.NotLookedAtNS, l.UnprovenNS = 2_000_000, 40_000_000, 700_000_000
	return l
}

func hugeLate() attribution.Late {
	return attribution.Late{RanNS: math.MaxInt64, SleptNS: math.MaxInt64, WaitedNS: -1, UnknownNS: math.MaxInt64, UnsampledNS: math.MinInt64, NotLookedAtNS: math.MaxInt64, DelayNS: math.MaxInt64, UnprovenNS: math.MaxInt64, Samples: math.MaxInt64,
		Stacks: []attribution.LateStack{{PID: math.MaxUint32, Stack: math.MaxUint64, Doing: attribution.Ran, NS: math.MaxInt64, Samples: math.MaxInt64},
			{Doing: attribution.Slept, NS: -5}, {Doing: attribution.WaitedForCPU, NS: math.MaxInt64, Rest: true}}}
}

// Of the functions of the C library the innermost one is named, and then its caller.
func TestLateNames(t *testing.T) {
	in := func(module string, names ...string) (list []frame) {
		for _, n := range names {
			list = append(list, frame{name: n, user: event.Frame{Module: module}})
		}
		return list
	}
	for _, c := range []struct {
		frames []frame // innermost first
		want   string
	}{
		{slices.Concat(in("/lib/libc.so.6", "clock_nanosleep", "nanosleep", "usleep"), in("/bin/job", "wait_a_bit", "main"), in("/lib/libc.so.6", "__libc_start_main")),
			"clock_nanosleep < wait_a_bit < main < __libc_start_main"},
		{slices.Concat(in("/lib/libpthread-2.31.so", "__lll_lock_wait", "pthread_mutex_lock"), in("/bin/job", "main")), "__lll_lock_wait < main"},
		{in("/lib/libc.so.6", "poll", "start_thread"), "poll < start_thread"},
		{in("/bin/job", "compute", "main"), "compute < main"},
		{in("", noStack), noStack},
		{nil, ""},
	} {
		slices.Reverse(c.frames)
		if got := siteName(&page{}, withoutWrappers(c.frames)); got != c.want {
			t.Errorf("%q, not %q", got, c.want)
		}
	}
}

// Nothing is said of threads that were not late, were late for completions that nobody needed, or of whose stacks nothing is known.
func TestLateIsSilent(t *testing.T) {
	const heading = "WHILE COMPLETIONS WAITED"
	late := eventModeJob()
	if !strings.Contains(render(t, writers["txt"], late), heading) {
		t.Fatal("no section where there is something to say")
	}
	for i := range late.Late.Stacks {
		late.Late.Stacks[i].Stack = 0
	}
	prompt := pollingJob()
	prompt.Late.DelayNS = prompt.Latency.TotalNS / 101
	lazy := eventModeJob()
	lazy.Late = attribution.Late{UnprovenNS: lazy.Latency.TotalNS}
	for _, r := range []*attribution.Report{late, prompt, lazy, trainingJob()} {
		if text := render(t, writers["txt"], r); strings.Contains(text, heading) {
			t.Errorf("not silent:\n%s", text)
		}
	}
}

func TestPprofLate(t *testing.T) {
	for _, c := range []struct {
		args  []string
		lines []string // regular expressions
	}{
		{[]string{"--top", "--sample_index", "late"}, []string{`Type: late`, `late: ran\b`, `late: slept\b`, `late: waited for a CPU`,
			`310ms 31\.\d+% +verify_block \(inline\)`, `\[not sampled\]`}},
		{[]string{"--traces", "--sample_index", "late"}, []string{`95ms +late: slept\n\s+__lll_lock_wait\n\s+pthread_mutex_lock\n\s+log_line\n`, `late: slept\n\s+\(other\)`}},
	} {
		got := runPprof(t, "eventmode", c.args...)
		for _, want := range c.lines {
			if !regexp.MustCompile(want).MatchString(got) {
				t.Errorf("%v: no %q in\n%s", c.args, want, got)
			}
		}
	}
	if latency := runPprof(t, "eventmode", "--top", "--sample_index", "latency"); strings.Contains(latency, "late: ") {
		t.Errorf("in the latencies:\n%s", latency)
	}
}
