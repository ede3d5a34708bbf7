// Command rdmatrace splits the latency of the RDMA work requests of a running
// program into software, interrupt, scheduling and wire.
//
// This package holds flags, files and signals; the work is done elsewhere.
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"
	"syscall"
	"unicode"
)

// Exit codes.
const (
	exitOK      = 0
	exitFailure = 1
	exitUsage   = 2
	exitPipe    = 128 + int(syscall.SIGPIPE) // what a shell reports of a program that SIGPIPE ended
)

// version is set by the linker (see the Makefile).
var version string

func main() {
	os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// run is the whole program but for its exit. stdout gets data, stderr the rest.
func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	o, err := parse(args)
	if err != nil {
		fmt.Fprintf(stderr, "rdmatrace: %s\n", oneLine(err))
		return exitUsage
	}
	tuneMemory()
	c := &command{options: o, stdin: stdin, stdout: stdout, stderr: stderr}
	switch o.mode {
	case modeHelp:
		_, err = io.WriteString(stdout, help(o.flags, o.topic))
		err = printed("the help", err)
	case modeVersion:
		_, err = fmt.Fprintln(stdout, "rdmatrace", versionString())
		err = printed("the version", err)
	case modeReport:
		err = c.report()
	case modePlan:
		err = c.plan()
	case modeTrace:
		err = c.trace()
	}
	err, gone := apart(err)
	switch {
	case err == nil && gone:
		return exitPipe
	case err == nil:
		return exitOK
	}
	fmt.Fprintf(stderr, "rdmatrace: %s\n", oneLine(err))
	if errors.As(err, new(usageError)) {
		return exitUsage
	}
	return exitFailure
}

// command is one run.
type command struct {
	*options
	stdin          io.Reader
	stdout, stderr io.Writer
}

// oneLine keeps an error to a line of its own, as verifier logs and joined errors are not.
func oneLine(err error) string {
	return printable(strings.Join(strings.FieldsFunc(err.Error(), func(r rune) bool { return r == '\n' || r == '\r' }), "; "))
}

// printable makes text safe for a terminal: paths and the names of processes,
// which their owners choose, may hold any byte.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case unicode.IsPrint(r):
			return r
		case unicode.IsSpace(r):
			return ' '
		}
		return unicode.ReplacementChar
	}, strings.ToValidUTF8(s, string(unicode.ReplacementChar)))
}

// tuneMemory trades some collector time for the memory of the machine under
// test, unless the user has asked otherwise. The limit is soft.
func tuneMemory() {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(100 << 20)
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(50)
	}
}

// versionString is that of the linker's, else of the source control's.
func versionString() string {
	if version != "" {
		return version
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		return v
	}
	revision, dirty := "unknown", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			revision = s.Value[:min(12, len(s.Value))]
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = "-dirty"
		}
	}
	return "devel-" + revision + dirty
}
