package export

import (
	"fmt"
	"path"

	"github.com/rdmatrace/rdmatrace/attribution"
)

// nothing explains a report without a latency: what happened, why, and what to
// do about it.
type nothing struct {
	what    string
	why, do []string
}

func explainNothing(r *attribution.Report) nothing {
	if r.WRs.Posted == 0 {
		return nothingPosted(r)
	}
	return nothingMeasured(r)
}

func nothingPosted(r *attribution.Report) (n nothing) {
	c := context(r)
	n.what = fmt.Sprintf("No work request was posted in the %s window, so there is no latency to split.", durationNS(windowNS(c)))
	b := bypassing(r)
	switch {
	case b != "":
		n.what = fmt.Sprintf("No work request was seen in the %s window: %s.", durationNS(windowNS(c)), b)
		n.why = append(n.why, portsMoved(r)...)
		n.do = append(n.do, "With UCX, UCX_TLS=rc_v (rc_verbs) uses the library, and its work requests become visible.")
	case len(c.Devices) == 0:
		n.why = append(n.why, "The target has no RDMA device open.")
		n.do = append(n.do, "Is it the launcher (mpirun, torchrun, srun)? Give the pid of a rank instead.",
			"A rank opens the device when communication begins: try again later, or with a longer -d.")
	case len(r.Queues) == 0:
		n.why = append(n.why, "The target has a device open, but no queue pair.")
		n.do = append(n.do, "Connections may not be made yet: try again later, or with a longer -d.")
	default:
		n.why = append(n.why, fmt.Sprintf("The target has %s and posted nothing: it computed, waited or did I/O.",
			counted(int64(len(r.Queues)), "queue pair")))
		n.why = append(n.why, portsMoved(r)...)
		n.do = append(n.do, "Trace longer (-d), or while the job communicates.")
	}
	for _, t := range c.Targets {
		if t.Exited {
			n.why = append(n.why, fmt.Sprintf("Process %d ended before the window did.", t.PID))
		}
	}
	n.why = append(n.why, missingProbes(r)...)
	return n
}

// missingProbes are those on libraries: without them posts are not seen.
func missingProbes(r *attribution.Report) (list []string) {
	for _, p := range context(r).Probes {
		if p.Error != "" && p.Library != "" {
			list = append(list, fmt.Sprintf("The probe on %s in %s is not there (%s): such calls were not seen.",
				clean(p.Name), clean(path.Base(p.Library)), cleanText(p.Error)))
		}
	}
	return list
}

// portsMoved says that bytes moved without a traced WR.
func portsMoved(r *attribution.Report) (list []string) {
	for _, p := range r.Ports {
		if p.PortSent > fewPortBytes || p.PortRecv > fewPortBytes {
			list = append(list, fmt.Sprintf("Meanwhile %s port %d sent %s and received %s.", cleanOr(p.Device, "the"), p.Port,
				byteCount(max(p.PortSent, 0)), byteCount(max(p.PortRecv, 0))))
		}
	}
	return list
}

// bypassing names queue pairs that live without the library; empty: none.
func bypassing(r *attribution.Report) string {
	n := 0
	for _, q := range r.Queues {
		if q.Bypass {
			n++
		}
	}
	verb := "bypass"
	if n == 1 {
		verb = "bypasses"
	}
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("%d of %s %s the verbs library (UCX rc_mlx5, or queues driven by a GPU)",
		n, counted(int64(len(r.Queues)), "queue pair"), verb)
}

// outcomes that keep a WR from having a latency.
var outcomes = []struct {
	of      func(attribution.Books) int64
	became  string
	why, do string
}{
	{func(b attribution.Books) int64 { return b.Outstanding }, "had not completed when the window ended",
		"Their completions are late, or were not asked for: an unsignalled work request ends with the next signalled one of its queue pair.",
		"Trace longer (-d). If that does not help, the peer or the path hangs."},
	{func(b attribution.Books) int64 { return b.Excluded }, "were on queue pairs whose place was not yet proven",
		"When tracing began, work requests were in flight, and until a queue drains or an index proves it, it is not known which completion belongs to which post.",
		"Trace longer (-d): one moment with nothing in flight is enough."},
	{func(b attribution.Books) int64 { return b.Flushed }, "completed with an error",
		"Their queue pairs broke: all that follows the first error is flushed.",
		"Look for the first error in the job's own log; the peer may be gone."},
	{func(b attribution.Books) int64 { return b.Lost }, "were lost by rdmatrace",
		"Records were dropped; LOSSES below says where.",
		"Please report this with a capture (-o FILE)."},
	{func(b attribution.Books) int64 { return b.Completed }, "completed without a measured latency",
		"They were unsignalled, and the post of the completion that retired them was not seen.",
		"Trace longer (-d)."},
}

func nothingMeasured(r *attribution.Report) (n nothing) {
	if d := r.Receives.Latency; d.Count > 0 && r.Kinds["send"].Posted == 0 {
		return nothing{
			what: fmt.Sprintf("Only receives completed, %s of them. Once a message was there, until it was in hand: %s.", count(d.Count), received(r)),
			why:  []string{"How long its messages take is seen in the process that sends them."},
			do:   []string{"Trace the sending side."},
		}
	}
	kind, verb := "work request", "were"
	onlyReceives := r.Kinds["receive"].Posted == r.WRs.Posted
	if onlyReceives {
		kind = "receive"
	}
	if r.WRs.Posted == 1 {
		verb = "was"
	}
	n.what = fmt.Sprintf("%s %s posted, but none has a latency to split.", counted(r.WRs.Posted, kind), verb)
	if onlyReceives {
		n.why = append(n.why, "This process only receives: how long its messages take is seen in the process that sends them.")
		n.do = append(n.do, "Trace the sending side.")
		if r.WRs.Outstanding > 0 {
			n.why = append(n.why, fmt.Sprintf("%s waited for a message when the window ended.", counted(r.WRs.Outstanding, "receive")))
		}
		r = withoutOutstanding(r)
	}
	for _, o := range outcomes {
		if k := o.of(r.WRs); k > 0 {
			n.why = append(n.why, fmt.Sprintf("%s %s. %s", count(k), o.became, o.why))
			n.do = append(n.do, o.do)
		}
	}
	n.why = append(n.why, missingProbes(r)...)
	if len(allDoubts(r)) > 0 {
		n.do = append(n.do, "Read DOUBTS below: what is said there may be the reason.")
	}
	return n
}

// withoutOutstanding: a receive that waits is no fault of its own.
func withoutOutstanding(r *attribution.Report) *attribution.Report {
	other := *r
	other.WRs.Outstanding = 0
	return &other
}
