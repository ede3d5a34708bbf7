package main

import (
	"fmt"
	"io"
	"sync"
	"time"
)

// progress is the line that a terminal shows while a trace is on.
func (t *tracing) progress(sinceStart time.Duration, asked bool) string {
	switch {
	case asked && t.open.Load():
		return "stopping, the summary follows; Ctrl-C again discards it"
	case asked:
		return "stopping before tracing has begun"
	case !t.open.Load():
		of := "the program that is started"
		if t.argv == nil {
			of = counted(len(t.pids), "process", "processes")
		}
		return fmt.Sprintf("attaching to %s, %d s; Ctrl-C gives up", of, int(sinceStart.Seconds()))
	}
	if t.over.Load() {
		return "tracing has ended, the summary follows"
	}
	window := ""
	if t.duration < forever {
		window = fmt.Sprintf(" of %v", t.duration)
	}
	return fmt.Sprintf("tracing, %d s%s, %s; Ctrl-C stops and summarises", int(time.Since(t.began).Seconds()), window,
		counted(int(t.completions.Load()), "completion", "completions"))
}

func counted(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// discarded says on a terminal what the second signal did.
func (c *command) discarded() {
	if isTerminal(c.stderr) {
		fmt.Fprint(c.stderr, clearLine+"rdmatrace: ended at once by a second signal; what was not finished is discarded\n")
	}
}

const clearLine = "\r\x1b[K"

// cutTo leaves of a line what fits into so many columns, less the last: what goes on in
// a second row of a terminal is not taken away with the first.
func cutTo(columns int, line string) string {
	return line[:min(len(line), max(0, columns-1))] // it is ASCII
}

// showProgress shows a line, anew every half second and once a stop is asked for, until
// the function it returns is called. width is asked each time: a terminal changes it.
func showProgress(w io.Writer, width func() int, asked <-chan struct{}, line func(time.Duration, bool) string) (hide func()) {
	ended, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(time.Second / 2)
		defer tick.Stop()
		stopping := false
		for began := time.Now(); ; {
			fmt.Fprint(w, clearLine+cutTo(width(), line(time.Since(began), stopping)))
			select {
			case <-ended:
				fmt.Fprint(w, clearLine)
				return
			case <-asked:
				stopping, asked = true, nil
			case <-tick.C:
			}
		}
	}()
	return sync.OnceFunc(func() { close(ended); <-done })
}
