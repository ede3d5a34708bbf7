package e2e

import (
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/rdmatrace/rdmatrace/internal/testenv"
)

// habits are those of programs that probes could harm: testbed/programs/odd.c
// and its testdata/cgo say what each does. They compare what they wrote with what
// arrived.
var habits = []struct {
	name, argv string
	// refused is what rdmatrace says where this kernel lets no probes be used.
	refused string
}{
	{"plain", "oracle-odd", ""},
	{"seccomp", "oracle-odd kind=seccomp", "a thread has a seccomp filter"},
	{"seccomp that knows uretprobe", "oracle-odd kind=seccomp trap=1", "a thread has a seccomp filter"},
	{"stacks switched by swapcontext", "oracle-odd kind=contexts", ""},
	{"threads that come and go", "oracle-odd kind=threads", ""},
	{"memory mapped and unmapped", "oracle-odd kind=maps", ""},
	{"userfaultfd", "oracle-odd kind=userfault", ""},
	{"forks", "oracle-odd kind=forks", ""},
	{"Go with cgo", "oracle-cgo", ""},
}

// A program of odd habits is unharmed by a trace, and by one that is killed:
// it goes on, and all its data arrived. What is traced of it is right.
func TestSafety(t *testing.T) {
	for _, c := range habits {
		t.Run(c.name, func(t *testing.T) {
			d := startDevice(t, "POLL=sleep")
			p := d.run(t, append(jobArgv(t, c.argv), pauseOf(c.argv)...)...)
			waitFor(t, "its traffic", func() bool {
				if p.unable() {
					testenv.Missing(t, "%s: %s", c.name, p.output.String())
				}
				p.running(t)
				return strings.Contains(p.output.String(), "running\n")
			})
			pid := p.Process.Pid
			if c.refused != "" {
				errs, refused := refuses(t, pid)
				t.Logf("refused: %t", refused)
				if refused {
					if !strings.Contains(errs, c.refused) {
						t.Errorf("it says: %s", errs)
					}
					p.right(t)
					return
				}
			}
			got := traceFor(t, pid, 500)
			tr := attach(t, pid)
			tr.sees(t, 100)
			if breakpoints(t, pid) == 0 {
				t.Error("a trace without a breakpoint")
			}
			_ = tr.Process.Kill()
			<-tr.exited
			waitFor(t, "no breakpoint to be left", func() bool { return breakpoints(t, pid) == 0 })
			p.right(t)
			got.balance(t)
			got.addUp(t)
			if got.WRs.Lost != 0 {
				t.Errorf("%d lost; dropped: %v", got.WRs.Lost, got.dropped())
			}
			if wrs := match(t, got, d.truth(t)); len(wrs) < 200 {
				t.Errorf("only %d work requests were measured: %+v", len(wrs), got.WRs)
			}
		})
	}
}

// pauseOf bounds the rate, so that nothing is lost on two busy CPUs.
func pauseOf(argv string) []string {
	if strings.HasPrefix(argv, "oracle-odd") {
		return []string{"pause=50000"}
	}
	return nil
}

// unable reports whether the program has ended as this kernel lacks what it needs.
func (p *program) unable() bool {
	select {
	case <-p.exited:
		return p.ProcessState.ExitCode() == 77
	default:
		return false
	}
}

// right ends a program that compares its data, and requires that all was.
func (p *program) right(t *testing.T) {
	t.Helper()
	p.running(t)
	_ = syscall.Kill(p.Process.Pid, syscall.SIGTERM)
	p.wait(t)
	if !strings.HasSuffix(p.output.String(), "right\n") {
		t.Errorf("%s says: %s", p.name, p.output.String())
	}
}

// refuses asks rdmatrace to trace for a moment, which it may refuse.
func refuses(t *testing.T, pid int) (stderr string, refused bool) {
	t.Helper()
	cmd := exec.Command(built(t, rdmatrace), "-p", strconv.Itoa(pid), "-d", "1ms")
	var errs strings.Builder
	cmd.Stderr = &errs
	err := cmd.Run()
	return errs.String(), err != nil
}
