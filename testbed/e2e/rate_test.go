package e2e

import (
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rdmatrace/rdmatrace/internal/testenv"
)

// At the full rate of the device, from a program's first work request to its
// last, each is delivered or counted as lost, and the memory of rdmatrace stays
// what it was.
func TestFullRate(t *testing.T) {
	trial, seconds := 300_000, testenv.Soak(t, 0, 600)
	if seconds > 0 {
		trial = 3_000_000 // the first second is slower than the rest
	}
	took := fullRate(t, trial)
	if seconds == 0 {
		return
	}
	const margin = 1.15 // the trial is on the slow side, and on the fast side where the machine is shared
	took = fullRate(t, int(margin*float64(trial)/took.Seconds()*float64(seconds)))
	if took < time.Duration(seconds)*time.Second {
		t.Errorf("it took %s of the %d s that it is to endure: the trial was slow", took, seconds)
	}
}

// flatKB is how much more memory the last half of a run may take than the quarter
// before, without the summary at its end: what the collector leaves varies.
const flatKB = 8 << 10

// perftestMost is how much perftest does on one queue pair, "Iteration num should be
// between 5 and 100000000".
const perftestMost = 100_000_000

// fullRate traces n work requests, or a few less, and tells how long they took.
func fullRate(t *testing.T, n int) time.Duration {
	t.Helper()
	d := startDevice(t, "LOG_MB=1") // the counts are perftest's own: a row for each would fill the disk
	queuePairs := 1 + n/perftestMost
	each := n / queuePairs
	n = each * queuePairs
	argv := []string{"ib_write_bw", "-s", "64", "-N", "-q", strconv.Itoa(queuePairs), "-n", strconv.Itoa(each)}
	server := d.server(t, argv...)
	tr := startTrace(t, d.env(), append(append([]string{"-o", "/dev/null", "--", built(t, softmlx5), "run"}, argv...), "127.0.0.1")...)
	var used []int // kB, every tenth of a second
	waitRunning(t, tr, func() { used = append(used, ownKB(tr.Process.Pid)) })
	if tr.err != nil {
		t.Fatalf("%v: %s", tr.err, tr.stderr.String())
	}
	server.wait(t)
	got := tr.summary(t)
	got.balance(t)
	send := got.Kinds["send"]
	dropped := got.dropped()["work request"]
	n1, n2, n3 := len(used)/4, len(used)/2, len(used)*9/10
	first, second := most(used[n1:n2]), most(used[n2:n3])
	t.Logf("%d work requests in %.1f s: %+v; %d records of them dropped; %d, then %d, at most %d kB",
		n, float64(got.WindowNS)/1e9, send, dropped, first, second, most(used))
	if send.Posted != int64(n) {
		t.Errorf("%d work requests in the books, %d were posted", send.Posted, n)
	}
	if int64(dropped) > send.Lost {
		t.Errorf("%d records dropped, %d lost in the books", dropped, send.Lost)
	}
	if !strings.Contains(got.stderr, "exited with status 0") {
		t.Errorf("perftest: %s", got.stderr)
	}
	if n > 10_000_000 && second > first+flatKB || most(used) > 150<<10 {
		t.Errorf("rdmatrace used %d, then %d, at most %d kB", first, second, most(used))
	}
	return time.Duration(got.WindowNS)
}

// waitRunning calls look until rdmatrace has ended, however long that takes.
func waitRunning(t *testing.T, tr *tracing, look func()) {
	t.Helper()
	for {
		select {
		case <-tr.exited:
			return
		case <-time.After(100 * time.Millisecond):
			look()
		}
	}
}

func most(all []int) (m int) {
	for _, v := range all {
		m = max(m, v)
	}
	return m
}

// ownKB is the memory that a process has for itself now, without the rings that
// it shares with the kernel; 0 if it has ended.
func ownKB(pid int) int { return statusKB(pid, "RssAnon:") }

func statusKB(pid int, field string) (kb int) {
	b, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, field); ok {
			kb, _ = strconv.Atoi(strings.Fields(rest)[0])
		}
	}
	return kb
}
