package tracer

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/rdmatrace/rdmatrace/bpf"
)

// reader drains the rings of all CPUs. It is woken when a ring fills up, or by
// its deadline; a record as such wakes nobody: with the scheduler traced, a
// reader woken by each record would feed itself.
type reader struct {
	rings []*ring // by CPU
	heads heads   // of a pass; reused
	held  bool    // a record that was still being written ended the latest pass over a ring
	epoll int
	waker int // an eventfd
	ready []unix.EpollEvent
}

// newReader makes one ring for each possible CPU and puts it into the map.
func newReader(outer *ebpf.Map, cpus, size int) (*reader, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("create an epoll instance: %w", err)
	}
	r := &reader{epoll: fd, waker: -1, ready: make([]unix.EpollEvent, cpus+1)}
	if err := r.addWaker(); err != nil {
		return nil, errors.Join(err, r.close())
	}
	for cpu := range cpus {
		if err := r.add(outer, uint32(cpu), size); err != nil {
			return nil, errors.Join(err, r.close())
		}
	}
	return r, nil
}

func (r *reader) addWaker() (err error) {
	if r.waker, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return fmt.Errorf("create an eventfd: %w", err)
	}
	ev := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLET, Fd: -1}
	if err := unix.EpollCtl(r.epoll, unix.EPOLL_CTL_ADD, r.waker, &ev); err != nil {
		return fmt.Errorf("wait for an eventfd: %w", err)
	}
	return nil
}

// wake ends a wait under way, or the next one.
func (r *reader) wake() {
	one := binary.NativeEndian.AppendUint64(nil, 1)
	// It fails only where so many wakings are pending that one more is none.
	_, _ = unix.Write(r.waker, one)
}

func (r *reader) add(outer *ebpf.Map, cpu uint32, size int) error {
	m, err := ebpf.NewMap(&ebpf.MapSpec{Name: "ring", Type: ebpf.RingBuf, MaxEntries: uint32(size)})
	if err != nil {
		return fmt.Errorf("make a ring of %d bytes for CPU %d: %w", size, cpu, err)
	}
	ring, err := openRing(m)
	if err != nil {
		m.Close()
		return err
	}
	r.rings = append(r.rings, ring)
	if err := outer.Put(cpu, m); err != nil {
		return fmt.Errorf("install the ring of CPU %d: %w", cpu, err)
	}
	// Edge-triggered: a ring that merely holds data again doesn't end the wait.
	ev := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLET, Fd: int32(cpu)}
	if err := unix.EpollCtl(r.epoll, unix.EPOLL_CTL_ADD, m.FD(), &ev); err != nil {
		return fmt.Errorf("wait for the ring of CPU %d: %w", cpu, err)
	}
	return nil
}

// heldLook is when a ring is looked at again of which a record is still being written:
// what comes behind it there is the later than what other rings hold, the later that is,
// and too late at last to be put in order.
const heldLook = 2 * time.Millisecond

// wait returns after d, or earlier when a ring fills up or holds an urgent
// record, or by wake.
func (r *reader) wait(d time.Duration) error {
	if r.held {
		d = min(d, heldLook)
	}
	_, err := unix.EpollWait(r.epoll, r.ready, int(d.Milliseconds()))
	if err != nil && !errors.Is(err, unix.EINTR) {
		return fmt.Errorf("wait for the rings: %w", err)
	}
	return nil
}

// drain hands every record that is there to fn, by time across the rings. One
// ring after the other would do, but for a reader that was kept off its CPU:
// the records of its last ring would come as much later than those of the first.
func (r *reader) drain(fn func([]byte) error) error {
	h := r.heads[:0]
	for _, ring := range r.rings {
		ring.begin()
		if raw := ring.next(); raw != nil {
			h = append(h, headOf(ring, raw))
		}
	}
	defer r.endPass()
	r.heads = h
	for i := len(h) / 2; i >= 0; i-- {
		h.down(i)
	}
	for len(h) > 0 {
		first := h[0]
		if err := fn(first.raw); err != nil {
			return err
		}
		first.ring.release(first.raw)
		if raw := first.ring.next(); raw != nil {
			h[0] = headOf(first.ring, raw)
		} else {
			h[0] = h[len(h)-1]
			h = h[:len(h)-1]
		}
		h.down(0)
	}
	return nil
}

// endPass is the end of one, be it complete or not.
func (r *reader) endPass() {
	r.held = false
	for _, ring := range r.rings {
		ring.free()
		r.held = r.held || ring.busy()
	}
}

// head is the next record of a ring in a pass.
type head struct {
	time uint64
	ring *ring
	raw  []byte
}

func headOf(ring *ring, raw []byte) head { return head{timeOf(raw), ring, raw} }

// timeOf is what every record begins with; 0: it is too short.
func timeOf(raw []byte) uint64 {
	if len(raw) < 8 {
		return 0
	}
	return binary.NativeEndian.Uint64(raw)
}

// heads is a heap by time. It is one instead of container/heap's, which takes
// four calls through an interface for each record.
type heads []head

// down puts the element at i where it belongs below it.
func (h heads) down(i int) {
	for {
		least, child := i, 2*i+1
		for c := child; c < child+2 && c < len(h); c++ {
			if h[c].time < h[least].time {
				least = c
			}
		}
		if least == i {
			return
		}
		h[i], h[least] = h[least], h[i]
		i = least
	}
}

// finish drains until no record is left, after the gate was closed: programs
// that passed it before may still be writing. It gives up on a record that
// isn't submitted (its thread may be off its CPU) after many rounds.
func (r *reader) finish(fn func([]byte) error) error {
	for range 50 {
		if err := r.drain(fn); err != nil {
			return err
		}
		left := false
		for _, ring := range r.rings {
			left = left || !ring.empty()
		}
		if !left {
			return nil
		}
		if err := r.wait(heldLook); err != nil {
			return err
		}
	}
	return nil
}

func (r *reader) close() error {
	var errs []error
	for _, ring := range r.rings {
		errs = append(errs, ring.close())
	}
	r.rings = nil
	if r.waker >= 0 {
		errs = append(errs, unix.Close(r.waker))
	}
	return errors.Join(append(errs, unix.Close(r.epoll))...)
}

// recordKind is the kind in a record's header; 0 if it has none.
func recordKind(raw []byte) bpf.RdmaRecordKind {
	var h bpf.RdmaRecordHeader
	if decodeHeader(raw, &h) != nil {
		return 0
	}
	return bpf.RdmaRecordKind(h.Kind)
}
