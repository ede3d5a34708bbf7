package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rdmatrace/rdmatrace/event"
	"github.com/rdmatrace/rdmatrace/internal/testenv"
	"github.com/rdmatrace/rdmatrace/testbed/outcome"
)

// report is what rdmatrace printed.
type report struct{ outcome.Report }

// balance fails the test where the books of a report do not balance.
func (r *report) balance(t *testing.T) {
	t.Helper()
	for name, b := range r.Kinds {
		if !b.Balanced() {
			t.Errorf("the books of kind %s do not balance: %+v", name, b)
		}
	}
	if !r.WRs.Balanced() {
		t.Errorf("the books do not balance: %+v", r.WRs)
	}
}

// dropped are the kinds of records of which some were dropped, with how many.
func (r *report) dropped() map[string]uint64 {
	out := map[string]uint64{}
	for name, n := range r.Losses {
		if kind, ok := strings.CutPrefix(name, "dropped: "); ok && n > 0 {
			out[kind] = n
		}
	}
	return out
}

// addUp fails the test where the classes do not add up to the latency, to the
// nanosecond, or a part is negative.
func (r *report) addUp(t *testing.T) {
	t.Helper()
	if err := r.AddUp(); err != nil {
		t.Error(err)
	}
}

// tracing is rdmatrace at work.
type tracing struct {
	*exec.Cmd
	stdout, stderr lockedBuffer
	exited         chan struct{}
	err            error // once exited
	capture        string
}

// traced is what rdmatrace left.
type traced struct {
	report
	events []event.Event
	ctx    *event.Context
	stderr string
	file   string // the capture
}

// startTrace starts rdmatrace with --json and a capture file, and returns when the gate is open.
func startTrace(t *testing.T, env []string, args ...string) *tracing {
	t.Helper()
	testenv.Root(t)
	dir, err := os.MkdirTemp(t.ArtifactDir(), "trace-") // go test -artifacts keeps the capture
	if err != nil {
		t.Fatal(err)
	}
	ready := filepath.Join(dir, "ready")
	tr := &tracing{exited: make(chan struct{}), capture: filepath.Join(dir, "capture.rdt")}
	tr.Cmd = exec.Command(built(t, rdmatrace), append([]string{"--json", "-o", tr.capture, "--ready-file", ready}, args...)...)
	tr.Env = append(os.Environ(), env...)
	tr.Stdout, tr.Stderr = &tr.stdout, &tr.stderr
	if err := tr.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		tr.err = tr.Wait()
		close(tr.exited)
	}()
	t.Cleanup(func() {
		_ = tr.Process.Kill()
		<-tr.exited
	})
	waitFor(t, "rdmatrace to begin", func() bool {
		select {
		case <-tr.exited:
			t.Fatalf("rdmatrace %v: %v\n%s", args, tr.err, tr.stderr.String())
		default:
		}
		_, err := os.Stat(ready)
		return err == nil
	})
	return tr
}

// attach traces a running process.
func attach(t *testing.T, pid int, args ...string) *tracing {
	t.Helper()
	return startTrace(t, nil, append([]string{"-p", strconv.Itoa(pid)}, args...)...)
}

// stop interrupts rdmatrace, as Ctrl-C does, and returns what it says.
func (tr *tracing) stop(t *testing.T) *traced {
	t.Helper()
	_ = tr.Process.Signal(syscall.SIGINT)
	return tr.result(t)
}

// result waits for rdmatrace to end by itself, and well.
func (tr *tracing) result(t *testing.T) *traced {
	t.Helper()
	select {
	case <-tr.exited:
	case <-time.After(patience):
		_ = tr.Process.Signal(syscall.SIGQUIT) // for its goroutines' stacks
		<-tr.exited
		t.Fatalf("rdmatrace does not end\n%s", tr.stderr.String())
	}
	got := tr.summary(t)
	var err error
	if got.events, got.ctx, err = outcome.ReadCapture(tr.capture); err != nil {
		t.Fatal(err)
	}
	for i := range got.events {
		// Objects are told of with the gate closed, too.
		if e := &got.events[i]; e.Object == nil && e.Time > got.ctx.Window.End {
			t.Fatalf("a %v is %d ns after the end of the window", e.Kind, e.Time-got.ctx.Window.End)
		}
	}
	return got
}

// summary is what rdmatrace printed, once it has ended, without the events.
func (tr *tracing) summary(t *testing.T) *traced {
	t.Helper()
	if tr.err != nil {
		t.Fatalf("%v: %v\n%s", tr.Args[1:], tr.err, tr.stderr.String())
	}
	got := &traced{stderr: tr.stderr.String(), file: tr.capture}
	if err := json.Unmarshal([]byte(tr.stdout.String()), &got.report); err != nil {
		t.Fatalf("the summary is no JSON: %v\n%.300s", err, tr.stdout.String())
	}
	return got
}

// traceFor traces a process until it has seen so many completions of it.
func traceFor(t *testing.T, pid int, completions int, args ...string) *traced {
	t.Helper()
	tr := attach(t, pid, args...)
	tr.sees(t, completions)
	return tr.stop(t)
}

// settling is how long a trace has to be at least for most of it to come after
// empty polls are observed no more.
const settling = time.Second

// sees waits until the capture under way holds so many completions, and most are
// observed as they are in a long trace.
func (tr *tracing) sees(t *testing.T, completions int) {
	t.Helper()
	settled := time.Now().Add(settling)
	waitEvery(t, 50*time.Millisecond, fmt.Sprintf("%d completions", completions), func() bool {
		select {
		case <-tr.exited:
			t.Fatalf("rdmatrace has ended: %v\n%s", tr.err, tr.stderr.String())
		default:
		}
		return outcome.Completions(tr.capture) >= completions && time.Now().After(settled)
	})
}

// program is the process that rdmatrace has started.
func (got *traced) program(t *testing.T) int {
	t.Helper()
	if len(got.ctx.Targets) == 0 {
		t.Fatal("no target in the context")
	}
	return int(got.ctx.Targets[0].PID)
}

// say runs rdmatrace to its end and returns what it says, however it ends.
func say(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	cmd := exec.Command(built(t, rdmatrace), args...)
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if _, exit := err.(*exec.ExitError); err != nil && !exit {
		t.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}
