package tracer

import (
	"sync"
	"testing"
)

// A pause begins when more was spent than the limit allows, and ends when another
// window is affordable, or when there is nobody whose time is left to wait for.
func TestPace(t *testing.T) {
	const ms = 1_000_000
	p := &pacer{limit: 0.1, opened: 100 * ms}
	look := func(now uint64, traps, cpu float64) {
		p.now = spent{traps: traps * ms, cpu: cpu * ms}
		p.grow(now * ms)
	}
	look(150, 5, 0)
	if p.due(150 * ms) {
		t.Error("it pauses before it knows a thread: nobody's time would end that")
	}
	look(200, 5, 60)
	if p.due(200 * ms) {
		t.Error("it pauses with 5 of 60 ms spent, and 10 % allowed")
	}
	look(250, 12, 100)
	if !p.due(250 * ms) {
		t.Fatal("it goes on with 12 of 100 ms spent")
	}
	p.plan(250 * ms)
	look(1000, 12, 200)
	if p.affords() {
		t.Errorf("another window of %d ms at %.2f is affordable with 12 of 20 ms spent", p.window/ms, p.rate)
	}
	look(2500, 12, 1700)
	if !p.affords() {
		t.Errorf("another window of %d ms at %.2f is not affordable with 12 of 170 ms spent", p.window/ms, p.rate)
	}
	p.edges = 160 * ms
	if p.affords() {
		t.Error("another window is affordable, though 160 ms are spent while probes go in and out")
	}
	p.edges = 0
	look(2600, 300, 1701)
	look(4500, 300, 1701)
	if p.affords() || p.asleep(4500*ms) {
		t.Error("it goes on though the thread ran lately")
	}
	look(4601, 300, 1701)
	if !p.asleep(4601 * ms) {
		t.Error("it waits for a thread that does not run any more")
	}
	p.opened, p.begun = 4601*ms, p.now
	look(9000, 300, 1701)
	if p.due(9000 * ms) {
		t.Error("it takes probes out that nobody has run into since they were put in")
	}
	look(9050, 301, 1702)
	if !p.due(9050 * ms) {
		t.Error("it leaves them in though threads run into them again")
	}
}

// A poll function whose path is found in a pause is not left to its sites before
// empty polls were observed: probes at entry and return are out.
func TestAligningInAPause(t *testing.T) {
	f := &follower{kernel: &kernel{paused: true}}
	f.wake = sync.NewCond(&f.mu)
	s := &pollSlot{state: pollAligning, attach: &attacher{}}
	if err := f.stepPoll(s, pollStep); err != nil || s.state != pollAligning {
		t.Errorf("state %d, %v", s.state, err)
	}
}
