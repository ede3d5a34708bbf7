package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/rdmatrace/rdmatrace/attribution"
	"github.com/rdmatrace/rdmatrace/capture"
	"github.com/rdmatrace/rdmatrace/event"
)

// report analyses a capture file.
func (c *command) report() error {
	outs := newOutputs(c.stdout)
	_, sig := watchSignals(context.Background(), false, outs.abort)
	defer sig.stop()
	defer outs.abort()
	in := c.stdin
	if c.input != "-" {
		f, err := os.Open(c.input)
		if err != nil {
			return fmt.Errorf("cannot read %s: %w", c.input, reason(err))
		}
		defer f.Close()
		in = f
	}
	outs.keep(in)
	if err := outs.open(c.outputFlags()); err != nil {
		return err
	}
	r, note, err := analyse(in)
	if err != nil {
		return fmt.Errorf("cannot report %s: %w", c.input, reason(err))
	}
	if note != "" {
		fmt.Fprintf(c.stderr, "rdmatrace: %s: %s\n", printable(c.input), note)
	}
	return c.deliver(r, outs)
}

// analyse reads a capture file to its end. note says that it was cut off.
func analyse(in io.Reader) (r *attribution.Report, note string, err error) {
	rd, err := capture.NewReader(in)
	if err != nil {
		return nil, "", err
	}
	engine := attribution.New(analysisConfig(rd.Context()))
	var window event.Window
	var e event.Event
	var n int64
	for {
		err := rd.Next(&e)
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, "", err
		}
		if n == 0 || e.Time < window.Begin {
			window.Begin = e.Time
		}
		window.End = max(window.End, e.Time)
		n++
		engine.Add(&e)
	}
	ctx := rd.Context()
	if rd.Cut() {
		if n == 0 {
			return nil, "", errors.New("the file is cut off before its first record")
		}
		note = fmt.Sprintf("the file is cut off; the summary covers the %d records before the cut", n)
		ctx = cutContext(ctx, window, note)
	}
	if ctx == nil {
		return nil, "", errors.New("the file has no context")
	}
	return engine.Finish(ctx), note, nil
}

// cutContext makes the preliminary context, if there is one, fit what was
// recorded after it.
func cutContext(ctx *event.Context, seen event.Window, note string) *event.Context {
	if ctx == nil {
		ctx = &event.Context{}
	}
	if ctx.Window.Begin == 0 {
		ctx.Window.Begin = seen.Begin
	}
	if ctx.Window.End == 0 {
		ctx.Window.End = max(seen.End, ctx.Window.Begin)
	}
	ctx.Notes = append(ctx.Notes, note+".")
	return ctx
}

// analysisConfig is the same live and later: what the first context knows.
func analysisConfig(first *event.Context) attribution.Config {
	if first == nil {
		return attribution.Config{}
	}
	return attribution.Config{Devices: first.Devices, Cost: first.Cost, Arch: first.Host.Arch}
}
