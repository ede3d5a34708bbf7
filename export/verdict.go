package export

import (
	"cmp"
	"fmt"
	"path"
	"slices"

	"github.com/rdmatrace/rdmatrace/attribution"
)

// told is how a cause reads in a sentence; %s is who was behind it.
var told = map[attribution.Cause]struct{ alone, by string }{
	attribution.Submit:      {"inside the posting call", ""},
	attribution.LatePoll:    {"done, but polled late", ""},
	attribution.Reap:        {"inside the polling call", ""},
	attribution.OwnSleep:    {"the thread was asleep for its own reasons", "the thread was asleep in %s"},
	attribution.Handoff:     {"handed on by another thread", "handed on by %s"},
	attribution.Delivery:    {"waiting for the interrupt", "waiting for %s"},
	attribution.Handler:     {"in the interrupt handler", "in the handler of %s"},
	attribution.IRQOnTop:    {"interrupted", "interrupted by %s"},
	attribution.Runqueue:    {"waiting for a CPU", "waiting for a CPU while %s ran"},
	attribution.Preempted:   {"preempted", "preempted by %s"},
	attribution.Yielded:     {"gave the CPU away", "gave the CPU away to %s"},
	attribution.Throttled:   {"throttled by its cgroup's CPU quota", "throttled by the CPU quota of %s"},
	attribution.SendQueue:   {"behind the job's own earlier work requests", ""},
	attribution.PortShare:   {"behind other queue pairs of the port", "behind %s on the port"},
	attribution.Transmit:    {"moving the bytes at this path's rate", ""},
	attribution.Base:        {"the floor of this path", ""},
	attribution.PathLimit:   {"a path slower than its link and PCIe", ""},
	attribution.Excess:      {"above the floor of this run, unexplained", ""},
	attribution.Congestion:  {"congestion", "congestion: %s"},
	attribution.RNR:         {"the receiver was not ready (RNR)", ""},
	attribution.Retransmit:  {"retransmission", ""},
	attribution.WireUnsplit: {"", ""},
}

func tell(c attribution.Cause, who string, in attribution.Cgroup, columns int) string {
	t := told[c]
	if who != "" && t.by != "" {
		return fmt.Sprintf(t.by, whoIn(who, columns, in))
	}
	return t.alone
}

// columnsOfWho in a sentence that is to be short.
const columnsOfWho = 60

// cgroupWidth is how much of a cgroup's path is shown: of a longer one the last
// part, where systemd and containers have their names.
const cgroupWidth = 40

// whoIn names a culprit in at most so many columns (0: in all it takes), and its
// cgroup where that is none of the targets'.
func whoIn(name string, columns int, in attribution.Cgroup) string {
	name = clean(name)
	if columns > 0 {
		name = shorten(name, columns)
	}
	if !in.Apart {
		return name
	}
	group := clean(in.Name)
	if columns > 0 && width(group) > cgroupWidth {
		const parents = ".../"
		group = parents + shorten(path.Base(group), cgroupWidth-len(parents))
	}
	return name + " in cgroup " + group
}

// verdict says in one sentence what dominates at the median and in the tail,
// and who is behind it.
func verdict(r *attribution.Report) string {
	at50, at99 := splitShares(r.AtP50), splitShares(r.AtP99)
	c50, decided50 := at50.leader()
	c99, decided99 := at99.leader()
	p50, p99 := durationNS(r.Latency.P50NS), durationNS(r.Latency.P99NS)
	text := fmt.Sprintf("At the median (%s) ", p50)
	switch {
	case decided50 && decided99 && c50 == c99:
		why, whyThen := reason(at50, r.AtP50, r), reason(at99, r.AtP99, r)
		text += fmt.Sprintf("%s is %s%s, and at p99 (%s) %s", leading(at50), className(c50), why, p99, leading(at99))
		if whyThen != why {
			text += whyThen
		}
	case !decided50 && !decided99:
		text += fmt.Sprintf("%s and at p99 (%s) %s %s", undecided(at50), p99, undecided(at99), notKnown)
	default:
		text += fmt.Sprintf("%s; at p99 (%s) %s", rank(at50)+reason(at50, r.AtP50, r), p99, rank(at99)+reason(at99, r.AtP99, r))
	}
	return text + growth(at50, at99, r) + "."
}

const notKnown = "is undecided between wire and late polling, so the largest part is not known"

func undecided(s shares) string { return percent(s.class[attribution.Undecided], s.whole) }

// leading is the share of the largest class.
func leading(s shares) string {
	c, _ := s.leader()
	low, high := s.bounds(c)
	return percentRange(low, high, s.whole)
}

// rank names the largest class, or says why none can be named.
func rank(s shares) string {
	c, decided := s.leader()
	if !decided {
		return undecided(s) + " " + notKnown
	}
	text := leading(s) + " is " + className(c)
	if s.class[c] <= s.whole/2 {
		text += ", the largest part"
	}
	return text
}

// reason names the cause that makes up most of the leading class, if one does.
func reason(s shares, split attribution.Split, r *attribution.Report) string {
	c, decided := s.leader()
	if !decided || split.Count == 0 {
		return ""
	}
	for _, cause := range split.Causes {
		if cause.Cause.Class() != c || cause.Cause == attribution.Probe {
			continue
		}
		mean := float64(cause.TotalNS) / float64(split.Count)
		who := leadingCulprit(cause, r)
		said := tell(cause.Cause, who.Name, who.Cgroup, columnsOfWho)
		if mean < s.class[c]/2 || said == "" {
			return ""
		}
		return ", mostly " + said
	}
	return ""
}

// otherCulprits is the name of those that have no place in a list of culprits.
const otherCulprits = "(other)"

// leadingCulprit is who took at least half of a cause: around the percentile
// where that is known, else over all work requests.
func leadingCulprit(c attribution.CauseTotal, r *attribution.Report) (none attribution.Culprit) {
	for _, known := range append([]attribution.CauseTotal{c}, r.Causes...) {
		if known.Cause != c.Cause || len(known.Who) == 0 {
			continue
		}
		if known.Who[0].TotalNS < known.TotalNS/2 || known.Who[0].Name == otherCulprits {
			return none
		}
		return known.Who[0]
	}
	return none
}

// growth says what the tail adds, where it is another class than the one that
// leads there: a long wire may lead at p99 and yet not be what makes the tail.
func growth(at50, at99 shares, r *attribution.Report) string {
	more := at99.minus(at50)
	if at99.whole < 1.5*at50.whole || more.whole == 0 {
		return ""
	}
	c, decided := more.leader()
	leader, leaderDecided := at99.leader()
	if !decided || (leaderDecided && c == leader) || more.class[c] < more.whole/2 {
		return ""
	}
	return fmt.Sprintf("; what p99 adds to the median is %s %s%s", percent(more.class[c], more.whole), className(c),
		reason(onlyClass(c, at99), r.AtP99, r))
}

func onlyClass(c attribution.Class, s shares) (only shares) {
	only.class[c], only.whole = s.class[c], s.class[c]
	return only
}

// idleness warns of a job that is slow because nobody posts: its latencies look
// healthy. Queue pairs that are used in turn idle one by one, so the ports count.
func idleness(r *attribution.Report) string {
	var all []attribution.Backlog
	for _, p := range r.Ports {
		all = append(all, p.Backlog)
	}
	all = slices.DeleteFunc(all, func(b attribution.Backlog) bool { return b.Posted == 0 || b.WindowNS <= 0 })
	if len(all) == 0 {
		return ""
	}
	b := slices.MinFunc(all, func(x, y attribution.Backlog) int { return cmp.Compare(idleShare(x), idleShare(y)) })
	if idleShare(b) < 0.5 {
		return ""
	}
	subject := "Nothing was in flight for"
	if len(all) > 1 {
		subject = "Even the busiest port had nothing in flight for"
	}
	whole := "the window"
	if r.Sampled != nil {
		whole = "what was observed of the window"
	}
	return fmt.Sprintf("%s %s of %s; meanwhile its posting thread was mostly %s.", subject,
		percent(float64(b.IdleNS), float64(b.WindowNS)), whole, idleDoing(b))
}

func idleShare(b attribution.Backlog) float64 { return float64(b.IdleNS) / float64(b.WindowNS) }

// idleDoing is what the posting thread mostly did while nothing was in flight.
func idleDoing(b attribution.Backlog) string {
	asleep := "asleep"
	if len(b.IdleSyscalls) > 0 {
		asleep += " in " + shorten(clean(b.IdleSyscalls[0].Name), 60)
	}
	best, doing := b.IdleUnknown, "doing something unknown"
	for _, o := range []struct {
		ns    int64
		doing string
	}{{b.IdleAsleep, asleep}, {b.IdleRunnable, "waiting for a CPU"}, {b.IdleRunning, "running its own code"}} {
		if o.ns > best {
			best, doing = o.ns, o.doing
		}
	}
	return doing
}
