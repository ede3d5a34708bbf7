package tracer

import (
	"cmp"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/rdmatrace/rdmatrace/event"
	"github.com/rdmatrace/rdmatrace/tracer/facts"
)

// Beginning is what is known of the Context before the first event, for a
// reader that gets to see no more. Call it between New and Run.
func (t *Tracer) Beginning() *event.Context {
	c := &event.Context{Tool: t.cfg.Tool, ToolPID: uint32(os.Getpid()), Host: t.host, Devices: t.devices.Finish(), Cost: t.cost(), Notes: t.allNotes()}
	c.Window.Begin = monotonic()
	t.describeTargets(c)
	return c
}

// Context describes what the events were taken in. Call it after Run and
// before Close.
func (t *Tracer) Context() *event.Context {
	if err := t.halt(); err != nil {
		t.notes = append(t.notes, err.Error())
	}
	if t.targets.work != nil {
		t.targets.work.meter()
	}
	t.stacks.stop()
	for _, tg := range t.targets.list() {
		if tg.attach != nil {
			t.stacks.nameVerbs(tg.attach.functions)
		}
	}
	c := &event.Context{
		Tool: t.cfg.Tool, ToolPID: uint32(os.Getpid()), Host: t.host, Window: t.window,
		Counters: t.counters(), Stacks: t.stacks.list(), Mappings: t.stacks.store.Mappings(),
		Devices: t.devices.Finish(), IRQs: t.devices.IRQs(t.lines.list()), Cost: t.cost(),
	}
	t.describeTargets(c)
	c.Notes, c.Costs = t.allNotes(), t.targets.costs()
	t.cgroups.describe(c)
	for _, cpu := range slices.Sorted(maps.Keys(t.steal)) {
		if d := t.steal[cpu]; d > 0 {
			c.Steal = append(c.Steal, event.StolenCPU{CPU: cpu, StolenNS: uint64(d)})
		}
	}
	if note := t.steal.Note(time.Duration(t.window.End - t.window.Begin)); note != "" {
		c.Notes = append(c.Notes, note)
	}
	return c
}

func (t *Tracer) describeTargets(c *event.Context) {
	for _, tg := range t.targets.list() {
		c.Targets = append(c.Targets, tg.describe())
		c.Threads = append(c.Threads, tg.threads...)
	}
	c.Probes = t.probeResults()
}

// describe is the target as it was at the start, with how it stands now.
func (tg *target) describe() event.Target {
	d := tg.facts
	d.Exited = tg.hasEnded()
	return d
}

// look reads the facts of a process while they can be read.
func (tg *target) look() {
	if d, ok := facts.Target(uint32(tg.pid)); ok {
		tg.facts = d
	}
	if threads := facts.Threads(uint32(tg.pid)); len(threads) > 0 {
		tg.threads = threads
	}
}

// probeResults are the probes of the kernel and of every target.
func (t *Tracer) probeResults() []event.Probe {
	out := slices.Clone(t.probes)
	runs := t.runTimes()
	for i := range out {
		out[i].Misses = t.kernel.misses(out[i].Name)
		out[i].RunNS = runs.of(out[i].Name)
	}
	told := map[string]bool{}
	for _, tg := range t.targets.list() {
		if tg.attach == nil {
			continue
		}
		for _, r := range tg.attach.probes {
			r.probe.Hits = t.kernel.hits(&r)
			r.probe.RunNS, r.probe.Stepped = runs.of(r.key.program), r.stepped
			// What a program missed cannot be told by site: its first one has all.
			if !told[r.key.program] {
				told[r.key.program] = true
				r.probe.Misses = t.kernel.misses(r.key.program)
			}
			out = append(out, r.probe)
		}
	}
	slices.SortStableFunc(out, func(a, b event.Probe) int {
		return cmp.Or(cmp.Compare(a.Library, b.Library), cmp.Compare(a.Offset, b.Offset), cmp.Compare(a.Name, b.Name))
	})
	return out
}

// runTimes of the programs, as far as they were measured.
func (t *Tracer) runTimes() *runTimes {
	if t.targets.work == nil {
		return new(runTimes)
	}
	return &t.targets.work.pace.runs
}

// tracepoints are the names of the programs at the kernel's tracepoints.
func (t *Tracer) tracepoints() (names []string) {
	for i := range t.probes {
		names = append(names, t.probes[i].Name)
	}
	return names
}

// allNotes are sentences on what was not observed, each once.
func (t *Tracer) allNotes() []string {
	all := slices.Concat(t.notes, t.targets.notes(), t.stacks.notes(), t.devices.Notes())
	var out []string
	for _, n := range all {
		if !slices.Contains(out, n) {
			out = append(out, n)
		}
	}
	return out
}

// cost is what observing costs here, as far as it was calibrated.
func (t *Tracer) cost() event.Cost {
	emulated, stepped := t.trap.Emulated, t.trap.Stepped
	c := event.Cost{
		TrapNS: emulated.Entry, PairNS: emulated.Pair, InPost: emulated.InPost, CPUTime: processCPU(),
		SteppedTrapNS: stepped.Entry, SteppedPairNS: stepped.Pair, SteppedInPost: stepped.InPost,
	}
	c.Tracepoints = t.runTimes().shareOf(t.tracepoints())
	if t.targets.work != nil {
		c.Limit, c.OfThreads = t.cfg.MaxOverhead, t.targets.work.pace.share()
	}
	return c
}

// lineSet collects the interrupt lines that were seen.
type lineSet map[uint32]bool

func (s lineSet) watch(e *event.Event) {
	switch {
	case e.Kind == event.KindInterrupt && (e.IRQ.Kind == event.InterruptDevice || e.IRQ.Kind == event.InterruptThread):
		s[e.IRQ.Vec] = true
	case e.Kind == event.KindWaking && (e.Sched.Interrupt == event.InterruptDevice || e.Sched.Interrupt == event.InterruptThread):
		s[e.Sched.Vec] = true
	}
	if e.Kind == event.KindWaking && e.Sched.Chain != nil {
		for _, l := range e.Sched.Chain.Links[:e.Sched.Chain.N] {
			if l.Kind == event.InterruptDevice || l.Kind == event.InterruptThread {
				s[l.Vec] = true
			}
		}
	}
}

func (s lineSet) list() []uint32 {
	out := make([]uint32, 0, len(s))
	for line := range s {
		out = append(out, line)
	}
	slices.Sort(out)
	return out
}
