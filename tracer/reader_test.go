package tracer

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
)

// memoryRing is a ring in plain memory, to be written by a test.
type memoryRing struct {
	ring
	size uint64
}

func newMemoryRing(size int) *memoryRing {
	r := &memoryRing{size: uint64(size)}
	r.data, r.mask = make([]byte, size), uint64(size-1)
	r.consumePos, r.producePos = new(uint64), new(uint64)
	return r
}

// write adds a record of so many bytes that begins with time; false: no room.
func (r *memoryRing) write(time uint64, bytes int, flags uint32) bool {
	need := ringHeader + (uint64(bytes)+7)&^7
	if *r.producePos+need-*r.consumePos > r.size {
		return false
	}
	raw := make([]byte, need)
	binary.NativeEndian.PutUint32(raw, uint32(bytes)|flags)
	binary.NativeEndian.PutUint64(raw[ringHeader:], time)
	for i := range raw[ringHeader+8:] {
		raw[ringHeader+8+i] = byte(time)
	}
	for i, b := range raw {
		r.data[(*r.producePos+uint64(i))&r.mask] = b
	}
	*r.producePos += need
	return true
}

// TestDrainByTime: a pass gives what all rings hold in the order of time,
// each record once, over many rounds of the rings.
func TestDrainByTime(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for _, cpus := range []int{1, 2, 3, 7, 64} {
		r := &reader{}
		var rings []*memoryRing
		for range cpus {
			m := newMemoryRing(1 << 12)
			rings = append(rings, m)
			r.rings = append(r.rings, &m.ring)
		}
		now, written, read := uint64(0), 0, 0
		for range 200 {
			for range rnd.IntN(40 * cpus) {
				now += uint64(rnd.IntN(3))
				flags := uint32(0)
				if rnd.IntN(10) == 0 {
					flags = ringDiscard
				}
				if rings[rnd.IntN(cpus)].write(now, 8+rnd.IntN(90), flags) && flags == 0 {
					written++
				}
			}
			latest := uint64(0)
			err := r.drain(func(raw []byte) error {
				time := binary.NativeEndian.Uint64(raw)
				if time < latest {
					t.Fatalf("%d rings: %d after %d", cpus, time, latest)
				}
				if i := slices.IndexFunc(raw[8:], func(b byte) bool { return b != byte(time) }); i >= 0 {
					t.Fatalf("%d rings: byte %d of %d is another record's", cpus, 8+i, len(raw))
				}
				latest = time
				read++
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		if read != written || written == 0 {
			t.Errorf("%d rings: %d records written, %d read", cpus, written, read)
		}
	}
}

// TestDrainBusy: a record that is being written holds up its own ring only,
// and is read once it is complete. An error leaves its record unread.
func TestDrainBusy(t *testing.T) {
	a, b := newMemoryRing(1<<12), newMemoryRing(1<<12)
	r := &reader{rings: []*ring{&a.ring, &b.ring}}
	a.write(1, 8, 0)
	busy := *a.producePos
	a.write(3, 8, ringBusy)
	a.write(5, 8, 0)
	b.write(2, 8, 0)
	b.write(4, 8, 0)
	var got []uint64
	take := func(raw []byte) error {
		got = append(got, binary.NativeEndian.Uint64(raw))
		return nil
	}
	if err := r.drain(take); err != nil || !slices.Equal(got, []uint64{1, 2, 4}) {
		t.Errorf("%v, %v", got, err)
	}
	if !r.held {
		t.Error("the pass was not held up")
	}
	binary.NativeEndian.PutUint32(a.data[busy:], 8)
	failure := errors.New("no")
	if err := r.drain(func([]byte) error { return failure }); err != failure {
		t.Errorf("%v", err)
	}
	got = nil
	if err := r.drain(take); err != nil || !slices.Equal(got, []uint64{3, 5}) {
		t.Errorf("%v, %v", got, err)
	}
	if !a.empty() || !b.empty() || r.held {
		t.Error("not all was read")
	}
}
