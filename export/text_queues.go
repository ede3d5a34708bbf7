package export

import (
	"fmt"
	"slices"
	"sort"

	"github.com/rdmatrace/rdmatrace/attribution"
)

const maxQueues = 4

// beforePost tells how the queues were kept busy: time in which nothing was in
// flight is in no latency.
func beforePost(p *page, r *attribution.Report) {
	var queues []attribution.Queue
	for _, q := range r.Queues {
		if q.Posted > 0 {
			queues = append(queues, q)
		}
	}
	if len(queues) == 0 {
		return
	}
	sort.SliceStable(queues, func(i, j int) bool { return queues[i].Posted > queues[j].Posted })
	p.heading("BEFORE THE POST", "idle: with nothing in flight, and what the posting thread did")
	t := newTable("lrrrrrrrr", "qp", "depth", "max/of", "idle", "running", "runnable", "asleep", "WR/s", "rate")
	for _, port := range sharedPorts(r.Ports, queues) {
		t.row(backlogRow(portLabel(port), port.Backlog, 0)...)
		t.remark("its queue pairs together" + backlogRemark(p, port.Backlog))
	}
	shown := queues[:min(len(queues), maxQueues)]
	for _, q := range shown {
		t.row(backlogRow(hex(uint64(q.QPNum)), q.Backlog, q.QueueSize)...)
		t.remark(queueRemark(p, q, len(context(r).Targets) > 1))
	}
	t.write(p)
	if rest := queues[len(shown):]; len(rest) > 0 {
		p.prose("  ", ansiDim, restOfQueues(rest))
	}
	if n := unrecorded(r); n > 0 {
		p.prose("  ", "", fmt.Sprintf("Not in these rates and depths: %s to send queues, of which no record arrived (LOSSES).", counted(n, "more post")))
	}
}

// unrecorded is how many work requests of send queues the books have as lost, of which no
// queue pair has the post.
func unrecorded(r *attribution.Report) int64 {
	books := r.Kinds["send"]
	posts := books.Posted
	for _, q := range r.Queues {
		posts -= q.Posted
	}
	return max(0, min(posts, books.Lost))
}

// sharedPorts are those to which more than one queue pair posted: of the others
// the queue pair tells all. At most maxPorts, the busiest.
func sharedPorts(ports []attribution.PortReport, queues []attribution.Queue) (shared []attribution.PortReport) {
	for _, port := range ports {
		alone := slices.ContainsFunc(queues, func(q attribution.Queue) bool { return q.Device == port.Device && q.Posted == port.Posted })
		if port.Posted > 0 && !alone {
			shared = append(shared, port)
		}
	}
	sort.SliceStable(shared, func(i, j int) bool { return shared[i].Posted > shared[j].Posted })
	return shared[:min(len(shared), maxPorts)]
}

const maxPorts = 4

func portLabel(port attribution.PortReport) string {
	return fmt.Sprintf("%s/%d", cleanOr(port.Device, "?"), port.Port)
}

// backlogRow of a queue pair, which has room for so many work requests (0:
// unknown), or of a port.
func backlogRow(name string, b attribution.Backlog, room int64) []cell {
	of := ""
	if room > 0 {
		of = "/" + count(room)
	}
	depth, most := "?", "?"
	share := func(ns int64) string {
		if b.DepthKnown == 0 {
			return "?"
		}
		return percent(float64(ns), float64(b.WindowNS))
	}
	if b.DepthKnown > 0 {
		depth, most = fmt.Sprintf("%.1f", min(finite(b.DepthMean), 1e6)), count(b.DepthMax)
	}
	return plain(name, depth, most+of, share(b.IdleNS), share(b.IdleRunning), share(b.IdleRunnable), share(b.IdleAsleep),
		rate(b.WRsPerSec), bitRate(8*b.BytesPerSec))
}

func queueRemark(p *page, q attribution.Queue, severalTargets bool) string {
	s := "on " + cleanOr(q.Device, "an unknown device")
	if q.Peer != "" {
		s = "to " + clean(q.Peer) + " " + s
	}
	if severalTargets {
		s = fmt.Sprintf("pid %d ", q.PID) + s
	}
	if q.QueueSize > 1 && q.DepthMax >= q.QueueSize-1 {
		s += "; full at times"
	}
	return s + backlogRemark(p, q.Backlog)
}

func backlogRemark(p *page, b attribution.Backlog) (s string) {
	if b.DepthKnown == 0 {
		s += "; depth and idle time unknown: no proof of which work requests were in flight"
	}
	if b.IdleAsleep > 0 && len(b.IdleSyscalls) > 0 {
		s += "; asleep in " + culpritList(p, b.IdleSyscalls, b.IdleAsleep, 3)
	}
	if b.IdleUnknown > 0 {
		s += "; idle for unknown reasons " + percent(float64(b.IdleUnknown), float64(b.WindowNS))
	}
	return s
}

// restOfQueues sums up those that have no row.
func restOfQueues(queues []attribution.Queue) string {
	var wrs, bytes float64
	least, most := 1.0, 0.0
	for _, q := range queues {
		wrs, bytes = wrs+finite(q.WRsPerSec), bytes+finite(q.BytesPerSec)
		if q.WindowNS > 0 {
			least, most = min(least, idleShare(q.Backlog)), max(most, idleShare(q.Backlog))
		}
	}
	return fmt.Sprintf("and %s in --json: idle %s, together %s WR/s and %s", counted(int64(len(queues)), "more queue pair"),
		percentRange(least, most, 1), rate(wrs), bitRate(8*bytes))
}

// ports compares what was traced with what the port counted.
func ports(p *page, r *attribution.Report) {
	if len(r.Ports) == 0 {
		return
	}
	p.heading("PORTS", "bytes of traced work requests beside what the port counted")
	t := newTable("lrlrrrrr", "port", "link", "", "traced", "rate", "of link", "counted", "share")
	window := float64(windowNS(context(r))) / 1e9
	if r.Sampled != nil {
		window = float64(r.Sampled.ObservedNS) / 1e9
	}
	for _, port := range r.Ports {
		link := "unknown"
		if port.RateBPS > 0 {
			link = bitRate(float64(port.RateBPS))
		}
		t.row(portRow(portLabel(port), link, "sent", port.TracedSent, port.PortSent, port.RateBPS, window)...)
		t.row(portRow("", "", "received", port.TracedRecv, port.PortRecv, port.RateBPS, window)...)
		if r.Sampled == nil { // else the port counted what was not observed, too
			t.remark(portRemark(port, r.WRs))
		}
	}
	t.write(p)
}

func portRow(name, link, way string, traced, counter int64, linkBPS uint64, window float64) []cell {
	bps := 0.0
	if window > 0 {
		bps = float64(max(traced, 0)) * 8 / window
	}
	ofLink, counted, share := "-", "none", "-"
	if linkBPS > 0 {
		ofLink = percent(bps, float64(linkBPS))
	}
	if counter >= 0 {
		counted = byteCount(counter)
		if counter > 0 {
			share = percent(float64(traced), float64(counter))
		}
	}
	return plain(name, link, way, byteCount(traced), bitRate(bps), ofLink, counted, share)
}

// What a port moved beyond the traced WRs is worth a remark above this share of
// all its bytes: below it are headers, acknowledgements and management traffic.
const unexplainedShare = 0.15

const fewPortBytes = 1 << 20

// portRemark says so. Of work requests that were lost no record tells the bytes: a
// percent of them is worth a word.
func portRemark(port attribution.PortReport, b attribution.Books) string {
	ours := ""
	if b.Lost > 0 && b.Lost >= b.Posted/100 {
		ours = counted(b.Lost, "work request") + " whose records were lost, "
	}
	all := float64(max(port.PortSent, 0)) + float64(max(port.PortRecv, 0))
	for _, way := range []struct {
		traced, counter int64
		name, passive   string
	}{{port.TracedSent, port.PortSent, "sent", "READs"}, {port.TracedRecv, port.PortRecv, "received", "WRITEs and SENDs"}} {
		more := way.counter - max(way.traced, 0)
		if more > fewPortBytes && float64(more) > unexplainedShare*all {
			return fmt.Sprintf("%s were %s that no traced work request explains: %s%s of the peers, other processes, or queue pairs that bypass the library",
				byteCount(more), way.name, ours, way.passive)
		}
	}
	return ""
}

// received sums up the latencies of receives: from done to reap.
func received(r *attribution.Report) string {
	d := r.Receives.Latency
	s := newShares(totals(r.Receives.Classes), float64(r.Receives.Probe.TotalNS))
	text := fmt.Sprintf("p50 %s, p99 %s, max %s", durationNS(d.P50NS), durationNS(d.P99NS), durationNS(d.MaxNS))
	for i, c := range attribution.Classes {
		if s.class[c] == 0 {
			continue
		}
		sep := ", "
		if i == 0 {
			sep = "; "
		}
		text += fmt.Sprintf("%s%s %s", sep, percent(s.class[c], s.whole), c)
	}
	return text
}

// floors are what the wire was split by.
func floors(p *page, r *attribution.Report) {
	var known []attribution.Floor
	for _, f := range r.Floors {
		if f.Known {
			known = append(known, f)
		}
	}
	if len(known) == 0 {
		return
	}
	p.heading("FLOOR OF THE WIRE", "what this run took at least: base + size / rate")
	t := newTable("llrrrrr", "", "to", "base", "rate", "link", "PCIe", "learnt from")
	for _, f := range known[:min(len(known), maxFloors)] {
		t.row(plain(cleanOr(f.Op, "?")+" "+clean(f.Transport)+" "+clean(f.Device), cleanOr(f.Peer, "unknown"), durationNS(f.BaseNS),
			rateOrDash(f.RateBPS), rateOrDash(f.LinkBPS), rateOrDash(f.PCIeBPS), count(f.Learnt))...)
	}
	t.write(p)
	p.more(len(known)-maxFloors, "floor")
}

const maxFloors = 5

func rateOrDash(bps uint64) string {
	if bps == 0 {
		return "-"
	}
	return bitRate(float64(bps))
}

const maxReceives = 5

// receives lists how long posted receives waited for their peers.
func receives(p *page, r *attribution.Report) {
	if len(r.Receive) == 0 {
		return
	}
	list := append([]attribution.PeerWait(nil), r.Receive...)
	sort.SliceStable(list, func(i, j int) bool { return list[i].Wait.Count > list[j].Wait.Count })
	p.heading("RECEIVES", "peer-wait: post_recv until the message is there; in no class")
	t := newTable("llrrrrr", "peer", "qp", "receives", "p50", "p99", "max", "mean")
	for _, w := range list[:min(len(list), maxReceives)] {
		qp := hex(uint64(w.QPNum))
		if len(context(r).Targets) > 1 {
			qp += fmt.Sprintf(" of pid %d", w.PID)
		}
		t.row(plain(cleanOr(w.Peer, "unknown"), qp, count(w.Wait.Count), durationNS(w.Wait.P50NS),
			durationNS(w.Wait.P99NS), durationNS(w.Wait.MaxNS), duration(w.Wait.MeanNS))...)
	}
	t.write(p)
	rest := int64(0)
	for _, w := range list[min(len(list), maxReceives):] {
		rest = sum(rest, w.Wait.Count)
	}
	p.more(len(list)-maxReceives, "queue pair", counted(rest, "receive"))
	if d := r.Receives.Latency; d.Count > 0 {
		p.prose("  ", "", "Once there, until in hand: "+received(r)+".")
	}
}
