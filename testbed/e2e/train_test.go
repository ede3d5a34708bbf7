package e2e

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rdmatrace/rdmatrace/testbed/outcome"
)

// train starts two ranks of data-parallel training over MPI over UCX and returns
// rank 0's process once its traffic flows. `make e2e-jobs` has installed what
// that needs, half a gigabyte, and says so.
func (d *device) train(t *testing.T, transport string) (*program, int) {
	t.Helper()
	if os.Getenv("RDMATRACE_JOBS") == "" {
		t.Skip("needs PyTorch and OpenMPI: make e2e-jobs")
	}
	jobs, err := filepath.Abs(filepath.Join(root, "testbed/softmlx5/jobs"))
	if err != nil {
		t.Fatal(err)
	}
	p := d.launch(t, nil, filepath.Join(jobs, "mpi"), "-t", transport, filepath.Join(jobs, "train.py"), "--steps", "100000")
	rank := 0
	waitFor(t, "rank 0 to have queue pairs", func() bool {
		p.running(t)
		rank = d.rank0()
		return rank != 0 && d.executed() > 20
	})
	return p, rank
}

// rank0 is the process of MPI's rank 0 on this device; 0: not yet there.
func (d *device) rank0() int {
	all, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, path := range all {
		env, _ := os.ReadFile(path)
		vars := bytes.Split(env, []byte{0})
		has := func(v string) bool {
			return slices.ContainsFunc(vars, func(one []byte) bool { return string(one) == v })
		}
		if has("OMPI_COMM_WORLD_RANK=0") && has("SOFTMLX5_DIR="+d.dir) {
			pid := 0
			_, _ = fmt.Sscanf(path, "/proc/%d/", &pid)
			return pid
		}
	}
	return 0
}

// executed is how many work requests the device has finished, at least: its
// log is written in blocks.
func (d *device) executed() int {
	b, _ := os.ReadFile(filepath.Join(d.dir, "truth.csv"))
	return bytes.Count(b, []byte("\n"))
}

// One rank of a training job: its work requests are those of the truth log,
// many of them unsignalled, and the books balance.
func TestTrainingJob(t *testing.T) {
	d := startDevice(t)
	p, rank := d.train(t, "rc_v,self")
	tr := attach(t, rank, "-d", "10s").result(t)
	p.running(t)
	p.stop()
	tr.balance(t)
	tr.addUp(t)
	b := tr.Kinds["send"]
	// UCX asks for a completion where it has to wait for one: about every other.
	if b.Lost != 0 || b.Completed < 50 || 3*b.Unsignalled < b.Completed {
		t.Errorf("sends: %+v; dropped: %v", b, tr.dropped())
	}
	wrs := match(t, tr, d.truth(t))
	if int64(len(wrs)) != tr.Latency.Count || len(wrs) < 20 {
		t.Errorf("%d work requests matched, %d in the report", len(wrs), tr.Latency.Count)
	}
	t.Logf("sends: %+v; %d measured ones matched", b, len(wrs))
}

// Traffic that goes past the verbs library is not there to be seen: the report
// says so.
func TestBypassIsSaid(t *testing.T) {
	d := startDevice(t)
	p, rank := d.train(t, "rc_x,self")
	tracing := attach(t, rank)
	before := d.executed()
	waitFor(t, "the job to communicate", func() bool {
		p.running(t)
		return d.executed() > before+100
	})
	tr := tracing.stop(t)
	p.stop()
	if !slices.ContainsFunc(tr.Queues, func(q outcome.Queue) bool { return q.Bypass }) {
		t.Errorf("no queue is said to bypass the verbs library: %+v", tr.Queues)
	}
	if !slices.ContainsFunc(tr.Doubts, func(s string) bool { return strings.Contains(s, "bypass") }) {
		t.Errorf("no doubt says so: %q", tr.Doubts)
	}
}
