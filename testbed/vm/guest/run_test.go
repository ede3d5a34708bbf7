package guest

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// process is a program that runs beside the test and ends with it.
type process struct {
	*exec.Cmd
	name   string
	output buffer // stdout and stderr, unless set otherwise
	exited chan struct{}
	err    error // once exited
}

// buffer can be read while it is written.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *buffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *buffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func command(argv ...string) *process {
	p := &process{Cmd: exec.Command(argv[0], argv[1:]...), name: strings.Join(argv, " "), exited: make(chan struct{})}
	p.Stdout, p.Stderr = &p.output, &p.output
	p.WaitDelay = time.Second // for output held open by what it left behind
	return p
}

func (p *process) start(t *testing.T) {
	t.Helper()
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		p.err = p.Wait()
		close(p.exited)
	}()
	t.Cleanup(p.kill)
}

// wait requires that the process ends by itself, and well.
func (p *process) wait(t *testing.T) {
	t.Helper()
	select {
	case <-p.exited:
	case <-time.After(patience):
		_ = p.Process.Signal(syscall.SIGABRT) // Go programs say where they are
		time.Sleep(time.Second)
		p.kill()
		t.Fatalf("%s does not end; it said:\n%s", p.name, p.output.String())
	}
	if p.err != nil {
		t.Fatalf("%s: %v; it said:\n%s", p.name, p.err, p.output.String())
	}
}

// running fails the test if the process has ended, and says how.
func (p *process) running(t *testing.T) {
	t.Helper()
	select {
	case <-p.exited:
		t.Fatalf("%s has ended (%v); it said:\n%s", p.name, p.err, p.output.String())
	default:
	}
}

func (p *process) kill() {
	_ = p.Process.Signal(os.Kill)
	<-p.exited
}
