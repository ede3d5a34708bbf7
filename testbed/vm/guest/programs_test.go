package guest

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/rlimit"

	"github.com/rdmatrace/rdmatrace/bpf"
	"github.com/rdmatrace/rdmatrace/internal/testenv"
)

// TestPrograms loads all programs. Where a kernel refuses some, each is tried
// by itself and named, with the verifier's words. A program whose tracepoint the
// kernel doesn't have, or whose module, is not a failure, and named too.
func TestPrograms(t *testing.T) {
	testenv.Root(t)
	if err := rlimit.RemoveMemlock(); err != nil {
		t.Fatal(err)
	}
	spec, err := bpf.LoadRdma()
	if err != nil {
		t.Fatal(err)
	}
	types, err := btf.LoadKernelSpec()
	if err != nil {
		t.Fatal(err)
	}
	all := len(spec.Programs)
	var lacking, absent, refused []string
	for name, p := range spec.Programs {
		if tp, ok := strings.CutPrefix(p.SectionName, "tp_btf/"); ok && !hasTracepoint(types, tp) {
			lacking = append(lacking, tp)
			delete(spec.Programs, name)
		}
		if p.AttachType == ebpf.AttachTraceFEntry || p.AttachType == ebpf.AttachTraceFExit {
			loaded, err := bpf.InModule(bpf.Modules[name], p)
			if err != nil || !loaded && vm() {
				t.Errorf("%s: the module is loaded: %v, %v", name, loaded, err)
			}
			if !loaded {
				absent = append(absent, name)
				delete(spec.Programs, name)
			}
		}
	}
	if load(spec.Copy()) != nil {
		for _, name := range slices.Sorted(maps.Keys(spec.Programs)) {
			if err := load(only(spec, name)); err != nil {
				refused = append(refused, name)
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	slices.Sort(lacking)
	slices.Sort(absent)
	feature("BPF programs that load", "%d of %d%s", len(spec.Programs)-len(refused), all,
		unless("refused", refused)+unless("their module is not loaded", absent))
	feature("tracepoints that the kernel lacks", "%s", orNone(lacking))
}

func hasTracepoint(types *btf.Spec, name string) bool {
	var def *btf.Typedef
	return types.TypeByName("btf_trace_"+name, &def) == nil
}

// only is the object with one program of it.
func only(spec *ebpf.CollectionSpec, name string) *ebpf.CollectionSpec {
	one := spec.Copy()
	maps.DeleteFunc(one.Programs, func(other string, _ *ebpf.ProgramSpec) bool { return other != name })
	return one
}

func load(spec *ebpf.CollectionSpec) error {
	coll, err := ebpf.NewCollection(spec)
	if err != nil {
		return verifierWords(err)
	}
	coll.Close()
	return nil
}

// verifierWords is the end of the verifier's log, where it says what it minds.
func verifierWords(err error) error {
	var ve *ebpf.VerifierError
	if !errors.As(err, &ve) {
		return err
	}
	const enough = 40
	return errors.New(strings.Join(ve.Log[max(0, len(ve.Log)-enough):], "\n"))
}

func unless(what string, names []string) string {
	if len(names) == 0 {
		return ""
	}
	return "; " + what + ": " + strings.Join(names, ", ")
}

func orNone(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}
