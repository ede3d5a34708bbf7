package export

import (
	"fmt"
	"path"
	"strings"
	"time"

	"github.com/rdmatrace/rdmatrace/attribution"
	"github.com/rdmatrace/rdmatrace/event"
)

// windowNS is the length of the traced window.
func windowNS(c *event.Context) int64 {
	if c.Window.End < c.Window.Begin {
		return 0
	}
	return int64(c.Window.End - c.Window.Begin)
}

// startTime of the window, UTC; empty where the host's offset is unknown.
func startTime(c *event.Context, layout string) string {
	if c.Host.RealtimeOffset == 0 {
		return ""
	}
	return time.Unix(0, c.Host.RealtimeOffset+int64(c.Window.Begin)).UTC().Format(layout)
}

// context of a report, which may have none.
func context(r *attribution.Report) *event.Context {
	if r.Context == nil {
		return &event.Context{}
	}
	return r.Context
}

func header(p *page, r *attribution.Report) {
	c := context(r)
	tool := cleanOr(c.Tool, "rdmatrace")
	if !strings.HasPrefix(tool, "rdmatrace") {
		tool = "rdmatrace " + tool
	}
	p.line(p.paint(ansiBold, p.fit(tool, p.room)))
	for i, t := range c.Targets {
		if i == maxTargets && len(c.Targets) > maxTargets+1 {
			p.line(fmt.Sprintf("  and %s more processes", count(int64(len(c.Targets)-i))))
			break
		}
		target(p, t)
	}
	p.prose("  host     ", "", hostLine(c))
	p.prose("  window   ", "", windowLine(c))
	for _, d := range c.Devices {
		p.prose("  device   ", "", deviceLine(d))
	}
}

const maxTargets = 4

func target(p *page, t event.Target) {
	name := cleanOr(t.Comm, "unknown") // it may end before anything is read of it
	if t.Comm == "" && t.Exe != "" {
		name = path.Base(clean(t.Exe))
	}
	text := fmt.Sprintf("%s, pid %d", name, t.PID)
	if t.Rank >= 0 {
		text += fmt.Sprintf(", rank %d", t.Rank)
	}
	if t.Exited {
		text += ", ended before the window did"
	}
	p.prose("  target   ", ansiBold, text)
	if len(t.Cmdline) > 0 {
		p.line("  command  " + p.fit(clean(strings.Join(t.Cmdline, " ")), p.room-11))
	}
}

func hostLine(c *event.Context) string {
	h := c.Host
	s := cleanOr(h.Name, "unknown")
	if h.Kernel != "" {
		s += ", Linux " + clean(h.Kernel)
	}
	if h.Arch != "" {
		s += " " + clean(h.Arch)
	}
	if h.CPUs > 0 {
		s += fmt.Sprintf(", %s", counted(int64(h.CPUs), "CPU"))
	}
	if h.Governor != "" {
		s += ", governor " + clean(h.Governor)
	}
	if h.Distribution != "" {
		s += ", " + clean(h.Distribution)
	}
	return s
}

func windowLine(c *event.Context) string {
	s := durationNS(windowNS(c))
	if start := startTime(c, "2006-01-02 15:04:05.000"); start != "" {
		s += " from " + start + " UTC"
	}
	return s
}

func deviceLine(d event.Device) string {
	s := cleanOr(d.Name, "unnamed")
	for _, port := range d.Ports {
		s += fmt.Sprintf(", port %d: %s", port.Number, cleanOr(port.LinkLayer, "link"))
		if port.RateBPS > 0 {
			s += " " + bitRate(float64(port.RateBPS))
		}
		if port.State != "" && !strings.Contains(strings.ToUpper(port.State), "ACTIVE") {
			s += " (" + clean(port.State) + ")"
		}
	}
	if d.PCIeBPS > 0 {
		s += ", PCIe " + bitRate(float64(d.PCIeBPS))
	}
	if d.NUMANode >= 0 {
		s += fmt.Sprintf(", NUMA node %d", d.NUMANode)
	}
	if d.Driver != "" {
		s += ", driver " + clean(d.Driver)
	}
	if d.Firmware != "" {
		s += ", firmware " + clean(d.Firmware)
	}
	if d.Software {
		s += ", emulated in software"
	}
	return s
}

// latency of all measured WRs.
func latency(p *page, r *attribution.Report) {
	d := r.Latency
	p.heading("LATENCY", fmt.Sprintf("of %s, from post to completion in hand", counted(d.Count, "work request")))
	t := newTable("rrrrrrr", "p50", "p90", "p99", "p99.9", "max", "mean", "stddev")
	t.row(plain(durationNS(d.P50NS), durationNS(d.P90NS), durationNS(d.P99NS), durationNS(d.P999NS),
		durationNS(d.MaxNS), duration(d.MeanNS), duration(d.StdDevNS))...)
	t.write(p)
	for _, note := range latencyNotes(r) {
		p.prose("  ", ansiDim, note)
	}
}

func latencyNotes(r *attribution.Report) (notes []string) {
	if d := r.Latency; d.Count < 1000 {
		notes = append(notes, fmt.Sprintf("With %s the far percentiles are single ones.", counted(d.Count, "work request")))
	}
	if n := r.Kinds["send"].Unsignalled; n > 0 {
		notes = append(notes, unsignalled(r))
	}
	if s := r.Slow; s.Pattern != "" && s.Pattern != "none" {
		notes = append(notes, fmt.Sprintf("Slow ones (above %s) came %s.", durationNS(s.ThresholdNS), adverb(cleanText(s.Pattern))))
	}
	if demand := shareList(r.Demands, demandWords); demand != "" {
		notes = append(notes, "When done: "+demand+".")
	}
	return notes
}

// unsignalled tells what the latencies stand for, where most work requests had no
// completion of their own.
func unsignalled(r *attribution.Report) string {
	send := r.Kinds["send"]
	s := fmt.Sprintf("%s of %s completed without a completion of their own",
		percent(float64(send.Unsignalled), float64(send.Completed)), counted(send.Completed, "send"))
	if c := r.Chains; c.WRs > 0 {
		s += fmt.Sprintf("; the measured chains hold %s of the sends and %s of the bytes",
			percent(float64(c.WRs), float64(send.Completed)), percent(float64(c.Bytes), float64(send.Bytes)))
	}
	return s + "."
}

var demandWords = map[string]string{
	attribution.Waited.String():    "a thread was waiting",
	attribution.Dependent.String(): "the next post depended on it",
	attribution.Unproven.String():  "nobody was seen to need it",
}

// shareList writes "a 98 %, b 2 %", the words replacing the names.
func shareList(shares []attribution.Share, words map[string]string) string {
	var total float64
	for _, s := range shares {
		total += float64(s.Count)
	}
	var list []string
	for _, s := range shares {
		if s.Count <= 0 {
			continue
		}
		name := clean(s.Name)
		if w := words[s.Name]; w != "" {
			name = w
		}
		list = append(list, name+" "+percent(float64(s.Count), total))
	}
	return strings.Join(list, ", ")
}

// adverb of a pattern in time: the others are adverbs.
func adverb(pattern string) string {
	if pattern == "irregular" {
		return "irregularly"
	}
	return pattern
}
