package main

import (
	"context"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"
)

// A signal ends the process also where it was ignored before: a script's background
// jobs are started with SIGINT ignored. Files are gone by then, so it may not go on.
func TestIgnoredSignalEnds(t *testing.T) {
	const child = "RDMATRACE_TEST_SIGNAL"
	if os.Getenv(child) != "" {
		watchSignals(context.Background(), false, func() {})
		_ = syscall.Kill(os.Getpid(), syscall.SIGINT)
		time.Sleep(10 * time.Second)
		os.Exit(0)
	}
	for _, c := range []struct {
		ignore string
		code   int // -1: ended by a signal
	}{{"", -1}, {"trap '' INT; ", 128 + int(syscall.SIGINT)}} {
		cmd := exec.Command("sh", "-c", c.ignore+`exec "$0" -test.run='^TestIgnoredSignalEnds$'`, os.Args[0])
		cmd.Env = append(os.Environ(), child+"=1")
		if err := cmd.Run(); cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != c.code {
			t.Errorf("%q: %v", c.ignore, err)
		}
	}
}
