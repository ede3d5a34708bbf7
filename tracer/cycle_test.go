package tracer

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/rdmatrace/rdmatrace/internal/testenv"
)

// TestCycles attaches to a program and detaches from it time and again: neither
// it nor we have more files, threads or memory afterwards, and it goes on.
func TestCycles(t *testing.T) {
	d := startDevice(t, slowLatency...)
	_, client := d.pingpong() // which, unlike perftest, keeps nothing of each round
	pid := client.cmd.Process.Pid
	cycle := func() {
		tr, err := New(t.Context(), Config{PIDs: []int{pid}})
		if err != nil {
			t.Fatal(err)
		}
		runUntil(t, tr, traffic(20))
		tr.Context()
		if err := tr.Close(); err != nil {
			t.Error(err)
		}
	}
	// The first ones fill caches and pools; the last ones are compared with those.
	cycles := testenv.Soak(t, 6, 500)
	settle := max(2, cycles/10)
	for range settle {
		cycle()
	}
	ours, theirs := ourUse(t), useOf(t, pid)
	for range cycles - settle {
		cycle()
	}
	oursNow, theirsNow := ourUse(t), useOf(t, pid)
	t.Logf("%d cycles: we had %v and have %v; the target had %v and has %v", cycles, ours, oursNow, theirs, theirsNow)
	if !slices.Equal(ours.files, oursNow.files) || oursNow.threads > ours.threads {
		t.Errorf("files before: %v\nafter: %v", ours.files, oursNow.files)
	}
	if oursNow.memoryKB > ours.memoryKB+ourGrowthKB {
		t.Errorf("our memory grew from %d to %d kB", ours.memoryKB, oursNow.memoryKB)
	}
	if !slices.Equal(theirs.files, theirsNow.files) || theirsNow.threads != theirs.threads || theirsNow.memoryKB > theirs.memoryKB+targetGrowthKB {
		t.Errorf("the target had %+v, has %+v", theirs, theirsNow)
	}
	if gone(pid) {
		t.Error("the target has ended")
	}
}

// What a run of cycles may add: pools of the runtime here, and in the target
// nothing but what its own work takes.
const (
	ourGrowthKB    = 2048
	targetGrowthKB = 64
)

// use is what a process takes.
type use struct {
	files    []string
	threads  int // of ours: goroutines
	memoryKB int // anonymous memory; of ours: live heap
}

func (u use) String() string {
	return fmt.Sprintf("%d files, %d threads, %d kB", len(u.files), u.threads, u.memoryKB)
}

func ourUse(t *testing.T) use {
	t.Helper()
	u := use{files: settledFiles(t), threads: runtime.NumGoroutine()}
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	u.memoryKB = int(m.HeapAlloc >> 10)
	return u
}

func useOf(t *testing.T, pid int) (u use) {
	t.Helper()
	dir := fmt.Sprintf("/proc/%d", pid)
	entries, err := os.ReadDir(dir + "/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		u.files = append(u.files, e.Name())
	}
	status, err := os.ReadFile(dir + "/status")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		name, value, _ := strings.Cut(line, ":")
		switch name {
		case "Threads":
			_, err = fmt.Sscan(value, &u.threads)
		case "RssAnon":
			_, err = fmt.Sscan(value, &u.memoryKB)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return u
}
