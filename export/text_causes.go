package export

import (
	"fmt"
	"sort"
	"strings"

	"github.com/rdmatrace/rdmatrace/attribution"
)

const maxCauses = 14

// causeTable lists the finer parts and who was behind them.
func causeTable(p *page, r *attribution.Report) {
	at50, at99 := causeMeans(r.AtP50), causeMeans(r.AtP99)
	whole := totalShares(r).whole
	p.heading("CAUSES", "mean around p50 and p99; sum over all work requests, and who")
	t := newTable("lrrrrr", "", "at p50", "at p99", "sum", "share", "WRs")
	shown, rest, restNS := 0, 0, int64(0)
	for _, c := range mergeCauses(r.Causes) {
		if c.TotalNS <= 0 {
			continue
		}
		negligible := float64(c.TotalNS) < whole/1000 && at50[c.Cause] < r.AtP50.LatencyNS/200 && at99[c.Cause] < r.AtP99.LatencyNS/200
		if negligible || shown == maxCauses {
			rest, restNS = rest+1, restNS+c.TotalNS
			continue
		}
		shown++
		share := percent(float64(c.TotalNS), whole)
		if c.Cause == attribution.Probe {
			share = "(ours)"
		}
		t.row(append([]cell{{text: causeName(c.Cause), ansi: looks[c.Cause.Class()].ansi}}, plain(orDash(int64(finite(at50[c.Cause]+0.5))),
			orDash(int64(finite(at99[c.Cause]+0.5))), durationNS(c.TotalNS), share, count(c.Count))...)...)
		t.remark(culpritList(p, c.Who, c.TotalNS, 3))
	}
	t.write(p)
	if rest > 0 {
		p.prose("  ", ansiDim, fmt.Sprintf("and %s of %s together", counted(int64(rest), "smaller cause"), durationNS(restNS)))
	}
	for _, why := range r.Evidence {
		p.prose("  ", ansiDim, cleanText(why))
	}
}

// causeName for people: the class undecided has one cause, and it says nothing more.
func causeName(c attribution.Cause) string {
	if c == attribution.CauseUndecided {
		return c.Class().String()
	}
	return c.FullName()
}

// causeMeans is what each cause took on average of the WRs of a split.
func causeMeans(s attribution.Split) map[attribution.Cause]float64 {
	m := map[attribution.Cause]float64{}
	for _, c := range s.Causes {
		if s.Count > 0 {
			m[c.Cause] += float64(c.TotalNS) / float64(s.Count)
		}
	}
	return m
}

// mergeCauses adds up the entries of one cause; the order stays by falling total.
func mergeCauses(causes []attribution.CauseTotal) (merged []attribution.CauseTotal) {
	at := map[attribution.Cause]int{}
	for _, c := range causes {
		i, seen := at[c.Cause]
		if !seen {
			at[c.Cause] = len(merged)
			c.Who = append([]attribution.Culprit(nil), c.Who...)
			merged = append(merged, c)
			continue
		}
		m := &merged[i]
		m.TotalNS, m.Count, m.Who = m.TotalNS+c.TotalNS, m.Count+c.Count, append(m.Who, c.Who...)
	}
	for _, m := range merged {
		sort.SliceStable(m.Who, func(i, j int) bool {
			if x, y := isRest(m.Who[i]), isRest(m.Who[j]); x != y {
				return y // what is left is the last, however much
			}
			return m.Who[i].TotalNS > m.Who[j].TotalNS
		})
	}
	sort.SliceStable(merged, func(i, j int) bool { return merged[i].TotalNS > merged[j].TotalNS })
	return merged
}

func isRest(c attribution.Culprit) bool { return c.Name == otherCulprits }

// culpritList writes the worst ones and their shares of total, and what is left of it,
// so that it adds up: of those that have no place here, and of what nobody was seen to take.
func culpritList(p *page, who []attribution.Culprit, total int64, most int) string {
	if len(who) == 0 {
		return ""
	}
	var list []string
	say := func(name string, ns int64) { list = append(list, name+" "+percent(float64(ns), float64(total))) }
	others, left := int64(0), total
	for i, w := range who {
		left -= w.TotalNS
		if i >= most || isRest(w) {
			others = sum(others, w.TotalNS)
			continue
		}
		say(whoIn(cleanOr(w.Name, "unnamed"), p.most(48), w.Cgroup), w.TotalNS)
	}
	if others > 0 {
		say("others", others)
	}
	if left >= total/1000 && left > 0 {
		say("not known", left)
	}
	return strings.Join(list, ", ")
}
