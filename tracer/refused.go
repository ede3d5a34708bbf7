package tracer

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/cilium/ebpf"

	"github.com/rdmatrace/rdmatrace/bpf"
)

// load loads the programs of spec. Of those that a trace can do without, what this
// kernel refuses is left out, and missing says why: its verifier may be another one
// than any that these programs were tried with.
func (k *kernel) load(spec *ebpf.CollectionSpec, cfg *Config) error {
	coll, err := ebpf.NewCollection(spec)
	if err != nil && k.dropRefused(spec, cfg) {
		coll, err = ebpf.NewCollection(spec)
	}
	if err != nil {
		return explainLoad(err, cfg)
	}
	k.coll = coll
	return nil
}

// dispensable: without the program something is not observed. Uprobes and sched_switch
// are what a trace is made of; the iterators of tasks give each thread its storage, and
// are asked before probes are changed.
func dispensable(p *ebpf.ProgramSpec) bool {
	switch {
	case p.Type == ebpf.PerfEvent:
		return true
	case p.Type == ebpf.Tracing:
		return !slices.Contains(iterators, p.Name) && p.Name != bpf.RdmaProgSchedSwitch
	}
	return false
}

// dropRefused takes out of spec what the kernel does not load of it; false if there is
// nothing, or if it is not of these programs alone that it fails. Each is tried with the
// maps only: it is the kernel that tells, not a message.
func (k *kernel) dropRefused(spec *ebpf.CollectionSpec, cfg *Config) bool {
	names := slices.SortedFunc(maps.Keys(spec.Programs), func(a, b string) int {
		return cmp.Or(compareFalseFirst(dispensable(spec.Programs[a]), dispensable(spec.Programs[b])), strings.Compare(a, b))
	})
	refused := map[string]error{}
	for _, name := range names {
		one := spec.Copy()
		one.Programs = map[string]*ebpf.ProgramSpec{name: one.Programs[name]}
		coll, err := ebpf.NewCollection(one)
		if err == nil {
			coll.Close()
			continue
		}
		if !dispensable(spec.Programs[name]) {
			return false
		}
		refused[name] = err
	}
	for name, err := range refused {
		var ve *ebpf.VerifierError
		if errors.As(err, &ve) {
			cfg.Log.Debug("the kernel refuses a program", "program", name, "verifier", fmt.Sprintf("%+v", ve))
		}
		k.missing[name] = "the kernel refuses it: " + verdict(err)
		delete(spec.Programs, name)
	}
	return len(refused) > 0
}

// verdict is the verifier's last word, or else the error.
func verdict(err error) string {
	var ve *ebpf.VerifierError
	if !errors.As(err, &ve) {
		return err.Error()
	}
	for _, line := range slices.Backward(ve.Log) {
		// Its statistics come after what it found.
		if line = strings.TrimSpace(line); line != "" && !strings.HasPrefix(line, "processed ") {
			return line
		}
	}
	return ve.Cause.Error()
}

func compareFalseFirst(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}
