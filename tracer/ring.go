package tracer

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// A BPF ring buffer as user space sees it: a page with the consumer's
// position, a page with the producer's, then the data. Each record has an 8-byte
// header, whose first word is its length and two flags (kernel/bpf/ringbuf.c). The
// kernel would map the data twice in a row, so that a record never wraps, but counts
// every page twice then in the resident size of the process.
const (
	ringHeader  = 8
	ringBusy    = 1 << 31 // reserved, not yet submitted
	ringDiscard = 1 << 30
)

// ring reads one ring buffer without copying. cilium/ebpf's reader copies each
// record and polls level-triggered: with records that wake nobody, it spins
// while they keep coming.
type ring struct {
	m          *ebpf.Map
	consumer   []byte
	producer   []byte
	data       []byte
	wrapped    []byte // a copy of a record that wraps; reused
	mask       uint64
	consumePos *uint64
	producePos *uint64
	pos, end   uint64 // of the pass under way: what is left to read
	freed      uint64 // so far the programs may write again
}

func openRing(m *ebpf.Map) (*ring, error) {
	size := int(m.MaxEntries())
	page := os.Getpagesize()
	consumer, err := unix.Mmap(m.FD(), 0, page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map the consumer page of a ring buffer: %w", err)
	}
	producer, err := unix.Mmap(m.FD(), int64(page), page+size, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		unix.Munmap(consumer)
		return nil, fmt.Errorf("map %d bytes of a ring buffer: %w", page+size, err)
	}
	return &ring{
		m: m, consumer: consumer, producer: producer, data: producer[page:],
		mask:       uint64(size - 1),
		consumePos: (*uint64)(unsafe.Pointer(&consumer[0])),
		producePos: (*uint64)(unsafe.Pointer(&producer[0])),
	}, nil
}

func (r *ring) close() error {
	return errors.Join(unix.Munmap(r.consumer), unix.Munmap(r.producer), r.m.Close())
}

// begin starts a pass over the records that are there now.
func (r *ring) begin() {
	r.pos = atomic.LoadUint64(r.consumePos)
	r.end = atomic.LoadUint64(r.producePos)
	r.freed = r.pos
}

// next is the record that comes next in the pass, nil at its end or where a
// record is still being written. Its bytes are valid until release.
func (r *ring) next() []byte {
	for r.pos < r.end {
		start := r.pos & r.mask
		head := atomic.LoadUint32((*uint32)(unsafe.Pointer(&r.data[start])))
		if head&ringBusy != 0 {
			return nil
		}
		raw := r.record(start+ringHeader, uint64(head&^(ringBusy|ringDiscard)))
		if head&ringDiscard == 0 {
			return raw
		}
		r.release(raw)
	}
	return nil
}

// busy says, where next returned nil, that this was for a record that is still being written.
func (r *ring) busy() bool { return r.pos < r.end }

// record is the bytes of one that begins at from, which is the ring's end where its
// header ended there.
func (r *ring) record(from, size uint64) []byte {
	from &= r.mask
	if from+size <= uint64(len(r.data)) {
		return r.data[from : from+size]
	}
	r.wrapped = append(r.wrapped[:0], r.data[from:]...)
	r.wrapped = append(r.wrapped, r.data[:size-uint64(len(r.wrapped))]...)
	return r.wrapped
}

// release is for the record that next returned: what was read is freed a sixteenth of
// the ring at a time. The programs look at the consumer's position for each record that
// they write, on another CPU: to fetch it each time is dear for both sides.
func (r *ring) release(raw []byte) {
	r.pos += ringHeader + (uint64(len(raw))+7)&^7
	if r.pos-r.freed > r.mask/16 {
		r.free()
	}
}

// free gives back what was read in the pass under way.
func (r *ring) free() {
	if r.freed != r.pos {
		r.freed = r.pos
		atomic.StoreUint64(r.consumePos, r.pos)
	}
}

// empty reports whether all records, those being written included, were read.
func (r *ring) empty() bool {
	return atomic.LoadUint64(r.consumePos) == atomic.LoadUint64(r.producePos)
}

// ringSize is the size of each of n rings that may take total bytes together:
// a power of two, at least a page and big enough for one stack record.
func ringSize(total, n int) int {
	size := 1 << 16
	for size*2*n <= total && size < maxRing {
		size *= 2
	}
	return max(size, os.Getpagesize())
}

// maxRing is the largest ring of one CPU, which holds half a second of 100,000 work
// requests a second: a reader that shares its CPU with threads that spin was seen to be
// kept from it for a quarter of one. More would only hide a stuck reader.
const maxRing = 16 << 20
