package calibrate

import (
	"bytes"
	"os"
	"testing"

	"github.com/rdmatrace/rdmatrace/internal/testenv"
	"github.com/rdmatrace/rdmatrace/tracer/again"
)

// Whatever this kernel does, it is known, twice the same; and the filter is one
// that kills.
func TestPassesFilters(t *testing.T) {
	testenv.Root(t)
	first, err := PassesFilters(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	again, err := PassesFilters(t.Context())
	if err != nil || again != first {
		t.Errorf("%t, then %t, %v", first, again, err)
	}
	symbols, err := os.ReadFile("/proc/kallsyms")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(symbols, []byte(" __x64_sys_uretprobe\n")) && !first {
		t.Error("return probes issue no system call here, yet a filter was said to stop them")
	}
	t.Logf("return probes pass seccomp filters: %t", first)
}

// A program that does not know the filter's way is told of.
func TestBecomeFiltered(t *testing.T) {
	out, err := again.Command(t.Context(), filteredName, "/nonexistent").CombinedOutput()
	if err == nil || !bytes.Contains(out, []byte("no such file")) {
		t.Errorf("%v: %s", err, out)
	}
}
