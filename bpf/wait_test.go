//go:build amd64

package bpf

import (
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// tracepoint attaches a program of the scheduler until the test ends.
func (k *taker) tracepoint(name string) {
	k.Helper()
	l, err := link.AttachTracing(link.TracingOptions{Program: k.coll.Programs[name]})
	if err != nil {
		k.Fatal(err)
	}
	k.Cleanup(func() { l.Close() })
}

// onThread runs f on a thread of its own on CPU 0, which ends with it.
func onThread(k *taker, f func()) (tid int, ended chan struct{}) {
	k.Helper()
	tids := make(chan int)
	ended = make(chan struct{})
	var run func()
	run = func() {
		runtime.LockOSThread()              // and never unlocked
		if unix.Gettid() == unix.Getpid() { // Go never ends this one
			defer runtime.UnlockOSThread()
			other := make(chan struct{})
			go func() { defer close(other); run() }()
			<-other
			return
		}
		var here unix.CPUSet
		here.Set(0)
		if err := unix.SchedSetaffinity(0, &here); err != nil {
			k.Error(err)
		}
		tids <- unix.Gettid()
		f()
	}
	go func() { defer close(ended); run() }()
	return <-tids, ended
}

// besideRival runs f on a thread of CPU 0, to its end, while another is busy there.
func besideRival(k *taker, f func()) (tid int) {
	k.Helper()
	var over atomic.Bool
	_, rival := onThread(k, func() {
		for !over.Load() {
		}
	})
	tid, ended := onThread(k, f)
	<-ended
	over.Store(true)
	<-rival
	return tid
}

// unseen has the thread that calls, on CPU 0, be one that waits for it, throttled, as if
// its switch-in had not been seen.
func (k *taker) unseen() { k.waits(1) }

// waits is the same with or without the wait beside its place.
func (k *taker) waits(waits uint32) {
	const task = 8 // of no page that is there
	tid := unix.Gettid()
	c := RdmaCpuState{Waiters: waits}
	w := &c.Waiting[0]
	w.Task, w.Tid, w.Throttled = task, uint32(tid), 1
	fd, err := unix.PidfdOpen(tid, unix.O_EXCL) // PIDFD_THREAD
	if err != nil {
		k.Error(err)
		return
	}
	defer unix.Close(fd)
	k.set(RdmaVarOpen, uint8(0)) // no switch comes between
	defer k.set(RdmaVarOpen, uint8(1))
	if err := k.coll.Maps[RdmaMapCpus].Put(uint32(0), &c); err != nil {
		k.Error(err)
	}
	if err := k.coll.Maps[RdmaMapThreads].Update(uint32(fd), &RdmaThread{Waiting: waits, Waiter: task}, ebpf.UpdateAny); err != nil {
		k.Error(err)
	}
}

func (k *taker) switchesFrom(tid int) (all []RdmaSwitchRecord) {
	for _, raw := range k.recordsOf(RdmaRecordKindRECORD_SWITCH, tid) {
		all = append(all, *(*RdmaSwitchRecord)(unsafe.Pointer(&raw[0])))
	}
	return all
}

// takenOff lets the thread that calls be taken off its CPU, for which another waits.
func (k *taker) takenOff() {
	often := func() int64 {
		var u unix.Rusage
		if err := unix.Getrusage(unix.RUSAGE_THREAD, &u); err != nil {
			k.Error(err)
		}
		return u.Nivcsw
	}
	for before := often(); often() == before; {
		_, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
	}
}

// free demands that nobody wait for CPU 0 any more.
func (k *taker) free(t *testing.T) {
	t.Helper()
	var c RdmaCpuState
	if err := k.coll.Maps[RdmaMapCpus].Lookup(uint32(0), &c); err != nil {
		t.Fatal(err)
	}
	if c.Waiters != 0 || c.Waiting[0].Task != 0 {
		t.Errorf("%d threads wait, the first is %+v", c.Waiters, c.Waiting[0])
	}
}

// TestUnseenWaitEnds: a thread whose switch-in was not seen waits no more once it is seen
// to leave its CPU.
func TestUnseenWaitEnds(t *testing.T) {
	k := newTaker(t, RdmaProgSchedSwitch)
	k.tracepoint(RdmaProgSchedSwitch)
	var wake [2]int
	if err := unix.Pipe(wake[:]); err != nil {
		t.Fatal(err)
	}
	tid, ended := onThread(k, func() {
		k.unseen()
		_, _ = unix.Read(wake[0], make([]byte, 1))
	})
	for asleep := false; !asleep; {
		for _, s := range k.switchesFrom(tid) {
			asleep = asleep || s.PrevState != 0 && s.Syscall == unix.SYS_READ
		}
	}
	k.free(t)
	unix.Close(wake[1])
	<-ended
	unix.Close(wake[0])
}

// TestUnseenWaitEndsAtExit: the same where it ends, which says also that it ran.
func TestUnseenWaitEndsAtExit(t *testing.T) {
	const inferred = 0x20
	k := newTaker(t, RdmaProgSchedProcessExit)
	k.tracepoint(RdmaProgSchedProcessExit)
	tid, _ := onThread(k, k.unseen)
	path := fmt.Sprintf("/proc/self/task/%d", tid)
	for _, err := os.Stat(path); err == nil; _, err = os.Stat(path) {
	}
	k.free(t)
	raw := k.recordsOf(RdmaRecordKindRECORD_SWITCH, 0)
	if len(raw) != 1 {
		t.Fatalf("%d switches", len(raw))
	}
	if s := (*RdmaSwitchRecord)(unsafe.Pointer(&raw[0][0])); s.NextTid != uint32(tid) || s.H.Flags&inferred == 0 {
		t.Errorf("%+v", *s)
	}
}

// TestUnseenWaitIsAnother: what was told of a wait whose end was not seen is not taken
// to hold of the next one, as which the thread leaves its CPU.
func TestUnseenWaitIsAnother(t *testing.T) {
	const quotaEnd = 2
	k := newTaker(t, RdmaProgSchedSwitch)
	k.tracepoint(RdmaProgSchedSwitch)
	tid := besideRival(k, func() {
		k.unseen()
		k.takenOff()
	})
	// What comes after the first is told of the new wait.
	if raw := k.recordsOf(RdmaRecordKindRECORD_QUOTA, tid); len(raw) > 0 {
		if h := (*RdmaRecordHeader)(unsafe.Pointer(&raw[0][0])); h.Flags == quotaEnd {
			t.Errorf("its quota is said to hold it up no more, which nobody had said: %+v", *h)
		}
	}
}

// TestPlaceOfPreemptedEnd: a thread that was preempted in the program that ends its wait,
// and waits therefore, keeps no place for good.
func TestPlaceOfPreemptedEnd(t *testing.T) {
	k := newTaker(t, RdmaProgSchedSwitch)
	k.tracepoint(RdmaProgSchedSwitch)
	besideRival(k, func() {
		k.waits(0)
		k.takenOff()
	})
	k.free(t)
}
