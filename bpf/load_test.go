package bpf

import (
	"errors"
	"os"
	"sort"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/rlimit"
)

// maxInstructions is the budget of one program with its functions, as compiled; a loop that the
// compiler unrolled would break it.
const maxInstructions = 2000

func TestEveryProgramLoads(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("loading programs needs root")
	}
	if err := rlimit.RemoveMemlock(); err != nil {
		t.Logf("memlock: %v", err)
	}
	spec, err := LoadRdma()
	if err != nil {
		t.Fatal(err)
	}
	names := make([]string, 0, len(spec.Programs))
	for name, p := range spec.Programs {
		// Of a kernel module: testbed/vm has it.
		if p.AttachType == ebpf.AttachTraceFEntry || p.AttachType == ebpf.AttachTraceFExit {
			loaded, err := InModule(Modules[name], p)
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if !loaded {
				delete(spec.Programs, name)
				continue
			}
		}
		names = append(names, name)
	}
	sort.Strings(names)
	coll, err := ebpf.NewCollection(spec)
	if err != nil {
		var ve *ebpf.VerifierError
		if errors.As(err, &ve) {
			t.Fatalf("%+v", ve)
		}
		t.Fatal(err)
	}
	defer coll.Close()
	for _, name := range names {
		n := len(spec.Programs[name].Instructions)
		if n > maxInstructions {
			t.Errorf("%s: %d instructions, more than %d", name, n, maxInstructions)
		}
		info, err := coll.Programs[name].Info()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		verified, _ := info.VerifiedInstructions()
		t.Logf("%-28s %5d instructions, verifier walked %d", name, n, verified)
	}
}
