package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rdmatrace/rdmatrace/internal/testenv"
)

// The wire of a report is what the device took, whatever that is set to.
func TestWireIsTheDevices(t *testing.T) {
	for _, base := range []int{5, 20, 100} {
		t.Run(fmt.Sprintf("%d us", base), func(t *testing.T) {
			d := startDevice(t, "POLL=spin", fmt.Sprintf("LAT_NS=%d", base*1000))
			p := d.pair(t, "CLI_CPU=0", "SRV_CPU=0", "ib_read_lat", "-s", "64", "-n", "4000000")
			tr := traceFor(t, p.client, 2000)
			p.stop()
			var took []int64
			for _, w := range match(t, tr, d.truth(t)) {
				took = append(took, w.Row.CQE-w.Row.Doorbell)
			}
			if len(took) < 1000 {
				t.Fatalf("only %d work requests were measured: %+v", len(took), tr.WRs)
			}
			slices.Sort(took)
			want, got := took[len(took)/2], tr.Classes.Wire.P50NS
			if off := got - want; max(off, -off) > max(want/20, 1000) {
				t.Errorf("wire p50 is %d ns, the device took %d", got, want)
			}
		})
	}
}

// hog starts a program called name that wants a CPU for itself, until the test ends.
func hog(t *testing.T, name string, cpu int) (pid int) {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.Symlink("/bin/sh", path); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("taskset", "-c", fmt.Sprint(cpu), path, "-c", "while :; do :; done")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd.Process.Pid
}

// shareOf is the part of all latency that a culprit took by a cause.
func (r *report) shareOf(cause, name string) float64 {
	var ns int64
	for _, c := range r.Causes[cause].Who {
		if strings.HasPrefix(c.Name, name+" (") {
			ns += c.TotalNS
		}
	}
	return float64(ns) / float64(r.Latency.TotalNS)
}

// A hog on the poller's CPU appears as scheduling, with its name.
func TestHogIsNamed(t *testing.T) {
	d := startDevice(t)
	p := d.pair(t, "CLI_CPU=0", "ib_read_lat", "-s", "64", "-n", "4000000")
	if got := traceFor(t, p.client, 2000).shareOf("scheduling.preempted", "busyhog"); got != 0 {
		t.Errorf("without a hog, it took %.2f of the latency", got)
	}
	hog(t, "busyhog", 0)
	tr := traceFor(t, p.client, 2000)
	tr.addUp(t)
	if got := tr.shareOf("scheduling.preempted", "busyhog"); got < 0.2 {
		t.Errorf("the hog took %.2f of the latency: %+v", got, tr.Causes)
	}
}

// Wherever in the traffic of a full queue a trace begins, no completion is
// given to another work request than its own.
func TestManyAttaches(t *testing.T) {
	// A slow link: the queue is full all the time, and the truth log stays small.
	d := startDevice(t, "BYTE_PS=2000")
	p := d.pair(t, "PAIR_TIMEOUT=1200", "ib_write_bw", "-s", "65536", "-n", "4000000")
	var all []*traced
	for range testenv.Soak(t, 20, 100) {
		tr := attach(t, p.client, "-d", "30ms").result(t)
		tr.balance(t)
		if tr.WRs.Lost != 0 {
			t.Errorf("%d lost; dropped: %v", tr.WRs.Lost, tr.dropped())
		}
		all = append(all, tr)
	}
	p.running(t)
	p.stop()
	queues := d.truth(t)
	measured := 0
	for _, tr := range all {
		measured += len(match(t, tr, queues))
	}
	if measured < 50*len(all) {
		t.Errorf("only %d work requests were measured in %d traces", measured, len(all))
	}
	t.Logf("%d work requests in %d traces", measured, len(all))
}
