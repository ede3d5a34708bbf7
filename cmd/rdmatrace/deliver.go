package main

import (
	"errors"
	"fmt"
	"io"
	"syscall"

	"github.com/rdmatrace/rdmatrace/attribution"
	"github.com/rdmatrace/rdmatrace/export"
)

// exports are the files made of a report, in the order of writing.
var exports = [...]struct {
	flag  string
	write func(io.Writer, *attribution.Report) error
}{
	{"--pprof", export.Pprof},
	{"--flamegraph", func(w io.Writer, r *attribution.Report) error {
		return export.Flamegraph(w, r, export.FlameOptions{})
	}},
	{"--folded", export.Folded},
}

// deliver prints the summary and writes the files. What fails of it keeps nothing else
// from being written, and all that fails is said.
func (c *command) deliver(r *attribution.Report, outs *outputs) error {
	failed := printed("the summary", c.summary(r, outs))
	for _, x := range exports {
		failed = errors.Join(failed, outs.finish(x.flag, func(w io.Writer) error { return x.write(w, r) }))
	}
	return failed
}

func (c *command) summary(r *attribution.Report, outs *outputs) error {
	w := c.stdout
	if outs.usesStdout() {
		w = c.stderr
	}
	if c.json {
		return export.JSON(w, r)
	}
	return export.Text(w, r, textOptions(w))
}

// errGone: whoever read stdout has seen enough, as head has. That is no fault and
// needs no words, but an exit code of its own. It is returned as it is, never wrapped.
var errGone = errors.New("whoever read it is gone")

// printed is the error of writing something to stdout.
func printed(what string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, syscall.EPIPE):
		return errGone
	}
	return fmt.Errorf("cannot print %s: %w", what, reason(err))
}

// apart takes errGone out of what was joined.
func apart(err error) (rest error, gone bool) {
	many, joined := err.(interface{ Unwrap() []error })
	switch {
	case err == errGone:
		return nil, true
	case !joined || !errors.Is(err, errGone):
		return err, false
	}
	for _, one := range many.Unwrap() {
		one, left := apart(one)
		rest, gone = errors.Join(rest, one), gone || left
	}
	return rest, gone
}
