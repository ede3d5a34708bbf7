package main

import (
	"errors"
	"fmt"
	"io"

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

// deliver prints the summary and writes the files. A reader of stdout that has
// gone away keeps no file from being written.
func (c *command) deliver(r *attribution.Report, outs *outputs) error {
	err := c.summary(r, outs)
	if err != nil {
		err = fmt.Errorf("print the summary: %w", err)
	}
	var failed error
	for _, x := range exports {
		failed = errors.Join(failed, outs.finish(x.flag, func(w io.Writer) error { return x.write(w, r) }))
	}
	if failed != nil {
		return failed
	}
	return err
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
