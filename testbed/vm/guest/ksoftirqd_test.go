package guest

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/rdmatrace/rdmatrace/testbed/witness"
)

// TestKsoftirqd: softirqs that a CPU has too many of are left to its ksoftirqd, which
// competes with the client for it. What that takes from the client is charged to it by
// name, as long as the kernel's own tracer has it.
func TestKsoftirqd(t *testing.T) {
	inGuest(t)
	takeInterrupts(t, "eth1", busyCPU)
	comm := fmt.Sprintf("ksoftirqd/%d", busyCPU)
	pid := kernelThread(t, comm)
	// Many at a time, that each take long: more than a CPU handles at once.
	j := judged(t, "ib_send_lat -x 0 -F -n 30", func() *process { return datagrams(t, rdmaWire, "150", "30000", "0", "16") }, pid)
	times := 0
	name := fmt.Sprintf("%s (pid %d)", comm, pid)
	c := j.compare(name, j.by("scheduling.runqueue", name)+j.by("scheduling.preempted", name), func(r *witness.Recording, s *stretch) uint64 {
		var ran [][2]uint64
		for _, on := range r.Runs(pid, s.begin, s.end) {
			ran = append(ran, [2]uint64{on.Begin, on.End})
		}
		ns, n := s.heldUp(r, ran)
		times += n
		return ns
	})
	c.within(t)
	t.Logf("it held the client up %d times", times/len(places))
	feature("ksoftirqd", "charged as much as it took, by name")
}

// kernelThread gives the one of that name.
func kernelThread(t *testing.T, name string) (pid int) {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/comm")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		comm, err := os.ReadFile(file)
		if err != nil || strings.TrimSpace(string(comm)) != name {
			continue
		}
		if pid, err = strconv.Atoi(filepath.Base(filepath.Dir(file))); err != nil {
			t.Fatal(err)
		}
		return pid
	}
	t.Fatalf("no kernel thread is named %s", name)
	return 0
}
