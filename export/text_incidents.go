package export

import (
	"fmt"
	"slices"
	"strings"

	"github.com/rdmatrace/rdmatrace/attribution"
)

const (
	maxIncidents = 3
	maxSegments  = 12
)

// Incidents below this share of the worst one are not worth a reader's time.
const smallIncident = 0.05

// incidents prints the worst ones, each with the life of its worst WR.
func incidents(p *page, r *attribution.Report) {
	if len(r.Incidents) == 0 {
		return
	}
	p.heading("WORST INCIDENTS", "one interval, one culprit, all the work requests it delayed")
	shown := 0
	for i, in := range r.Incidents {
		if i == maxIncidents || float64(in.DelayNS) < smallIncident*float64(r.Incidents[0].DelayNS) {
			break
		}
		if i > 0 {
			p.line("")
		}
		shown++
		incident(p, r, shown, in)
	}
	p.more(len(r.Incidents)-shown, "incident")
}

func incident(p *page, r *attribution.Report, n int, in attribution.Incident) {
	said := tell(in.Cause, in.Who, in.Cgroup, p.most(columnsOfWho))
	if said == "" {
		said = in.Cause.String()
	}
	p.prose(fmt.Sprintf("  %d. ", n), ansiBold, fmt.Sprintf("%s: %s, %s at %s; delayed %s by %s in all", in.Cause.Class(), said,
		durationNS(since(in.Begin, in.End)), intoWindow(r, in.Begin), counted(in.WRs, "WR"), durationNS(in.DelayNS)))
	p.prose("     the worst: ", "", wrLine(in.Worst, len(context(r).Targets) > 1))
	p.prose("     also: ", "", alsoList(p, in.Also))
	timeline(p, in)
}

const maxAlso = 3

// alsoList writes what else the worst WR waited for.
func alsoList(p *page, also []attribution.Another) string {
	var said []string
	for i, a := range also {
		if i == maxAlso {
			said = append(said, fmt.Sprintf("%d more in --json", len(also)-i))
			break
		}
		text := tell(a.Cause, a.Who, a.Cgroup, p.most(columnsOfWho))
		if text == "" {
			text = a.Cause.String()
		}
		text += ", " + durationNS(a.NS)
		if a.Parts > 1 {
			text += fmt.Sprintf(" in %s", counted(a.Parts, "part"))
		}
		said = append(said, text)
	}
	return strings.Join(said, "; ")
}

// since is end - begin, never negative.
func since(begin, end uint64) int64 {
	if end < begin {
		return 0
	}
	return int64(end - begin)
}

func intoWindow(r *attribution.Report, at uint64) string {
	return fmt.Sprintf("+%.6f s", float64(since(context(r).Window.Begin, at))/1e9)
}

func wrLine(w attribution.WR, severalTargets bool) string {
	number := ""
	if w.Index >= 0 { // else its post was not seen
		number = fmt.Sprintf(" #%d", w.Index)
	}
	s := fmt.Sprintf("%s%s, %s, qp %s", cleanOr(w.Op, "operation"), number, size(w.Bytes), hex(uint64(w.QPNum)))
	if severalTargets {
		s += fmt.Sprintf(" of pid %d", w.PID)
	}
	if w.Peer != "" {
		s += " to " + clean(w.Peer)
	}
	s += fmt.Sprintf(": %s; %s; done from %s", durationNS(since(w.PostBegin, w.Reap)), demandWords[w.Demand.String()], w.DoneSource)
	if doubt := since(w.DoneLow, w.DoneHigh); doubt > 0 {
		s += fmt.Sprintf(", in doubt by %s", durationNS(doubt))
	}
	if w.Status != 0 {
		s += "; failed: " + attribution.StatusName(w.Status)
	}
	return s
}

// timeline of one WR, relative to its post.
func timeline(p *page, in attribution.Incident) {
	if len(in.Timeline) == 0 {
		return
	}
	base := in.Worst.PostBegin
	if base == 0 || base > in.Timeline[0].Begin {
		base = in.Timeline[0].Begin
	}
	t := newTable("rrlll", "after post", "for", "", "", "")
	skipped := in.Omitted
	short := shortest(in.Timeline)
	for _, s := range in.Timeline {
		ns := since(s.Begin, s.End)
		if ns < short {
			skipped++
			continue
		}
		mark := ""
		if s.Cause == in.Cause && s.Who == in.Who && s.Begin < in.End && in.Begin < s.End {
			mark = "<"
		}
		t.row(cell{text: "+" + durationNS(since(base, s.Begin))}, cell{text: durationNS(ns)}, cell{text: mark, ansi: ansiWarn},
			cell{text: causeName(s.Cause), ansi: looks[s.Cause.Class()].ansi}, cell{text: segmentWhere(in, s)})
	}
	t.indent = 5
	t.write(p)
	if skipped > 0 {
		p.prose("       ", ansiDim, fmt.Sprintf("and %s, none longer than %s", counted(skipped, "shorter part"), durationNS(short)))
	}
}

// shortest duration that a timeline shows, so that it has at most maxSegments.
func shortest(segments []attribution.Segment) int64 {
	if len(segments) <= maxSegments {
		return 0
	}
	ns := make([]int64, 0, len(segments))
	for _, s := range segments {
		ns = append(ns, since(s.Begin, s.End))
	}
	slices.Sort(ns)
	return ns[len(ns)-maxSegments]
}

// segmentWhere says where a part happened, and by whom. The posting thread is
// the usual one and is not named.
func segmentWhere(in attribution.Incident, s attribution.Segment) string {
	var words []string
	if s.Who != "" {
		words = append(words, "by "+clean(s.Who))
	}
	if name := threadName(in.Worst, s.TID); s.TID != 0 && name != clean(in.Worst.PostThread) {
		words = append(words, "in "+name)
	}
	if s.TID != 0 && s.CPU >= 0 {
		words = append(words, fmt.Sprintf("cpu %d", s.CPU))
	}
	return strings.Join(words, ", ")
}

// threadName is "name/tid" where the WR knows the thread.
func threadName(w attribution.WR, tid uint32) string {
	suffix := fmt.Sprintf("/%d", tid)
	for _, name := range []string{w.PostThread, w.ReapThread} {
		if strings.HasSuffix(name, suffix) {
			return clean(name)
		}
	}
	return fmt.Sprintf("thread %d", tid)
}
