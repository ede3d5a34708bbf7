package tracer

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// Command is the program that was started to be traced.
type Command struct {
	pid   int
	done  chan struct{}
	state *os.ProcessState // once done is closed
}

// PID is its process id.
func (c *Command) PID() int { return c.pid }

// Done is closed when it has ended.
func (c *Command) Done() <-chan struct{} { return c.done }

// State says how it ended. Call it after Done; nil: that is not known.
func (c *Command) State() *os.ProcessState { return c.state }

// startHeld starts a program and leaves it stopped right after exec, when it
// and its dynamic linker are mapped and nothing of it has run.
func startHeld(argv []string, stdout *os.File) (*Command, error) {
	c := &Command{done: make(chan struct{})}
	started := make(chan error)
	go func() {
		// Tracing and the death signal belong to the thread that forked, so
		// it is kept for as long as the child lives.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		cmd := exec.Command(argv[0], argv[1:]...)
		cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, stdout, os.Stderr
		// Should we be killed while it is stopped, it goes on.
		cmd.SysProcAttr = &syscall.SysProcAttr{Ptrace: true, Pdeathsig: syscall.SIGCONT}
		if err := cmd.Start(); err != nil {
			started <- fmt.Errorf("start %s: %w", argv[0], err)
			return
		}
		c.pid = cmd.Process.Pid
		if err := stopUntraced(c.pid); err != nil {
			err = errors.Join(err, cmd.Process.Kill())
			cmd.Wait()
			started <- fmt.Errorf("hold %s: %w", argv[0], err)
			return
		}
		started <- nil
		_ = cmd.Wait() // an exit status other than 0 is in the state
		c.state = cmd.ProcessState
		close(c.done)
	}()
	if err := <-started; err != nil {
		return nil, err
	}
	return c, nil
}

// drop ends a program of which nothing has run yet, as it will not be traced: whoever
// asked for both would not expect it to go on, behind the back of a shell.
func (c *Command) drop() error {
	select {
	case <-c.done:
		return nil // its number may be another's
	default:
	}
	if err := unix.Kill(c.pid, unix.SIGKILL); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("end process %d, which is not traced: %w", c.pid, err)
	}
	<-c.done
	return nil
}

// stopUntraced turns the stop at exec, in which a tracer holds pid, into an
// ordinary stop, which SIGCONT ends.
func stopUntraced(pid int) error {
	var status unix.WaitStatus
	if _, err := unix.Wait4(pid, &status, 0, nil); err != nil {
		return fmt.Errorf("wait for exec: %w", err)
	}
	if !status.Stopped() {
		return errors.New("it ended at once")
	}
	_, _, errno := unix.Syscall6(unix.SYS_PTRACE, unix.PTRACE_DETACH, uintptr(pid), 0, uintptr(unix.SIGSTOP), 0, 0)
	if errno != 0 {
		return fmt.Errorf("stop being its tracer: %w", errno)
	}
	if _, err := unix.Wait4(pid, &status, unix.WUNTRACED, nil); err != nil {
		return fmt.Errorf("wait for its stop: %w", err)
	}
	return nil
}

// resume lets a process run that stands still. That it has ended meanwhile is
// no error.
func resume(pid int) error {
	if err := unix.Kill(pid, unix.SIGCONT); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("let process %d run: %w", pid, err)
	}
	return nil
}
