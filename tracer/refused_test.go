package tracer

import (
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"

	"github.com/rdmatrace/rdmatrace/bpf"
	"github.com/rdmatrace/rdmatrace/event"
	"github.com/rdmatrace/rdmatrace/internal/testenv"
)

// loadSpoilt loads all programs, of which the verifier refuses some.
func loadSpoilt(t *testing.T, names ...string) (*kernel, error) {
	t.Helper()
	testenv.Root(t)
	types, err := kernelTypes()
	if err != nil {
		t.Fatal(err)
	}
	spec, err := bpf.LoadRdma()
	if err != nil {
		t.Fatal(err)
	}
	k := &kernel{missing: map[string]string{}}
	if k.cpus, err = ebpf.PossibleCPU(); err != nil {
		t.Fatal(err)
	}
	k.dropMissing(spec, types)
	cfg := &Config{PIDs: []int{noThread}, Log: slog.New(slog.NewTextHandler(io.Discard, nil))}
	if err := cfg.setDefaults(); err != nil {
		t.Fatal(err)
	}
	if err := configure(spec, types, k.cpus, cfg); err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		p := spec.Programs[name]
		// A helper that there is not; the first instruction carries what belongs to the program.
		p.Instructions = slices.Insert(p.Instructions, 1, asm.BuiltinFunc(9999).Call())
	}
	err = k.load(spec, cfg)
	if k.coll != nil {
		t.Cleanup(k.coll.Close)
	}
	return k, err
}

// TestRefusedPrograms: what the verifier refuses is left out, with its reason, and
// what would mislead without it.
func TestRefusedPrograms(t *testing.T) {
	spoilt := []string{bpf.RdmaProgSchedWaking, bpf.RdmaProgSoftirqExit, bpf.RdmaProgSample}
	k, err := loadSpoilt(t, spoilt...)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range spoilt {
		if k.prog(name) != nil || !strings.Contains(k.missing[name], "invalid func unknown#9999") {
			t.Errorf("%s: %v, %q", name, k.prog(name), k.missing[name])
		}
	}
	var all links
	probes, notes := k.attachTracepoints(&all)
	defer func() {
		if err := all.close(); err != nil {
			t.Error(err)
		}
	}()
	failed := map[string]event.Probe{}
	for _, p := range probes {
		if p.Error != "" {
			failed[p.Name] = p
		}
	}
	text := strings.Join(notes, "\n")
	for name, want := range map[string]string{
		bpf.RdmaProgSchedWaking:  "wakeups are not observed: interrupt and scheduling cannot be told apart (sched_waking: the kernel refuses it: invalid func unknown#9999)",
		bpf.RdmaProgSoftirqEntry: "softirqs are not observed (softirq_entry: not without softirq_exit)",
		bpf.RdmaProgSoftirqExit:  "softirq_exit is not observed (the kernel refuses it: invalid func unknown#9999)",
	} {
		if !strings.Contains(text, want) || failed[name].Name != name {
			t.Errorf("%s: %+v; of the notes\n%s\nnone is %q", name, failed[name], text, want)
		}
	}
	if p := failed[bpf.RdmaProgSchedSwitch]; p.Error != "" {
		t.Error(p.Error)
	}
	if _, err := k.clock(clock{-1, 0}); err == nil || !strings.Contains(err.Error(), "invalid func unknown#9999") {
		t.Errorf("a clock for samples: %v", err)
	}
}

// TestRefusedProgramNeeded: without some there is no trace.
func TestRefusedProgramNeeded(t *testing.T) {
	for _, name := range []string{bpf.RdmaProgSchedSwitch, bpf.RdmaProgTaskFound, bpf.RdmaProgPostSendEnter} {
		k, err := loadSpoilt(t, name, bpf.RdmaProgSchedWaking)
		if err == nil || k.coll != nil || len(k.missing[bpf.RdmaProgSchedWaking]) > 0 {
			t.Errorf("%s: %v, %v", name, err, k.missing)
		}
		if err != nil && (!strings.Contains(err.Error(), "invalid func unknown#9999") || strings.Contains(err.Error(), "capabilities")) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
