package tracer

import (
	"io"
	"os/exec"
	"testing"
	"time"

	"github.com/rdmatrace/rdmatrace/bpf"
	"github.com/rdmatrace/rdmatrace/internal/testenv"
	"github.com/rdmatrace/rdmatrace/tracer/locate"
)

// TestRunTimes: what a program takes is measured while it runs, and nothing afterwards.
func TestRunTimes(t *testing.T) {
	testenv.Root(t)
	e := startEcho(t)
	a := attacherOf(t, e.pid, false)
	k := a.kernel
	lib, offsets := libc(t, a.pid, "write")
	if n, err := a.attach(locate.Functions{{Library: lib, Verb: locate.PostSend, Offset: offsets[0]}}); n != 2 || err != nil {
		t.Fatalf("%d were attached: %v", n, err)
	}
	if err := k.setOpen(true); err != nil {
		t.Fatal(err)
	}
	const hits = 100
	var r runTimes
	now := uint64(time.Hour)
	step := func(what string, wait time.Duration, asked bool, runs uint64) {
		t.Helper()
		now += uint64(wait)
		if err := r.look(k, now); err != nil {
			t.Fatal(err)
		}
		if got := r.seen[bpf.RdmaProgPostSendEnter].runs; (r.asked != nil) != asked || got != runs {
			t.Fatalf("%s: measures %v, not %v; %d runs, not %d", what, r.asked != nil, asked, got, runs)
		}
		for range hits {
			e.once(t)
		}
	}
	step("at first", 0, true, 0)
	step("too soon", runsLook/2, true, 0)
	step("enough", runsLook/2, false, 2*hits)
	step("not yet again", runsEvery/2, false, 2*hits)
	step("again", runsEvery/2, true, 2*hits)
	step("enough again", runsLook, false, 3*hits)
	if ns := r.of(bpf.RdmaProgPostSendEnter); ns <= 0 {
		t.Errorf("a run takes %f ns", ns)
	}
	if r.of("nobody") != 0 {
		t.Error("what did not run took time")
	}
	if share := r.shareOf([]string{bpf.RdmaProgPostSendEnter}); share <= 0 {
		t.Errorf("a share of %f", share)
	}
	step("once more", runsEvery, true, 3*hits)
	k.paused = true
	step("in a pause", runsLook/10, false, 4*hits)
	step("still in it", 2*runsEvery, false, 4*hits)
	if r.took != uint64(2*runsLook+runsLook/10) {
		t.Errorf("measured for %d ns", r.took)
	}
}

// echo writes once for each byte that it is given.
type echo struct {
	pid int
	in  io.Writer
	out io.Reader
}

func startEcho(t *testing.T) *echo {
	t.Helper()
	child := exec.Command("cat")
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	pid, in := startUnharmed(t, child)
	return &echo{pid, in, out}
}

func (e *echo) once(t *testing.T) {
	t.Helper()
	b := []byte{'.'}
	if _, err := e.in.Write(b); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(e.out, b); err != nil {
		t.Fatal(err)
	}
}
