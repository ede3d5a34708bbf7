package tracer

import (
	"fmt"
	"os"
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

// TestWokenByWorkqueue: of a kworker that wakes a target, its workqueue is named.
func TestWokenByWorkqueue(t *testing.T) {
	testenv.Root(t)
	master, slave := terminal(t)
	var names []string
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
		}
		return len(names) > 0 && strings.HasPrefix(names[len(names)-1], "wq:events")
	})
	rec.lossless(t)
	t.Logf("woken by %q", names)
}
