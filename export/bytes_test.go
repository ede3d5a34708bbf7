package export

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// bytesWanted asks a process of this test to print what it makes.
const bytesWanted = "RDMATRACE_EXPORT_BYTES"

// The same capture gives the same bytes in every format, whatever GOMAXPROCS and
// the garbage collector: each analysis is a process of its own, which reads the
// file anew, so that also the seeds of its maps differ.
func TestSameBytes(t *testing.T) {
	if os.Getenv(bytesWanted) != "" {
		printBytes(t)
		return
	}
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, c := range []struct{ procs, gc string }{{"1", "off"}, {"1", "5"}, {"2", "100"}, {"4", "5"}, {"4", "off"}} {
		cmd := exec.Command(program, "-test.run=^TestSameBytes$", "-test.v", "-test.count=1")
		cmd.Env = append(os.Environ(), bytesWanted+"=1", "GOMAXPROCS="+c.procs, "GOGC="+c.gc)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("GOMAXPROCS=%s GOGC=%s: %v\n%s", c.procs, c.gc, err, out)
		}
		var got []string
		ran := "procs " + c.procs
		for line := range strings.Lines(string(out)) {
			if strings.HasPrefix(line, "bytes ") {
				got = append(got, line)
			}
			if strings.TrimSpace(line) == ran {
				ran = ""
			}
		}
		if len(got) == 0 || ran != "" {
			t.Fatalf("GOMAXPROCS=%s GOGC=%s: not what was asked for:\n%s", c.procs, c.gc, out)
		}
		if want == nil {
			want = got
		}
		if !slices.Equal(got, want) {
			t.Errorf("GOMAXPROCS=%s GOGC=%s makes\n%sinstead of\n%s", c.procs, c.gc, strings.Join(got, ""), strings.Join(want, ""))
		}
	}
}

// printBytes prints a sum of each format of each capture: "bytes proxy.json 4711 1f..".
func printBytes(t *testing.T) {
	fmt.Printf("procs %d\n", runtime.GOMAXPROCS(0))
	for _, r := range readRecorded(t) {
		report := r.report(r.events)
		for _, ending := range slices.Sorted(maps.Keys(writers)) {
			out := render(t, writers[ending], report)
			fmt.Printf("bytes %s.%s %d %x\n", r.name, ending, len(out), sha256.Sum256([]byte(out)))
		}
	}
}
