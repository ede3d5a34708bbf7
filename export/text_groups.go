package export

import (
	"fmt"
	"sort"
	"strings"

	"github.com/rdmatrace/rdmatrace/attribution"
)

// groupTitles in the order of output. Keys that do not tell anything apart
// (one peer, one device) are left out, except the first.
var groupTitles = []struct{ by, title, key string }{
	{"op+size", "BY OPERATION AND SIZE", "operation"},
	{"peer", "BY PEER", "peer"},
	{"qp", "BY QUEUE PAIR", "queue pair"},
	{"device", "BY DEVICE", "device"},
	{"thread", "BY POSTING THREAD", "thread"},
}

const (
	maxOperations = 10
	maxGroups     = 5
)

// groupTables lists operations by how many there were, and all else worst first:
// there one looks for the slow peer.
func groupTables(p *page, r *attribution.Report) {
	for i, title := range groupTitles {
		groups := groupsBy(r, title.by)
		if len(groups) == 0 || i > 0 && len(groups) == 1 {
			continue
		}
		most, note := maxOperations, "the parts in percent of all its time"
		if i > 0 {
			most, note = maxGroups, "worst p99 first; the parts in percent of all its time"
			sort.SliceStable(groups, func(i, j int) bool { return groups[i].Latency.P99NS > groups[j].Latency.P99NS })
		}
		p.heading(title.title, note)
		t := newTable("lrrrrrrrrr", title.key, "WRs", "bytes", "p50", "p99", "software", "intr", "sched", "wire", "undec")
		shown := min(len(groups), most)
		for _, g := range groups[:shown] {
			t.row(groupRow(g)...)
		}
		t.write(p)
		p.more(len(groups)-shown, "group", restOfGroups(groups[shown:]))
	}
}

// restOfGroups is what those have that have no row.
func restOfGroups(groups []attribution.Group) string {
	var wrs, bytes int64
	for _, g := range groups {
		wrs, bytes = sum(wrs, g.Latency.Count), sum(bytes, g.Bytes)
	}
	return counted(wrs, "WR") + ", " + byteCount(bytes)
}

func groupsBy(r *attribution.Report, by string) (groups []attribution.Group) {
	for _, g := range r.Groups {
		if g.By == by {
			groups = append(groups, g)
		}
	}
	return groups
}

func groupRow(g attribution.Group) []cell {
	s := newShares(totals(g.Classes), float64(g.ProbeNS))
	cells := plain(cleanOr(g.Key, "unknown"), count(g.Latency.Count), byteCount(g.Bytes),
		durationNS(g.Latency.P50NS), durationNS(g.Latency.P99NS))
	lead, decided := s.leader()
	for _, c := range attribution.Classes {
		ansi := ""
		if c == lead && decided {
			ansi = looks[c].ansi
		}
		cells = append(cells, cell{text: percentDigits(s.class[c], s.whole), ansi: ansi})
	}
	return cells
}

// site is a place in the program that posts.
type site struct {
	pid    uint32
	frames []frame
	ns     float64
	class  [classes]float64
}

const (
	maxSites      = 6
	maxSiteFrames = 4
)

// siteTable lists the posting sites by the time of their WRs, where there is
// more than one.
func siteTable(p *page, r *attribution.Report) {
	sites := postingSites(r)
	if len(sites) < 2 {
		return
	}
	var whole float64 // of receives too, which have sites and are no part of the latency
	for _, s := range sites {
		whole += s.ns
	}
	p.heading("BY POSTING SITE", "innermost function first; the profile has the whole stacks")
	t := newTable("lrrl", "site", "sum", "share", "leading part")
	rest, several := 0.0, false
	for _, s := range sites {
		several = several || s.pid != sites[0].pid
	}
	for i, s := range sites {
		if i >= maxSites {
			rest += s.ns
			continue
		}
		sh := newShares(s.class, 0)
		lead, decided := sh.leader()
		text, ansi := fmt.Sprintf("%s %s", lead, percent(sh.class[lead], sh.whole)), looks[lead].ansi
		if !decided {
			text, ansi = "undecided", ""
		}
		t.row(cell{text: ofProcess(several, s.pid) + siteName(p, s.frames)}, cell{text: duration(s.ns)}, cell{text: percent(s.ns, whole)}, cell{text: text, ansi: ansi})
	}
	if more := len(sites) - maxSites; more > 0 {
		t.row(plain(fmt.Sprintf("(%s, in the profile)", counted(int64(more), "more site")), duration(rest), percent(rest, whole), "")...)
	}
	t.write(p)
}

func postingSites(r *attribution.Report) []*site {
	frames := newFrames(r)
	known := map[string]*site{}
	var sites []*site
	for _, s := range r.Samples {
		if !s.Leaf || s.NS <= 0 || s.Cause == attribution.Probe {
			continue
		}
		stack := frames.user(s)
		key := functionsOf(s.PID, stack)
		if known[key] == nil {
			known[key] = &site{pid: s.PID, frames: stack}
			sites = append(sites, known[key])
		}
		known[key].ns += float64(s.NS)
		known[key].class[s.Cause.Class()] += float64(s.NS)
	}
	sort.SliceStable(sites, func(i, j int) bool { return sites[i].ns > sites[j].ns })
	return sites
}

// functionsOf a process's stack tell it apart from others: instructions do not, for
// a reader sees functions.
func functionsOf(pid uint32, frames []frame) string {
	key := fmt.Sprint(pid)
	for _, f := range frames {
		key += "\x00" + f.name
	}
	return key
}

// ofProcess begins a row, where the rows are of several processes.
func ofProcess(several bool, pid uint32) string {
	if !several {
		return ""
	}
	return fmt.Sprintf("pid %d: ", pid)
}

// siteName of root-first frames: the innermost ones, innermost first.
func siteName(p *page, frames []frame) string {
	var names []string
	for i := len(frames) - 1; i >= 0 && len(names) < maxSiteFrames; i-- {
		names = append(names, p.fit(frames[i].name, 60))
	}
	return strings.Join(names, " < ")
}
