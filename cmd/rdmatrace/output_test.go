package main

import (
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// A signal ends the wait for the reader of a pipe, and leaves no file behind.
func TestAbortWhileAPipeHasNoReader(t *testing.T) {
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	outs := newOutputs(io.Discard)
	opened := make(chan error)
	go func() {
		opened <- outs.open([]fileFlag{{"--folded", filepath.Join(dir, "file")}, {"--pprof", pipe}})
	}()
	temporary := func() []string {
		names, err := filepath.Glob(filepath.Join(dir, "file.*.tmp"))
		if err != nil {
			t.Fatal(err)
		}
		return names
	}
	for len(temporary()) == 0 {
		select {
		case err := <-opened:
			t.Fatalf("opened the files without a reader: %v", err)
		default:
		}
	}
	outs.abort() // returns although open waits
	if left := temporary(); len(left) != 0 {
		t.Errorf("%v is left", left)
	}
	reader, err := os.OpenFile(pipe, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	if err := <-opened; err == nil {
		t.Error("the files were opened after the signal")
	}
}
