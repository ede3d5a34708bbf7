package tracer

import (
	"fmt"
	"os"
	"sync"
	"sync/atomic"

	"github.com/rdmatrace/rdmatrace/event"
)

// users are the threads that post or poll: what of the time that they run is
// spent on probes is what a limit is kept of.
type users struct {
	recent [recentThreads]recentThread // by number, so that few events take the lock; the reader's
	left   atomic.Bool                 // there is room again, or a recent one was dropped

	mu    sync.Mutex // the reader adds while the follower looks
	live  map[uint32]*user
	ended uint64 // what those ran that have ended, ns
}

const (
	// usersMost bounds the threads whose time is looked at, those that live.
	usersMost = 256
	// goneFor: so long after a thread is not found any more, its end was missed, ns.
	goneFor = uint64(paceMeter)
)

// recentThreads are remembered from one event to the next: a power of two, as numbers
// of threads that begin together follow each other.
const recentThreads = 256

// recentThread is what is known of the thread that used a place last.
type recentThread struct {
	tid   uint32
	met   bool
	user  *user  // nil if it was refused
	ended uint64 // time of its end, 0: it was not seen to end
}

// recentOf is the place of a thread, whose latest user may be another.
func (us *users) recentOf(tid uint32) *recentThread { return &us.recent[tid%recentThreads] }

// user is a thread that posts or polls.
type user struct {
	tid, pid uint32
	begin    uint64 // time of its first event, ns
	last     uint64 // and of the latest; the reader's
	known    bool
	first    uint64 // ns that it had run when it was first looked at
	ran      uint64 // since then
	looked   uint64 // time of the latest look but the first; 0: there was none
	gone     uint64 // when it was first not found, 0: it was
}

// note takes the thread of an event as a user, if it is of a post or poll, and
// drops one that ends. The reader's.
func (us *users) note(e *event.Event) {
	switch e.Kind {
	case event.KindWR, event.KindPostEnd, event.KindCompletion, event.KindArm:
	case event.KindTask:
		if e.Object.Task.Event == event.TaskExited {
			us.end(e.TID)
			*us.recentOf(e.TID) = recentThread{tid: e.TID, ended: e.Time}
		}
		return
	default:
		return
	}
	if us.left.Load() {
		us.left.Store(false)
		us.meetAgain()
	}
	r := us.recentOf(e.TID)
	if r.tid == e.TID && e.Time <= r.ended {
		return // from the ring of another CPU, which is read later
	}
	if r.tid != e.TID || !r.met {
		*r = recentThread{tid: e.TID, met: true, user: us.add(e)}
	}
	if r.user != nil {
		r.user.last = max(r.user.last, e.Time)
	}
}

// meetAgain has each recent thread looked up anew.
func (us *users) meetAgain() {
	for i := range us.recent {
		us.recent[i].met, us.recent[i].user = false, nil
	}
}

// add gives the user that an event is of, nil if there are too many.
func (us *users) add(e *event.Event) *user {
	us.mu.Lock()
	defer us.mu.Unlock()
	u := us.live[e.TID]
	if u == nil && len(us.live) < usersMost {
		u = &user{tid: e.TID, pid: e.PID, begin: e.Time}
		if us.live == nil {
			us.live = map[uint32]*user{}
		}
		us.live[e.TID] = u
		u.look(0) // now: its probes have counted since before
	}
	return u
}

// end adds up what a thread that has ended ran. Whoever lives shortly is hardly
// looked at: what it did between its first event and the latest, or since it was
// looked at, is taken for time that it ran.
func (us *users) end(tid uint32) {
	us.mu.Lock()
	defer us.mu.Unlock()
	u := us.live[tid]
	if u == nil {
		return
	}
	since := max(u.begin, u.looked)
	us.drop(u, u.ran+u.last-min(u.last, since))
}

// drop is for one that has run so long.
func (us *users) drop(u *user, ran uint64) {
	us.ended += ran
	delete(us.live, u.tid)
	us.left.Store(true)
}

// gone is what those ran that have ended, ns.
func (us *users) gone() uint64 {
	us.mu.Lock()
	defer us.mu.Unlock()
	return us.ended
}

// cpu adds up what the users have run so far, ns; now is the time.
func (us *users) cpu(now uint64) float64 {
	us.mu.Lock()
	defer us.mu.Unlock()
	sum := uint64(0)
	for _, u := range us.live {
		switch {
		case u.look(now):
			u.gone = 0
		case u.gone == 0:
			u.gone = now
		case now-u.gone >= goneFor:
			us.drop(u, u.ran)
			continue
		}
		sum += u.ran
	}
	return float64(sum + us.ended)
}

// look adds what the thread has run since it was first looked at; false: there is
// no such thread.
func (u *user) look(now uint64) bool {
	ran, err := threadRan(u.pid, u.tid)
	if err != nil {
		return false
	}
	if !u.known {
		u.known, u.first = true, ran
	}
	u.ran = max(u.ran, ran-min(ran, u.first))
	u.looked = now
	return true
}

// threadRan is how long a thread has run, ns: the first number of its schedstat.
func threadRan(pid, tid uint32) (ns uint64, err error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/schedstat", pid, tid))
	if err != nil {
		return 0, err
	}
	_, err = fmt.Sscan(string(raw), &ns)
	return ns, err
}
