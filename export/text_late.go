package export

import (
	"fmt"
	"path"
	"strings"

	"github.com/rdmatrace/rdmatrace/attribution"
)

const maxLate = 6

// fewSamples do not tell shares.
const fewSamples = 30

// late tells, by call stack, what the threads that reap did while completions waited
// for them: a cause says that a poll came late, not where the program was instead.
func late(p *page, r *attribution.Report) {
	l := &r.Late
	if !wasLate(r) {
		return
	}
	p.heading("WHILE COMPLETIONS WAITED", "what the threads that reap did instead")
	whole := float64(l.RanNS) + float64(l.SleptNS) + float64(l.WaitedNS) + float64(l.UnknownNS)
	t := newTable("lrrl", "call stack", "sum", "share", "")
	frames := newFrames(r)
	shown := 0
	for _, s := range l.Stacks {
		if shown == maxLate {
			break
		}
		if s.NS > 0 {
			shown++
			t.row(plain(lateName(frames, s), durationNS(s.NS), percent(float64(s.NS), whole), s.Doing.String())...)
		}
	}
	t.write(p)
	p.more(len(l.Stacks)-shown, "call stack")
	p.prose("  ", ansiDim, lateNote(l, whole))
}

// lateCauses are those of a late reap that are the program's own or the scheduler's.
var lateCauses = map[attribution.Cause]bool{
	attribution.LatePoll: true, attribution.OwnSleep: true, attribution.Handoff: true, attribution.Runqueue: true,
	attribution.Preempted: true, attribution.Yielded: true, attribution.Throttled: true,
}

// wasLate says that it took a hundredth of the latencies, and that some call stack is
// known: an ordinary poll is over a moment after done, too.
func wasLate(r *attribution.Report) bool {
	const worthMention = 100
	var late, whole float64
	for _, causes := range [][]attribution.CauseTotal{r.Causes, r.Receives.Causes} {
		for _, c := range causes {
			whole += float64(c.TotalNS)
			if lateCauses[c.Cause] {
				late += float64(c.TotalNS)
			}
		}
	}
	known := false
	for _, s := range r.Late.Stacks {
		known = known || s.Stack != 0
	}
	return known && late > 0 && late*worthMention >= whole
}

func lateName(f *frames, s attribution.LateStack) string {
	if s.Rest {
		return restOfStacks
	}
	return siteName(withoutWrappers(f.user(attribution.Sample{PID: s.PID, Stack: s.Stack})))
}

// withoutWrappers leaves the innermost one of the C library's functions at the end of
// a stack: a system call has several, and who made it is more telling.
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
// "libc-2.31.so" and "libpthread-2.31.so"; musl's is "libc.musl-x86_64.so.1" or the loader.
func isLibc(f frame) bool {
	name := path.Base(f.user.Module)
	for _, prefix := range []string{"libc.so.", "libc-", "libc.musl-", "libpthread", "ld-musl-"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

const restOfStacks = "(other)"

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
	return s
}
