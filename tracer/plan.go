package tracer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/cilium/ebpf"

	"github.com/rdmatrace/rdmatrace/bpf"
	"github.com/rdmatrace/rdmatrace/tracer/calibrate"
	"github.com/rdmatrace/rdmatrace/tracer/locate"
	"github.com/rdmatrace/rdmatrace/tracer/place"
)

// Plan is what a trace would place, and what that would cost.
type Plan struct {
	Targets []TargetPlan
	// Kernel are the programs on tracepoints and functions of the kernel.
	Kernel []string
	Notes  []string
}

// TargetPlan is the part of one process.
type TargetPlan struct {
	PID    int
	Probes []PlannedProbe
	Costs  []PlannedCost // of a work request
}

// PlannedProbe is one probe in a function of the target.
type PlannedProbe struct {
	Verb    string
	Return  bool    // at the function's return, else at its entry
	Library string  // path
	Offset  uint64  // of the probe in the file; of the function for a return
	Found   string  // how the function was found
	Place   string  // why there; empty for a return
	Stepped bool    // the kernel single-steps the instruction there
	CostNS  float64 // of a hit, measured on this machine; 0: not known
	of      uint64  // offset of the function
}

// MakePlan looks at the processes of cfg as New does, and places nothing in them.
func MakePlan(ctx context.Context, cfg Config) (*Plan, error) {
	if err := cfg.setDefaults(); err != nil {
		return nil, err
	}
	programs, err := kernelPrograms(&cfg)
	if err != nil {
		return nil, err
	}
	targets, err := openTargets(ctx, &cfg)
	if err != nil {
		return nil, err
	}
	p := &Plan{Kernel: programs}
	written := slices.Contains(programs, rxeWrites)
	trap, err := calibrate.Run(ctx)
	if err != nil {
		p.Notes = append(p.Notes, "the cost of probes is unknown: "+err.Error())
	}
	for _, tg := range targets.list() {
		t := TargetPlan{PID: tg.pid}
		for lib, fns := range byLibrary(inUse(tg.snap)) {
			probes, err := planLibrary(lib, fns, trap, cfg.EmptyPolls, written)
			if err != nil {
				return nil, errors.Join(err, targets.close())
			}
			t.Probes = append(t.Probes, probes...)
			t.Costs = append(t.Costs, planCosts(lib, fns, probes, trap, cfg.EmptyPolls, written)...)
		}
		slices.SortFunc(t.Probes, comparePlanned)
		slices.SortFunc(t.Costs, comparePlannedCosts)
		p.Targets = append(p.Targets, t)
	}
	p.Notes = append(p.Notes, targets.notes()...)
	return p, targets.close()
}

func planLibrary(lib *locate.Library, fns locate.Functions, trap calibrate.Result, emptyPolls, written bool) ([]PlannedProbe, error) {
	file, err := lib.OpenFile()
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", lib.Path, err)
	}
	defer file.Close()
	var out []PlannedProbe
	for _, fn := range fns {
		probe := verbProbes[fn.Verb]
		p := PlannedProbe{Verb: fn.Verb.String(), Library: lib.Path, Found: fn.Source, of: fn.Offset}
		if !emptyPolls {
			p.Found += untilLearned(lib, fn, written)
		}
		p.Found += untilProven(lib, fn)
		cost := trap.Stepped
		s, err := entrySite(file, fn)
		if err != nil {
			s = place.Site{Why: err.Error()}
		}
		if s.Emulated {
			cost = trap.Emulated
		}
		if probe.enter != "" {
			p.Offset, p.Place, p.Stepped, p.CostNS = fn.Offset+s.Offset, s.Why, !s.Emulated, cost.Entry
			out = append(out, p)
		}
		if probe.exit != "" {
			p.Return, p.Offset, p.Place, p.Stepped, p.CostNS = true, fn.Offset, "", false, max(cost.Pair-cost.Entry, 0)
			out = append(out, p)
		}
	}
	return out, nil
}

// untilLearned says of a poll function's entry and return that they are taken out
// once the path that consumes completions is known, and which that seems to be.
// Of others than libmlx5's the kernel has to write the entries, and to be seen at that.
func untilLearned(lib *locate.Library, fn locate.Function, written bool) string {
	mlx5 := lib.Role&locate.RoleMLX5 != 0
	if siteProgram[fn.Verb] == "" || !mlx5 && !written {
		return ""
	}
	paths, err := findPaths(lib, fn)
	if err != nil {
		return "; stays: " + err.Error()
	}
	out := "; taken out once completions are seen at the " + paths[0].Why
	if !mlx5 {
		out += ", if the kernel writes their entries"
	}
	return out
}

// untilProven says of a builder's setters that they are taken out.
func untilProven(lib *locate.Library, fn locate.Function) string {
	if lib.Role&locate.RoleMLX5 == 0 || !isSetter(fn.Verb) {
		return ""
	}
	return "; taken out once the send queue is seen to tell the same at wr_complete"
}

func comparePlanned(a, b PlannedProbe) int {
	c := cmp.Or(cmp.Compare(a.Library, b.Library), cmp.Compare(a.Verb, b.Verb), cmp.Compare(a.of, b.of))
	if c == 0 && a.Return != b.Return { // the entry is first
		return map[bool]int{false: -1, true: 1}[a.Return]
	}
	return c
}

// kernelPrograms are the places in this kernel at which programs would follow
// scheduler, interrupts and tasks.
func kernelPrograms(cfg *Config) ([]string, error) {
	types, err := kernelTypes()
	if err != nil {
		return nil, err
	}
	spec, err := bpf.LoadRdma()
	if err != nil {
		return nil, fmt.Errorf("read the built-in BPF object: %w", err)
	}
	k := &kernel{missing: map[string]string{}}
	k.dropMissing(spec, types)
	out := []string{samplerClock}
	for _, prog := range spec.Programs {
		if prog.Type == ebpf.Tracing && prog.AttachType != ebpf.AttachTraceIter {
			out = append(out, prog.AttachTo)
		}
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}
