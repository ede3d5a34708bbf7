package tracer

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/rdmatrace/rdmatrace/bpf"
	"github.com/rdmatrace/rdmatrace/event"
)

// lostWithout says what is not observed when a tracepoint's program cannot be
// attached, for the notes. Programs not listed lose a detail.
var lostWithout = map[string]string{
	bpf.RdmaProgSchedSwitch:      "scheduling is not observed: it counts as software or undecided",
	bpf.RdmaProgSchedWaking:      "wakeups are not observed: interrupt and scheduling cannot be told apart",
	bpf.RdmaProgSchedWakeup:      "who ran while a woken thread waited is not observed",
	bpf.RdmaProgIrqHandlerEntry:  "device interrupts are not observed",
	bpf.RdmaProgSoftirqEntry:     "softirqs are not observed",
	bpf.RdmaProgSchedProcessFork: "threads that start during the trace are followed late",
	bpf.RdmaProgRxeCqeEnter:      "when soft-RoCE's completions are done is inferred",
	bpf.RdmaProgSample:           "what ran while completions waited is not sampled",
	bpf.RdmaProgRxeCqeExit:       "when soft-RoCE's completions are done is inferred",
	bpf.RdmaProgCqEventEntry:     "which completion queue an event was for is not observed",
	bpf.RdmaProgCqEventExit:      "which completion queue an event was for is not observed",
}

// iterators are run when they are needed.
var iterators = []string{bpf.RdmaProgTaskFound, bpf.RdmaProgPollsFound, bpf.RdmaProgPollsForgotten, bpf.RdmaProgBuildsFound, bpf.RdmaProgCallsForgotten}

// attachTracepoints attaches every loaded program of tracepoints and of the
// kernel's functions. None of them is required: each that fails costs a note.
func (k *kernel) attachTracepoints(links *links) (probes []event.Probe, notes []string) {
	names := make([]string, 0, len(k.coll.Programs))
	for name, p := range k.coll.Programs {
		if p.Type() == ebpf.Tracing && !slices.Contains(iterators, name) {
			names = append(names, name)
		}
	}
	// A handler's end is worth nothing without its entry, so ends come first.
	slices.SortFunc(names, func(a, b string) int {
		if e := strings.HasSuffix(b, "_exit"); e != strings.HasSuffix(a, "_exit") {
			if e {
				return 1
			}
			return -1
		}
		return strings.Compare(a, b)
	})
	attached := map[string]bool{}
	for _, name := range names {
		probe := event.Probe{Name: name, Kind: kindOfProgram(name)}
		if end, is := endOf(name); is && !attached[end] {
			probe.Error = "not without " + end
			probes = append(probes, probe)
			continue
		}
		l, err := link.AttachTracing(link.TracingOptions{Program: k.prog(name)})
		if err != nil {
			probe.Error = err.Error()
		} else {
			links.add(l)
			attached[name] = true
		}
		probes = append(probes, probe)
	}
	k.written = attached[bpf.RdmaProgRxeCqeEnter] && attached[bpf.RdmaProgRxeCqeExit]
	for name, why := range k.missing {
		if name == bpf.RdmaProgSample {
			continue // whoever opens its clocks says so
		}
		probes = append(probes, event.Probe{Name: name, Kind: kindOfProgram(name), Error: why})
	}
	slices.SortFunc(probes, func(a, b event.Probe) int { return strings.Compare(a.Name, b.Name) })
	for _, p := range probes {
		if p.Error != "" {
			notes = append(notes, tracepointNote(p))
		}
	}
	return probes, notes
}

// endOf is the program that sees the end of what another one sees begin: without it
// all that follows would seem to happen inside.
func endOf(name string) (end string, is bool) {
	for entry, exit := range map[string]string{"_entry": "_exit", bpf.RdmaProgRxeCqeEnter: bpf.RdmaProgRxeCqeExit} {
		if begin, is := strings.CutSuffix(name, entry); is {
			return begin + exit, true
		}
	}
	return "", false
}

func kindOfProgram(name string) string {
	switch _, inModule := bpf.Modules[name]; {
	case !inModule:
		return "tp_btf"
	case strings.HasSuffix(name, "_exit"):
		return "fexit"
	}
	return "fentry"
}

func tracepointNote(p event.Probe) string {
	if lost := lostWithout[p.Name]; lost != "" {
		return fmt.Sprintf("%s (%s: %s)", lost, p.Name, p.Error)
	}
	return fmt.Sprintf("%s is not observed (%s)", p.Name, p.Error)
}

// findTasks runs the task iterator: it records what every thread of a target
// does, and gives each the storage that its verbs and waits are kept in.
func (k *kernel) findTasks() error {
	if err := k.eachTask(bpf.RdmaProgTaskFound); err != nil {
		return fmt.Errorf("look at the targets' threads: %w", err)
	}
	return nil
}

// eachTask runs an iterator program over all tasks of the machine.
func (k *kernel) eachTask(program string) error {
	it, err := link.AttachIter(link.IterOptions{Program: k.prog(program)})
	if err != nil {
		return fmt.Errorf("attach %s: %w", program, err)
	}
	defer it.Close()
	r, err := it.Open()
	if err != nil {
		return fmt.Errorf("run %s: %w", program, err)
	}
	defer r.Close()
	if _, err := io.Copy(io.Discard, r); err != nil {
		return fmt.Errorf("run %s: %w", program, err)
	}
	return nil
}
