package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/rdmatrace/rdmatrace/attribution"
	"github.com/rdmatrace/rdmatrace/capture"
	"github.com/rdmatrace/rdmatrace/event"
	"github.com/rdmatrace/rdmatrace/tracer"
)

// trace observes processes until a signal, the end of the time or of the last
// process. The summary comes before the probes go, which can take seconds.
func (c *command) trace() (err error) {
	if c.argv != nil {
		if _, err := exec.LookPath(c.argv[0]); err != nil {
			return fmt.Errorf("cannot run %s: %w", c.argv[0], reason(err))
		}
	}
	outs := newOutputs(c.stdout)
	ctx, sig := watchSignals(context.Background(), true, func() {
		outs.abort()
		c.discarded()
	})
	defer sig.stop()
	defer outs.abort()
	if err := outs.open(c.outputFlags()); err != nil {
		return err
	}

	t := &tracing{command: c, hide: func() {}}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	t.stop = func() {
		t.over.Store(true)
		cancel()
	}
	if isTerminal(c.stderr) {
		t.hide = showProgress(c.stderr, func() int { return terminalWidth(c.stderr) }, sig.asked, t.progress)
		defer t.hide()
	}
	src, err := tracer.New(ctx, tracer.Config{
		PIDs: c.pids, Command: c.argv, CommandStdout: c.programStdout(outs), Tool: versionString(),
		Debug: c.debug, Log: c.logger(), Opened: t.opened,
		EmptyPolls: c.emptyPolls, MaxOverhead: c.limit,
	})
	if err != nil {
		return stopped(ctx, err)
	}
	err = t.observe(ctx, src, outs)
	t.hide()
	err = errors.Join(err, src.Close())
	if program := src.Command(); program != nil && t.open.Load() {
		c.await(program, sig)
	}
	return err
}

// tracing is what becomes of the events.
type tracing struct {
	*command
	stop  func() // ends the trace
	hide  func() // takes away what a terminal shows of its progress
	open  atomic.Bool
	over  atomic.Bool // tracing has ended, of itself
	began time.Time   // once it is open
	timer *time.Timer

	engine      *attribution.Engine
	writer      *capture.Writer // nil: not wanted, or failed
	spool       *spool          // what writer writes to
	failed      error           // of writer
	completions atomic.Int64
}

// observe is a trace from the opening of the gate to the last file.
func (t *tracing) observe(ctx context.Context, src *tracer.Tracer, outs *outputs) error {
	if err := t.begin(src.Beginning(), outs.get("--output")); err != nil {
		return err
	}
	err := src.Run(ctx, t.add)
	t.over.Store(true)
	if !t.open.Load() {
		return stopped(ctx, err)
	}
	t.timer.Stop()
	return errors.Join(err, t.finish(src.Context(), outs))
}

// stopped is the error of a trace that did not begin.
func stopped(ctx context.Context, err error) error {
	if ctx.Err() != nil && (err == nil || errors.Is(err, ctx.Err())) {
		return errors.New("stopped before tracing had begun")
	}
	return err
}

// begin prepares for events, with what is known before the first.
func (t *tracing) begin(first *event.Context, out *output) (err error) {
	first = capture.CleanContext(first)
	t.engine = attribution.New(analysisConfig(first))
	if out == nil {
		return nil
	}
	t.spool = newSpool(out, spoolLimit)
	if t.writer, err = capture.NewWriter(t.spool); err == nil {
		err = t.writer.WriteContext(first)
	}
	if err == nil {
		err = t.spool.flush() // a full disk is told of now
	}
	if err != nil {
		return out.failed(err)
	}
	return nil
}

// forever is a duration that does not end.
const forever time.Duration = 1<<63 - 1

// opened is called once, when every probe is in and events begin to count.
func (t *tracing) opened() {
	if t.duration == 0 {
		t.duration = forever
	}
	t.began = time.Now()
	t.open.Store(true) // what is above may be shown from now on
	t.timer = time.AfterFunc(t.duration, t.stop)
	if t.ready == "" {
		return
	}
	if err := os.WriteFile(t.ready, nil, 0o666); err != nil {
		fmt.Fprintf(t.stderr, "rdmatrace: --ready-file: %s\n", oneLine(err))
	}
}

// add takes an event. A capture file that cannot be written any more, as on a
// full disk, costs the file and not the summary.
func (t *tracing) add(e *event.Event) error {
	if e.Kind == event.KindCompletion {
		t.completions.Add(1)
	}
	if t.writer != nil {
		if err := t.writer.Write(e); err != nil {
			t.failed, t.writer = err, nil
		}
	}
	t.engine.Add(e)
	return nil
}

// finish prints the summary and completes the files.
func (t *tracing) finish(last *event.Context, outs *outputs) error {
	last = capture.CleanContext(last)
	report := t.engine.Finish(last)
	t.hide()
	delivered := t.deliver(report, outs)
	captured := outs.finish("--output", func(io.Writer) error { return t.finishCapture(last) })
	return errors.Join(delivered, captured)
}

// finishCapture writes the end of the capture file, and what still waits for it.
func (t *tracing) finishCapture(last *event.Context) error {
	if t.failed != nil {
		return t.failed
	}
	stalled := t.spool.stalled() // while it was traced, not what Close may wait
	if err := t.writer.Close(last); err != nil {
		return err
	}
	if stalled > 0 {
		fmt.Fprintf(t.stderr, "rdmatrace: --output: %s takes data too slowly: the trace waited %v for it, for which records may have been dropped; write it to something faster\n",
			printable(t.capture), stalled.Round(time.Millisecond))
	}
	return t.spool.Close()
}

// await waits for the program that was started and says how it ended. A signal
// that asked rdmatrace to stop is passed on, unless the terminal has sent it to both; a
// hangup may come twice, as it does from a terminal anyway.
func (c *command) await(p *tracer.Command, sig *signals) {
	select {
	case <-p.Done():
	default:
		fmt.Fprintf(c.stderr, "rdmatrace: waiting for %s (pid %d) to end\n", printable(c.argv[0]), p.PID())
	}
	select {
	case <-p.Done():
	case <-sig.asked:
		if !isTerminal(c.stdin) || sig.first != os.Interrupt {
			_ = syscall.Kill(p.PID(), sig.first.(syscall.Signal))
		}
		<-p.Done()
	}
	fmt.Fprintf(c.stderr, "rdmatrace: %s %s\n", printable(c.argv[0]), describe(p.State()))
}

// programStdout is where the program's output goes: to ours, unless that is
// wanted for data that it would spoil.
func (c *command) programStdout(outs *outputs) *os.File {
	if c.json || outs.usesStdout() {
		return os.Stderr
	}
	return os.Stdout
}

// describe says how a process ended.
func describe(s *os.ProcessState) string {
	if s == nil {
		return "was lost"
	}
	if w, ok := s.Sys().(syscall.WaitStatus); ok && w.Signaled() {
		return fmt.Sprintf("was ended by signal %d (%v)", w.Signal(), w.Signal())
	}
	return fmt.Sprintf("exited with status %d", s.ExitCode())
}

// logger writes warnings, and with --debug everything, to stderr.
func (c *command) logger() *slog.Logger {
	level := slog.LevelWarn
	if c.debug {
		level = slog.LevelDebug
	}
	return slog.New(slog.NewTextHandler(c.stderr, &slog.HandlerOptions{Level: level}))
}
