package tracer

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rdmatrace/rdmatrace/event"
)

// noThread is a number that no thread has: the kernel's are below 1 << 22.
const noThread = 1 << 23

// TestShortLived: threads that have ended before anybody could look at them count
// with the time between their first event and the latest, and leave room for others.
func TestShortLived(t *testing.T) {
	const ms = 1_000_000
	var us users
	n := 4 * usersMost
	for i := range n {
		tid, at := uint32(noThread+i), uint64(i+1)*ms
		for _, e := range []event.Event{
			{Kind: event.KindWR, Time: at},
			{Kind: event.KindPostEnd, Time: at + ms/10},
			{Kind: event.KindCompletion, Time: at + ms/2},
			{Kind: event.KindSwitch, Time: at + 4*ms},
			{Kind: event.KindTask, Time: at + 5*ms, Object: &event.Object{Task: &event.Task{Event: event.TaskExited}}},
		} {
			e.TID, e.PID = tid, noThread
			us.note(&e)
		}
	}
	if ran := us.cpu(uint64(n) * ms); ran != float64(n)*ms/2 || len(us.live) != 0 {
		t.Errorf("they ran for %.0f ns, %d of them live", ran, len(us.live))
	}
}

// TestUsersInTurn: two threads whose events alternate are two users.
func TestUsersInTurn(t *testing.T) {
	var us users
	for i := range uint64(10) {
		us.note(&event.Event{Kind: event.KindWR, Time: 1 + i, TID: noThread + uint32(i%2), PID: noThread})
	}
	for _, tid := range []uint32{noThread, noThread + 1} {
		us.end(tid)
	}
	if ran := us.cpu(100); ran != 8+8 {
		t.Errorf("they ran for %.0f ns", ran)
	}
}

// TestMissedEnd: a thread whose end was not seen leaves room for others, too, and
// for one that has its number.
func TestMissedEnd(t *testing.T) {
	var us users
	us.note(&event.Event{Kind: event.KindWR, Time: 1, TID: noThread, PID: noThread})
	us.cpu(1)
	if us.cpu(goneFor); len(us.live) != 1 {
		t.Error("it was dropped though its end may be on its way")
	}
	if us.cpu(1 + goneFor); len(us.live) != 0 {
		t.Error("it was kept")
	}
	us.note(&event.Event{Kind: event.KindWR, Time: 2 * goneFor, TID: noThread, PID: noThread})
	if len(us.live) != 1 {
		t.Error("one with its number is unknown")
	}
}

// TestLongLived: of a thread that lives the kernel tells, from the first look on.
func TestLongLived(t *testing.T) {
	var us users
	tid := uint32(unix.Gettid())
	us.note(&event.Event{Kind: event.KindWR, Time: 1, TID: tid, PID: uint32(os.Getpid())})
	u := us.live[tid]
	if !u.known || us.cpu(2) != float64(u.ran) {
		t.Fatalf("%+v", u)
	}
	u.first -= min(u.first, 1000)
	if ran := us.cpu(3); ran < 1000 && u.first > 0 {
		t.Errorf("it ran for %.0f ns: %+v", ran, u)
	}
	// What it did since the latest look is added when it ends.
	before := u.ran
	us.note(&event.Event{Kind: event.KindCompletion, Time: 53, TID: tid, PID: uint32(os.Getpid())})
	us.end(tid)
	if ran := us.cpu(60); ran != float64(before)+50 {
		t.Errorf("it ran for %.0f ns, %d before the latest look", ran, before)
	}
}

// TestTooManyUsers: the reader refuses a thread once, not at each of its events, and
// takes it when there is room again.
func TestTooManyUsers(t *testing.T) {
	var us users
	post := func(tid uint32) {
		us.note(&event.Event{Kind: event.KindWR, Time: 1, TID: tid, PID: noThread})
	}
	for i := range uint32(usersMost) {
		post(noThread + i)
	}
	one, other := uint32(noThread+usersMost), uint32(noThread+usersMost+1)
	post(one)
	post(other)
	us.mu.Lock() // whoever asks for it now waits forever
	for range 3 {
		post(one)
		post(other)
	}
	us.mu.Unlock()
	if len(us.live) != usersMost || us.live[one] != nil {
		t.Fatalf("%d users", len(us.live))
	}
	us.note(&event.Event{Kind: event.KindTask, Time: 2, TID: noThread, Object: &event.Object{Task: &event.Task{Event: event.TaskExited}}})
	if post(one); us.live[one] == nil {
		t.Error("it is refused though there is room")
	}
}

// TestLateEvent: an event that is read after the end of its thread makes no user;
// one of a later thread with its number does.
func TestLateEvent(t *testing.T) {
	var us users
	for _, step := range []struct {
		event event.Event
		live  int
	}{
		{event.Event{Kind: event.KindWR, Time: 10}, 1},
		{event.Event{Kind: event.KindTask, Time: 50, Object: &event.Object{Task: &event.Task{Event: event.TaskExited}}}, 0},
		{event.Event{Kind: event.KindCompletion, Time: 40}, 0},
		{event.Event{Kind: event.KindCompletion, Time: 41}, 0}, // recent threads were looked up anew before
		{event.Event{Kind: event.KindWR, Time: 60}, 1},
	} {
		step.event.TID, step.event.PID = noThread, noThread
		if us.note(&step.event); len(us.live) != step.live {
			t.Errorf("after an event of %d there are %d users", step.event.Time, len(us.live))
		}
	}
}
