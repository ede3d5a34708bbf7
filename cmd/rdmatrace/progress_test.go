package main

import (
	"io"
	"strings"
	"testing"
	"time"
)

// A terminal is told what goes on, what Ctrl-C does at that time, and that a second one
// keeps nothing.
func TestProgress(t *testing.T) {
	tr := &tracing{command: &command{options: &options{pids: []int{1, 2}}}}
	want := func(asked bool, text string) {
		t.Helper()
		if got := tr.progress(2*time.Second, asked); got != text {
			t.Errorf("%q, want %q", got, text)
		}
	}
	want(false, "attaching to 2 processes, 2 s; Ctrl-C gives up")
	tr.pids, tr.argv = nil, []string{"job"}
	want(false, "attaching to the program that is started, 2 s; Ctrl-C gives up")
	want(true, "stopping before tracing has begun")
	tr.duration = 10 * time.Minute
	tr.opened()
	tr.completions.Add(1)
	want(false, "tracing, 0 s of 10m0s, 1 completion; Ctrl-C stops and summarises")
	tr.timer.Stop()
	tr.duration = forever
	want(false, "tracing, 0 s, 1 completion; Ctrl-C stops and summarises")
	tr.over.Store(true)
	want(false, "tracing has ended, the summary follows")
	want(true, "stopping, the summary follows; Ctrl-C again discards it")
}

// What was shown is taken away, and a stop is told without waiting for the next turn.
func TestProgressIsTakenAway(t *testing.T) {
	r, w := io.Pipe()
	asked := make(chan struct{})
	seen := make(chan string)
	go func() {
		var all strings.Builder
		buf := make([]byte, 100)
		for told := false; ; {
			n, err := r.Read(buf)
			all.Write(buf[:n])
			if !told && strings.HasSuffix(all.String(), "stopping") || err != nil {
				told = true
				seen <- all.String()
			}
			if err != nil {
				return
			}
		}
	}()
	hide := showProgress(w, func() int { return len("stopping") + 1 }, asked, func(_ time.Duration, asked bool) string {
		if asked {
			return "stopping"
		}
		return "tracing, more than fits"
	})
	close(asked)
	if got := <-seen; !strings.Contains(got, "tracing") || strings.Contains(got, "more") {
		t.Errorf("%q before it stops, of what fits into a row", got)
	}
	hide()
	hide()
	_ = w.Close()
	if got := <-seen; !strings.HasSuffix(got, clearLine) {
		t.Errorf("left on the terminal: %q", got)
	}
}
