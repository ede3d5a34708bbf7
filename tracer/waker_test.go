package tracer

import (
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rdmatrace/rdmatrace/event"
	"github.com/rdmatrace/rdmatrace/internal/testenv"
)

// terminal is a pseudo-terminal: what is written to master, the slave reads
// when a kworker has passed it on (flush_to_ldisc).
func terminal(t *testing.T) (master *os.File, slave string) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { master.Close() })
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	return master, fmt.Sprintf("/dev/pts/%d", n)
}

// TestWokenByWorkqueue: of a kworker that wakes a target, its workqueue is named,
// and who gave it the work.
func TestWokenByWorkqueue(t *testing.T) {
	testenv.Root(t)
	master, slave := terminal(t)
	var names []string
	gave := false
	rec := recordBusy(t, []string{"sh", "-c", "while read line; do :; done <" + slave}, func(e *event.Event, pid int) bool {
		switch {
		case e.Kind == event.KindSwitch && e.Sched.PrevTID == uint32(pid) && e.Sched.Syscall == unix.SYS_READ && e.Sched.PrevState != 0:
			// It waits for a line, or for another reason that ends by itself.
			if _, err := master.WriteString("line\n"); err != nil {
				t.Error(err)
				return true
			}
		case e.Kind == event.KindWaking && e.Sched.NextTID == uint32(pid):
			names = append(names, strings.TrimRight(string(e.Sched.PrevComm[:]), "\x00"))
			if c := e.Sched.Chain; c != nil && strings.HasPrefix(names[len(names)-1], "wq:events") {
				last := c.Links[c.N-1]
				gave = gave || last.Kind == event.InterruptNone && strings.TrimRight(string(last.Name[:]), "\x00") == commOf(os.Getpid())
			}
		}
		return gave
	})
	rec.lossless(t)
	t.Logf("woken by %q", names)
}

// TestChain: a target that waits for a line over loopback is woken in the NET_RX
// softirq, which this process raised when it sent that.
func TestChain(t *testing.T) {
	testenv.Root(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var conn net.Conn
	var led []string
	argv := []string{"bash", "-c", fmt.Sprintf("exec 3<>/dev/tcp/127.0.0.1/%d; while read -u 3 line; do :; done", l.Addr().(*net.TCPAddr).Port)}
	rec := recordBusy(t, argv, func(e *event.Event, pid int) bool {
		s := &e.Sched
		switch {
		case e.Kind == event.KindSwitch && s.PrevTID == uint32(pid) && s.Syscall == unix.SYS_READ && s.SyscallArg == 3 && s.PrevState != 0:
			if conn == nil {
				if conn, err = l.Accept(); err != nil {
					t.Error(err)
					return true
				}
			}
			if _, err := conn.Write([]byte("line\n")); err != nil {
				t.Error(err)
				return true
			}
		case e.Kind == event.KindWaking && s.NextTID == uint32(pid) && s.Interrupt == event.InterruptSoftirq && s.Vec == 3 && s.Chain != nil:
			last := s.Chain.Links[s.Chain.N-1]
			led = append(led, strings.TrimRight(string(last.Name[:]), "\x00"))
			if s.ChainBegin == 0 || s.ChainBegin > s.InterruptBegin {
				t.Errorf("the chain's interrupts begin at %d, the last one at %d", s.ChainBegin, s.InterruptBegin)
			}
		}
		return slices.Contains(led, commOf(os.Getpid()))
	})
	if conn != nil {
		conn.Close()
	}
	rec.lossless(t)
	t.Logf("NET_RX raised by %q", led)
}
