package guest

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/rdmatrace/rdmatrace/capture"
	"github.com/rdmatrace/rdmatrace/event"
)

// A report is what --json prints, as far as tests need it: export/schema.md.
type (
	books struct {
		Posted, Completed, Outstanding, Flushed, Lost, Excluded, Unsignalled, Bytes int64
	}
	distribution struct {
		Count   int64
		TotalNS int64 `json:"total_ns"`
		MinNS   int64 `json:"min_ns"`
	}
	classes struct {
		Software, Interrupt, Scheduling, Wire distribution
	}
	culprit struct {
		Name    string
		TotalNS int64 `json:"total_ns"`
	}
	cause struct {
		TotalNS int64 `json:"total_ns"`
		Count   int64
		Who     []culprit
	}
	probe struct {
		Name, Kind, Library, Offset, Source, Error string
	}
	totals struct {
		Latency   distribution
		Undecided distribution
		Classes   classes
		Causes    map[string]cause
	}
	report struct {
		totals
		WRs         books
		Kinds       map[string]books
		Received    totals
		DoneSources map[string]int64 `json:"done_sources"`
		Losses      map[string]uint64
		Doubts      []string
		Probes      []probe
	}
)

// tracing is rdmatrace at work.
type tracing struct {
	*process
	stdout  buffer
	input   io.WriteCloser
	capture string
}

// traced is what it left.
type traced struct {
	report
	events []event.Event
	ctx    *event.Context
}

// startTrace starts rdmatrace with --json and a capture file, and returns when
// its gate is open.
func startTrace(t *testing.T, args ...string) *tracing {
	t.Helper()
	dir := t.TempDir()
	ready := filepath.Join(dir, "ready")
	tr := &tracing{capture: filepath.Join(dir, "capture.rdt")}
	tr.process = command(append([]string{binary(t, "rdmatrace"), "--json", "-o", tr.capture, "--ready-file", ready}, args...)...)
	tr.Stdout = &tr.stdout
	var err error
	if tr.input, err = tr.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { keep(t, tr) })
	tr.start(t)
	waitFor(t, "rdmatrace to begin", func() bool {
		tr.running(t)
		_, err := os.Stat(ready)
		return err == nil
	})
	return tr
}

// keep leaves what a failed test saw where it outlives the guest.
func keep(t *testing.T, tr *tracing) {
	out := os.Getenv("RDMATRACE_KEEP")
	if out == "" || !t.Failed() {
		return
	}
	name := filepath.Join(out, strings.ReplaceAll(t.Name(), "/", "-"))
	b, err := os.ReadFile(tr.capture)
	for _, e := range []error{
		err, os.WriteFile(name+".rdt", b, 0o666), os.WriteFile(name+".json", []byte(tr.stdout.String()), 0o666),
	} {
		if e != nil {
			t.Logf("keep what was seen: %v", e)
		}
	}
}

// interrupt ends the trace as Ctrl-C does.
func (tr *tracing) interrupt(t *testing.T) *traced {
	t.Helper()
	_ = tr.Process.Signal(syscall.SIGINT)
	return tr.result(t)
}

// result waits for rdmatrace to end by itself, and well.
func (tr *tracing) result(t *testing.T) *traced {
	t.Helper()
	tr.wait(t)
	got := &traced{}
	if err := json.Unmarshal([]byte(tr.stdout.String()), &got.report); err != nil {
		t.Fatalf("the summary is no JSON: %v\n%.300s", err, tr.stdout.String())
	}
	f, err := os.Open(tr.capture)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := capture.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	for {
		var e event.Event
		switch err := r.Next(&e); {
		case errors.Is(err, io.EOF) && !r.Cut():
			got.ctx = r.Context()
			return got
		case err != nil:
			t.Fatalf("%s: %v, cut %v", tr.capture, err, r.Cut())
		}
		got.events = append(got.events, e)
	}
}

// sees waits until the capture under way holds so many completions.
func (tr *tracing) sees(t *testing.T, completions int) {
	t.Helper()
	waitFor(t, "completions in the capture", func() bool {
		tr.running(t)
		names, _ := filepath.Glob(tr.capture + ".*.tmp")
		if len(names) != 1 {
			return false
		}
		b, err := os.ReadFile(names[0])
		return err == nil && countCompletions(b) >= completions
	})
}

func countCompletions(b []byte) (n int) {
	r, err := capture.NewReader(bytes.NewReader(b))
	if err != nil {
		return 0
	}
	var e event.Event
	for r.Next(&e) == nil {
		if e.Kind == event.KindCompletion {
			n++
		}
	}
	return n
}

// sound fails the test where the books don't balance, the classes don't add up
// to the latency, a part is negative or anything was lost.
func (r *report) sound(t *testing.T) {
	t.Helper()
	for name, b := range r.Kinds {
		if b.Posted != b.Completed+b.Outstanding+b.Flushed+b.Lost+b.Excluded {
			t.Errorf("the books of kind %s do not balance: %+v", name, b)
		}
	}
	if r.WRs.Lost != 0 {
		t.Errorf("%d lost: %v", r.WRs.Lost, r.Doubts)
	}
	for name, n := range r.Losses {
		if n != 0 {
			t.Errorf("%d %s", n, name)
		}
	}
	for name, s := range map[string]totals{"sends": r.totals, "receives": r.Received} {
		c := s.Classes
		parts := []distribution{s.Undecided, c.Software, c.Interrupt, c.Scheduling, c.Wire}
		sum := int64(0)
		for _, d := range parts {
			sum += d.TotalNS
			if d.MinNS < 0 {
				t.Errorf("%s: a part is negative: %+v", name, d)
			}
		}
		if sum != s.Latency.TotalNS {
			t.Errorf("%s: latency %d ns, its parts %d", name, s.Latency.TotalNS, sum)
		}
	}
}
