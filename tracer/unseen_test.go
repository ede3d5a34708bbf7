package tracer

import (
	"os"
	"testing"
	"time"
)

// TestUnseen: of what a job runs in a pause, threads that come and go have the part
// that they had in the window before.
func TestUnseen(t *testing.T) {
	const ms = 1_000_000
	u := unseen{job: 1000 * ms}
	if ran := u.ran(1500 * ms); ran != 0 {
		t.Errorf("in a window, where all is seen: %.0f", ran)
	}
	u.turn(1500*ms, 100*ms) // of 500 ms, 100 were of threads that ended
	if ran := u.ran(2000 * ms); ran != 100*ms {
		t.Errorf("in a pause of 500 ms: %.0f", ran)
	}
	u.turn(2500*ms, 100*ms)
	if ran := u.ran(2600 * ms); ran != 200*ms {
		t.Errorf("after a pause of 1 s: %.0f", ran)
	}
	u.turn(2600*ms, 300*ms) // more ended than ran: an end was seen late
	if ran := u.ran(2700 * ms); ran != 300*ms {
		t.Errorf("in a pause of 100 ms, where all are of that kind: %.0f", ran)
	}
	if ran := u.ran(0); ran != 200*ms {
		t.Errorf("after the job has ended: %.0f", ran)
	}
}

// TestProcessRan: it grows as we run.
func TestProcessRan(t *testing.T) {
	first, err := processRan(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); ; {
		now, err := processRan(os.Getpid())
		if err != nil {
			t.Fatal(err)
		}
		if now > first {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("it ran for %d ns, and a minute later for %d", first, now)
		}
	}
}
