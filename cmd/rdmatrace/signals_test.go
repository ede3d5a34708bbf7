package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
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
	for ignore, want := range map[string]syscall.Signal{"": syscall.SIGINT, "trap '' INT; ": syscall.SIGTERM} {
		cmd := exec.Command("sh", "-c", ignore+`exec "$0" -test.run='^TestIgnoredSignalEnds$'`, os.Args[0])
		cmd.Env = append(os.Environ(), child+"=1")
		err := cmd.Run()
		if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != want {
			t.Errorf("%q: %v, want %v", ignore, err, want)
		}
	}
}

// A terminal that goes away ends a trace as Ctrl-C does, so that its files are finished;
// under nohup it is no matter. The hangup that comes once more discards nothing, as SIGTERM does.
func TestHangup(t *testing.T) {
	const child = "RDMATRACE_TEST_HANGUP"
	if os.Getenv(child) != "" {
		ctx, sig := watchSignals(context.Background(), true, func() {})
		_ = syscall.Kill(os.Getpid(), syscall.SIGHUP)
		if signal.Ignored(syscall.SIGHUP) {
			_ = syscall.Kill(os.Getpid(), syscall.SIGTERM)
		}
		<-ctx.Done()
		fmt.Print(int(sig.first.(syscall.Signal)))
		_ = syscall.Kill(os.Getpid(), syscall.SIGHUP)
		_ = syscall.Kill(os.Getpid(), syscall.SIGTERM)
		select {}
	}
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP) // ignored by whoever started us, it would be by sh
	for ignore, want := range map[string]syscall.Signal{"": syscall.SIGHUP, "trap '' HUP; ": syscall.SIGTERM} {
		cmd := exec.Command("sh", "-c", ignore+`exec "$0" -test.run='^TestHangup$'`, os.Args[0])
		cmd.Env = append(os.Environ(), child+"=1")
		first, err := cmd.Output()
		if string(first) != strconv.Itoa(int(want)) {
			t.Errorf("%q: asked to stop by signal %s, want %d", ignore, first, want)
		}
		if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGTERM {
			t.Errorf("%q: ended by %v, want %v", ignore, err, syscall.SIGTERM)
		}
	}
}
