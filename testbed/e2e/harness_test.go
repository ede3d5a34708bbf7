package e2e

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// The harness itself: a pair runs on the device, its processes are the tools,
// and it can be stopped.
func TestHarness(t *testing.T) {
	d := startDevice(t, "LAT_NS=5000")
	p := d.pair(t, "ib_write_lat", "-n", "1000000", "-s", "64")
	for _, pid := range []int{p.server, p.client} {
		comm, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "comm"))
		if err != nil || strings.TrimSpace(string(comm)) != "ib_write_lat" {
			t.Errorf("process %d is %q, %v", pid, comm, err)
		}
	}
	p.stop()
	for _, pid := range []int{p.server, p.client} {
		waitFor(t, "its processes to end", func() bool { return syscall.Kill(pid, 0) != nil })
	}
	short := d.pair(t, "ib_send_lat", "-n", "100")
	short.wait(t)
	if !strings.Contains(short.output.String(), "t_typical") {
		t.Errorf("no result in %s", short.output.String())
	}
}
