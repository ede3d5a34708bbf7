package e2e

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/rdmatrace/rdmatrace/event"
	"github.com/rdmatrace/rdmatrace/testbed/outcome"
)

// A reader of the capture that takes nothing while the trace lasts costs no record.
func TestSlowOutput(t *testing.T) {
	d := spinning(t, "LAT_NS=4000")
	p := d.job(t, "oracle-poller")
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	pipe, err := os.OpenFile(fifo, os.O_RDONLY|syscall.O_NONBLOCK, 0) // does not wait for the writer
	if err != nil {
		t.Fatal(err)
	}
	defer pipe.Close()
	tr := attach(t, p.Process.Pid, "-o", fifo, "-d", "2s")
	waitFor(t, "the summary", func() bool { return tr.stdout.String() != "" })
	b, err := io.ReadAll(pipe)
	if err != nil {
		t.Fatal(err)
	}
	<-tr.exited
	got := tr.summary(t)
	got.balance(t)
	if dropped := got.dropped(); len(dropped) > 0 || got.WRs.Lost > 0 {
		t.Errorf("%d work requests are lost: %v", got.WRs.Lost, dropped)
	}
	const room = 64 << 10 // of a pipe by itself, pipe(7)
	if len(b) < 2*room {
		t.Errorf("the capture has %d bytes, which a pipe nearly holds", len(b))
	}
	file := filepath.Join(t.TempDir(), "capture.rdt")
	if err := os.WriteFile(file, b, 0o600); err != nil {
		t.Fatal(err)
	}
	events, _, err := outcome.ReadCapture(file) // not one that is cut off
	if err != nil {
		t.Fatal(err)
	}
	completions := int64(0)
	for i := range events {
		if events[i].Kind == event.KindCompletion {
			completions++
		}
	}
	if completions < got.WRs.Completed {
		t.Errorf("%d completions in the capture, %d in the summary", completions, got.WRs.Completed)
	}
	if strings.Contains(got.stderr, "too slowly") {
		t.Errorf("it waited: %s", got.stderr)
	}
}
