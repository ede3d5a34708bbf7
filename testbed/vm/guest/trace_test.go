package guest

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/rdmatrace/rdmatrace/event"
	"github.com/rdmatrace/rdmatrace/testbed/outcome"
)

// report is what rdmatrace printed.
type report struct{ outcome.Report }

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
	if b, err := os.ReadFile(tr.capture); err == nil {
		keepText(t, ".rdt", string(b))
	}
	keepText(t, ".json", tr.stdout.String())
}

func keepText(t *testing.T, ending, text string) {
	if name := kept(t); name != "" {
		if err := os.WriteFile(name+ending, []byte(text), 0o666); err != nil {
			t.Logf("keep what was seen: %v", err)
		}
	}
}

// kept names what is to be kept of a test; "" if nothing is.
func kept(t *testing.T) string {
	out := os.Getenv("RDMATRACE_KEEP")
	if out == "" || !t.Failed() {
		return ""
	}
	return filepath.Join(out, strings.ReplaceAll(t.Name(), "/", "-"))
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
	var err error
	if got.events, got.ctx, err = outcome.ReadCapture(tr.capture); err != nil {
		t.Fatal(err)
	}
	return got
}

// sees waits until the capture under way holds so many completions.
func (tr *tracing) sees(t *testing.T, completions int) {
	t.Helper()
	waitFor(t, "completions in the capture", func() bool {
		tr.running(t)
		return outcome.Completions(tr.capture) >= completions
	})
}

// stacksNotTaken: of switches, so many in a time, and of samples, where the storage of
// their thread is in use (6.1's is then refused). The switches themselves are there.
const stacksNotTaken = "stacks of threads not taken"

// sound fails the test where the books don't balance, the classes don't add up
// to the latency, a part is negative or anything was lost.
func (r *report) sound(t *testing.T) {
	t.Helper()
	for name, b := range r.Kinds {
		if !b.Balanced() {
			t.Errorf("the books of kind %s do not balance: %+v", name, b)
		}
	}
	if r.WRs.Lost != 0 {
		t.Errorf("%d lost: %v", r.WRs.Lost, r.Doubts)
	}
	for name, n := range r.Losses {
		if n != 0 && name != stacksNotTaken {
			t.Errorf("%d %s", n, name)
		}
	}
	for name, totals := range map[string]*outcome.Totals{"sends": &r.Totals, "receives": &r.Received} {
		if err := totals.AddUp(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
