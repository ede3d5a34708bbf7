package tracer

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/rdmatrace/rdmatrace/internal/testenv"
	"github.com/rdmatrace/rdmatrace/tracer/locate"
)

// TestRollback: where a later batch cannot be attached, nothing is left of those
// before: no link, no half of a pair, no breakpoint. Then each function gets its own
// chance, and only the one that cannot be probed is left out.
func TestRollback(t *testing.T) {
	testenv.Root(t)
	for _, single := range []bool{false, true} {
		t.Run(fmt.Sprintf("single=%v", single), func(t *testing.T) { rollback(t, single) })
	}
}

func rollback(t *testing.T, single bool) {
	a := attacherOfProgram(t, single)
	lib, offsets := libc(t, a.pid, "getpid", "getuid", "getgid")
	fns := locate.Functions{
		{Library: lib, Verb: locate.PollCQ, Offset: offsets[0]},
		{Library: lib, Verb: locate.PostSend, Offset: offsets[1]},
		{Library: lib, Verb: locate.ReqNotifyCQ, Offset: nowhere},
	}
	// changed are the functions whose code in the process is not the file's.
	changed := func() (which []int) {
		for i, at := range offsets {
			if !bytes.Equal(codeAt(t, a.pid, at), fileAt(t, lib.Open, at)) {
				which = append(which, i)
			}
		}
		return which
	}
	before := openLinks(t)
	var plan []*batch
	n, err := a.attachFile(lib, func(file *os.File) []*batch {
		plan = a.plan(lib, fns, file)
		return plan
	})
	if n != 0 || err == nil {
		t.Fatalf("%d probes were attached where one cannot be: %v", n, err)
	}
	// The one that fails comes last: all of the others had been attached.
	if last := plan[len(plan)-1]; len(plan) != 5 || last.sites[0].offset != nowhere {
		t.Fatalf("%d batches, the last at %#x", len(plan), last.sites[0].offset)
	}
	if len(a.links.all)+len(a.data)+len(a.batches)+len(a.done)+len(a.polls[0].links) != 0 {
		t.Errorf("left: %d links, %d and %d batches, %d marks, %d links of the poll function", len(a.links.all), len(a.data), len(a.batches),
			len(a.done), len(a.polls[0].links))
	}
	if now := openLinks(t); now != before {
		t.Errorf("%d links are open, %d were", now, before)
	}
	if c := changed(); c != nil {
		t.Errorf("breakpoints are left in functions %v", c)
	}
	for _, r := range a.probes {
		if r.probe.Error == "" {
			t.Errorf("%s at %#x is said to be in", r.key.program, r.probe.Offset)
		}
	}
	if n, err := a.attach(fns); n != 4 || err == nil {
		t.Errorf("%d probes were attached one by one: %v", n, err)
	}
	if c, now := changed(), openLinks(t); !slices.Equal(c, []int{0, 1}) || now <= before {
		t.Errorf("breakpoints are in functions %v, %d links are open", c, now-before)
	}
	for _, r := range a.probes {
		if (r.probe.Error == "") != (r.key.offset != nowhere) {
			t.Errorf("%s at %#x: %q", r.key.program, r.probe.Offset, r.probe.Error)
		}
	}
	if err := a.links.close(); err != nil {
		t.Error(err)
	}
	if c := changed(); c != nil {
		t.Errorf("breakpoints are left in functions %v after all was closed", c)
	}
}

// codeBytes of a function: the probe at its entry is among them.
const codeBytes = 16

// codeAt is the code of libc in a process, at an offset of the file.
func codeAt(t *testing.T, pid int, offset uint64) []byte {
	t.Helper()
	for _, m := range codeOf(pid, "/libc.so") {
		if offset >= m.Offset && offset < m.Offset+(m.End-m.Start) {
			return fileAt(t, fmt.Sprintf("/proc/%d/mem", pid), m.Start+offset-m.Offset)
		}
	}
	t.Fatalf("offset %#x of libc is not mapped", offset)
	return nil
}

func fileAt(t *testing.T, path string, at uint64) []byte {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b := make([]byte, codeBytes)
	if _, err := io.ReadFull(io.NewSectionReader(f, int64(at), codeBytes), b); err != nil {
		t.Fatal(err)
	}
	return b
}

// openLinks counts the links and perf events that are open.
func openLinks(t *testing.T) (n int) {
	t.Helper()
	for _, f := range openFiles(t) {
		if strings.Contains(f, "bpf_link") || strings.Contains(f, "perf_event") {
			n++
		}
	}
	return n
}
