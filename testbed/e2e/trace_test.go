package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rdmatrace/rdmatrace/capture"
	"github.com/rdmatrace/rdmatrace/event"
	"github.com/rdmatrace/rdmatrace/internal/testenv"
)

// A report is what --json prints, as far as tests need it: export/schema.md.
type (
	books struct {
		Posted, Completed, Outstanding, Flushed, Lost, Excluded, Unsignalled, Bytes int64
	}
	distribution struct {
		Count   int64
		TotalNS int64   `json:"total_ns"`
		MeanNS  float64 `json:"mean_ns"`
		P50NS   int64   `json:"p50_ns"`
		P90NS   int64   `json:"p90_ns"`
		P99NS   int64   `json:"p99_ns"`
		P999NS  int64   `json:"p999_ns"`
		MaxNS   int64   `json:"max_ns"`
		MinNS   int64   `json:"min_ns"`
	}
	classes struct {
		Software, Interrupt, Scheduling, Wire distribution
	}
	split struct {
		Count        int64
		LatencyNS    float64 `json:"latency_ns"`
		SoftwareNS   float64 `json:"software_ns"`
		InterruptNS  float64 `json:"interrupt_ns"`
		SchedulingNS float64 `json:"scheduling_ns"`
		WireNS       float64 `json:"wire_ns"`
		UndecidedNS  float64 `json:"undecided_ns"`
		ProbeNS      float64 `json:"probe_ns"`
		Causes       map[string]float64
	}
	culprit struct {
		Name    string
		TotalNS int64 `json:"total_ns"`
		Count   int64
	}
	cause struct {
		TotalNS int64 `json:"total_ns"`
		Count   int64
		Who     []culprit
	}
	group struct {
		Key       string
		Bytes     int64
		Latency   distribution
		Classes   classes
		Undecided distribution
		AtP50     split `json:"at_p50"`
		AtP99     split `json:"at_p99"`
	}
	incident struct {
		Cause, Who string
		BeginNS    int64 `json:"begin_ns"`
		EndNS      int64 `json:"end_ns"`
		WRs        int64
		DelayNS    int64 `json:"delay_ns"`
		Worst      struct {
			PID   int
			QP    uint32
			Index int64
			Op    string
			Bytes int64
		}
	}
	queue struct {
		PID       int
		QP        uint32
		Peer      string
		Posted    int64
		DepthMean float64 `json:"depth_mean"`
		DepthMax  int64   `json:"depth_max"`
		IdleNS    int64   `json:"idle_ns"`
		Bypass    bool
	}
	report struct {
		Tool        string
		WindowNS    int64 `json:"window_ns"`
		WRs         books
		Kinds       map[string]books
		Latency     distribution
		Undecided   distribution
		Uncertain   distribution
		Probe       distribution
		Classes     classes
		AtP50       split `json:"at_p50"`
		AtP99       split `json:"at_p99"`
		Causes      map[string]cause
		Groups      map[string][]group
		Incidents   []incident
		Queues      []queue
		Demands     map[string]int64
		DoneSources map[string]int64 `json:"done_sources"`
		Losses      map[string]uint64
		Verdict     string
		Doubts      []string
		Probes      []struct{ Name, Kind, Library, Error string }
	}
)

// balance fails the test where the books of a report do not balance.
func (r *report) balance(t *testing.T) {
	t.Helper()
	for name, b := range r.Kinds {
		if sum := b.Completed + b.Outstanding + b.Flushed + b.Lost + b.Excluded; sum != b.Posted {
			t.Errorf("the books of kind %s: %+v: %d posted, %d accounted for", name, b, b.Posted, sum)
		}
	}
	if b := r.WRs; b.Posted != b.Completed+b.Outstanding+b.Flushed+b.Lost+b.Excluded {
		t.Errorf("the books: %+v do not balance", b)
	}
}

// addUp fails the test where the classes do not add up to the latency, to the
// nanosecond, or a part is negative.
func (r *report) addUp(t *testing.T) {
	t.Helper()
	c := r.Classes
	sum := r.Undecided.TotalNS + c.Software.TotalNS + c.Interrupt.TotalNS + c.Scheduling.TotalNS + c.Wire.TotalNS
	if sum != r.Latency.TotalNS {
		t.Errorf("latency %d ns, its parts %d", r.Latency.TotalNS, sum)
	}
	for name, d := range map[string]distribution{"software": c.Software, "interrupt": c.Interrupt,
		"scheduling": c.Scheduling, "wire": c.Wire, "undecided": r.Undecided} {
		if d.MinNS < 0 || d.TotalNS < 0 {
			t.Errorf("%s is negative: %+v", name, d)
		}
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
	if tr.err != nil {
		t.Fatalf("%v: %v\n%s", tr.Args[1:], tr.err, tr.stderr.String())
	}
	got := &traced{stderr: tr.stderr.String(), file: tr.capture}
	if err := json.Unmarshal([]byte(tr.stdout.String()), &got.report); err != nil {
		t.Fatalf("the summary is no JSON: %v\n%.300s", err, tr.stdout.String())
	}
	got.events, got.ctx = readCapture(t, tr.capture)
	return got
}

// traceFor traces a process until it has seen so many completions of it.
func traceFor(t *testing.T, pid int, completions int, args ...string) *traced {
	t.Helper()
	tr := attach(t, pid, args...)
	tr.sees(t, completions)
	return tr.stop(t)
}

// sees waits until the capture under way holds so many completions.
func (tr *tracing) sees(t *testing.T, completions int) {
	t.Helper()
	waitEvery(t, 50*time.Millisecond, fmt.Sprintf("%d completions", completions), func() bool {
		select {
		case <-tr.exited:
			t.Fatalf("rdmatrace has ended: %v\n%s", tr.err, tr.stderr.String())
		default:
		}
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

// readCapture returns a whole capture file.
func readCapture(t *testing.T, path string) ([]event.Event, *event.Context) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := capture.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	var events []event.Event
	for {
		var e event.Event
		switch err := r.Next(&e); {
		case err == io.EOF && !r.Cut():
			return events, r.Context()
		case err != nil:
			t.Fatalf("%s: %v, cut %v", path, err, r.Cut())
		}
		events = append(events, e)
	}
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
