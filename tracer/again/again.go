// Package again runs this same program once more as a helper: a process of its
// own without a file of its own.
package again

import (
	"context"
	"fmt"
	"os"
	"os/exec"
)

const program = "/proc/self/exe"

// Command prepares the program as the helper of a name. Its standard streams
// are those of any exec.Cmd, none by default; ctx ends it.
func Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, program)
	cmd.Args = append([]string{name}, args...)
	return cmd
}

// As does the duty of a helper and ends the process, where that is one of the
// name. It is to be called by init. An error goes to stderr, with status 1.
func As(name string, duty func(args []string) error) {
	if os.Args[0] != name {
		return
	}
	if err := duty(os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
	os.Exit(0)
}
