package export

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/rdmatrace/rdmatrace/attribution"
)

const maxLate = 6

// fewSamples do not tell shares.
const fewSamples = 30

// late tells, by call stack, what the threads that reap did while completions that
// somebody needed waited for them: a cause says that a poll came late, not where the program was instead.
func late(p *page, r *attribution.Report) {
	l := &r.Late
	if !wasLate(r) {
		return
	}
	p.heading("WHILE COMPLETIONS WAITED", "what the threads that reap did instead")
	whole := float64(l.RanNS) + float64(l.SleptNS) + float64(l.WaitedNS) + float64(l.UnknownNS) + float64(l.NotLookedAtNS)
	t := newTable("lrrl", "call stack", "sum", "share", "")
	row := func(name string, ns float64, doing string) {
		t.row(plain(name, duration(ns), percent(ns, whole), doing)...)
	}
	all, rest, left := byFunctions(r.Late.Stacks, newFrames(r)), 0.0, whole
	several := false
	for _, s := range all {
		several = several || !s.Rest && s.PID != all[0].PID
	}
	for i, s := range all {
		left -= float64(s.NS)
		if i >= maxLate {
			rest += float64(s.NS)
			continue
		}
		row(ofProcess(several && !s.Rest, s.PID)+siteName(p, withoutWrappers(s.frames)), float64(s.NS), s.Doing.String())
	}
	if more := len(all) - maxLate; more > 0 {
		row(fmt.Sprintf("(%s, in --json)", counted(int64(more), "more call stack")), rest, "")
	}
	if left >= whole/1000 {
		row("(no call stack is known)", left, "")
	}
	t.write(p)
	p.prose("  ", ansiDim, lateNote(l, whole))
}

// wasLate says that it is a hundredth of the latencies, by completions that somebody
// needed, and that some call stack is known: an ordinary poll is over a moment after done, too.
func wasLate(r *attribution.Report) bool {
	const worthMention = 100
	whole := float64(r.Latency.TotalNS) + float64(r.Receives.Latency.TotalNS)
	known := false
	for _, s := range r.Late.Stacks {
		known = known || s.Stack != 0
	}
	delay := float64(r.Late.DelayNS)
	return known && delay > 0 && delay*worthMention >= whole
}

// lateSite is what was done in one chain of functions of a process.
type lateSite struct {
	attribution.LateStack
	frames []frame // root first
}

const restOfStacks = "(other)"

// byFunctions adds up stacks that differ by the instruction only, worst first; what is
// beyond a bound is the last.
func byFunctions(stacks []attribution.LateStack, f *frames) (all []*lateSite) {
	known := map[string]*lateSite{}
	for _, s := range stacks {
		if s.NS <= 0 {
			continue
		}
		site := &lateSite{s, []frame{{name: restOfStacks, level: levelMissing}}}
		if !s.Rest {
			site.frames = f.user(attribution.Sample{PID: s.PID, Stack: s.Stack})
		}
		key := fmt.Sprint(s.Doing, s.Rest, functionsOf(s.PID, site.frames))
		if same := known[key]; same != nil {
			same.NS, same.Samples = sum(same.NS, s.NS), sum(same.Samples, s.Samples)
			continue
		}
		known[key] = site
		all = append(all, site)
	}
	slices.SortStableFunc(all, func(a, b *lateSite) int {
		switch {
		case a.Rest == b.Rest:
			return cmp.Compare(b.NS, a.NS)
		case a.Rest:
			return 1
		}
		return -1
	})
	return all
}

// withoutWrappers leaves the innermost one of the C library's functions at the end of
// a stack: a system call, or the time of day, has several, and who asked is more telling.
func withoutWrappers(frames []frame) []frame {
	last := len(frames) - 1
	if last < 0 || !isLibc(frames[last]) {
		return frames
	}
	caller := last
	for caller > 0 && isLibc(frames[caller-1]) {
		caller--
	}
	if caller == 0 {
		return frames
	}
	return append(frames[:caller:caller], frames[last])
}

// isLibc tells the C library by its file: "libc.so.6", before glibc 2.34 also
// "libc-2.31.so" and "libpthread-2.31.so"; musl's is "libc.musl-x86_64.so.1" or the loader. The vdso
// is a part of it, in effect.
func isLibc(f frame) bool {
	name := path.Base(f.user.Module)
	for _, prefix := range []string{"libc.so.", "libc-", "libc.musl-", "libpthread", "ld-musl-", "[vdso]"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

func lateNote(l *attribution.Late, whole float64) string {
	s := fmt.Sprintf("Of %s, each nanosecond of a thread once, they ran %s, slept %s and waited for a CPU %s.", duration(whole),
		percent(float64(l.RanNS), whole), percent(float64(l.SleptNS), whole), percent(float64(l.WaitedNS), whole))
	switch {
	case l.RanNS <= 0:
	case l.Samples == 0:
		s += " No sample tells what ran."
	default:
		s += fmt.Sprintf(" What ran is told by %s", counted(l.Samples, "sample"))
		if l.Samples < fewSamples {
			s += ", too few for shares"
		}
		s += "."
		if l.UnsampledNS >= l.RanNS/20 {
			s += fmt.Sprintf(" None stands for %s of it.", durationNS(l.UnsampledNS))
		}
	}
	if l.UnknownNS > 0 {
		s += fmt.Sprintf(" Of %s nothing is known any more.", durationNS(l.UnknownNS))
	}
	if l.NotLookedAtNS > 0 {
		s += fmt.Sprintf(" Up to %s was not looked at: too many other completions were reaped meanwhile.", durationNS(l.NotLookedAtNS))
	}
	if l.UnprovenNS > 0 {
		s += fmt.Sprintf(" Not in this: for %s completions waited that nobody was seen to need.", durationNS(l.UnprovenNS))
	}
	return s
}
