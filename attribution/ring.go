package attribution

// ring is a queue of the latest items: the oldest make room. Items keep their
// sequence number for life, so that one ring can refer to another.
type ring[T any] struct {
	buf   []T    // its length is a power of two
	first uint64 // sequence number of the oldest item kept
	next  uint64 // sequence number of the item to come
}

func (r *ring[T]) len() int { return int(r.next - r.first) }

// at gives the item numbered seq, which must be kept.
func (r *ring[T]) at(seq uint64) *T { return &r.buf[seq&uint64(len(r.buf)-1)] }

// last gives the newest item; the ring must not be empty.
func (r *ring[T]) last() *T { return r.at(r.next - 1) }

func (r *ring[T]) full() bool { return r.len() == len(r.buf) }

// push appends, in place of the oldest if the ring is full.
func (r *ring[T]) push(item T) {
	if len(r.buf) == 0 {
		r.grow()
	}
	if r.full() {
		r.first++
	}
	r.next++
	*r.last() = item
}

// grow doubles the room.
func (r *ring[T]) grow() {
	buf := make([]T, max(16, 2*len(r.buf)))
	old := *r
	r.buf = buf
	for seq := old.first; seq != old.next; seq++ {
		*r.at(seq) = *old.at(seq)
	}
}

// pop drops the oldest item.
func (r *ring[T]) pop() { r.first++ }
