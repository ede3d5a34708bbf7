package attribution

import "testing"

// TestShareOfManyLargeTransfers: beyond shareReach the share is extrapolated,
// which must not wrap: 256 transfers of 1 GiB times a second of ns exceed 64 bits.
func TestShareOfManyLargeTransfers(t *testing.T) {
	var p portTraffic
	const n, size, step = 2 * shareReach, 1 << 30, 10_000_000
	p.enter(transfer{done: 1, bytes: 1, queue: 1})
	for i := range uint64(n) {
		p.enter(transfer{done: step * (i + 1), bytes: size, queue: 2})
	}
	rate := perByte(step << perByteBits / size)
	got := p.share(heldUp{queue: 1, begin: 1, end: step * n}, rate, 0)
	if want := float64(step * n); float64(got) < 0.98*want || float64(got) > 1.02*want {
		t.Errorf("%d ns, want about %.0f", got, want)
	}
	if got := perByteAt(1).of(1 << 50); got != never {
		t.Errorf("a petabyte at 1 bit/s takes %d ns", got)
	}
}

// What a WR has waited for behind others is what was posted before it, and of what was
// posted later as much as it is long itself.
func TestShareIsInTurn(t *testing.T) {
	const rate, size, posted = 1 << perByteBits, 1000, 5000 // 1 ns a byte
	for _, c := range []struct {
		name   string
		posted func(i uint64) uint64 // of the i-th transfer of queue pair 2
		stuck  bool
		bytes  uint64 // of the WR of queue pair 1
		want   uint64 // ns
	}{
		{"all posted before", func(uint64) uint64 { return posted }, false, size, 10 * size},
		{"one at a time, of one length", func(i uint64) uint64 { return posted + size*i }, false, size, 2 * size},
		{"one at a time, a long one waits", func(i uint64) uint64 { return posted + size*i }, false, 5 * size, 6 * size},
		{"one at a time, a short one waits", func(i uint64) uint64 { return posted + size*i }, false, 10, size + 10},
		{"one at a time, a notification waits", func(i uint64) uint64 { return posted + size*i }, false, 0, size},
		{"stuck ones are not in front", func(uint64) uint64 { return posted }, true, size, 0},
	} {
		var p portTraffic
		p.enter(transfer{done: 1, bytes: 1, queue: 1})
		for i := range uint64(10) {
			done := posted + size*(i+1)
			p.enter(transfer{done: done, posted: c.posted(i), bytes: size, queue: 2, stuck: c.stuck})
		}
		if got := p.share(heldUp{queue: 1, posted: posted, begin: posted, end: posted + 10*size, bytes: c.bytes}, rate, 0); got != c.want {
			t.Errorf("%s: %d ns, want %d", c.name, got, c.want)
		}
	}
}

// A transfer without bytes that came later ends nothing: it takes no turn.
func TestShareBesideNotifications(t *testing.T) {
	const rate, size, posted = 1 << perByteBits, 1000, 5000 // 1 ns a byte
	var p portTraffic
	p.enter(transfer{done: 1, bytes: 1, queue: 1})
	for i := range uint64(10) {
		done := posted + size*(i+1)
		p.enter(transfer{done: done, posted: posted, bytes: size, queue: 2})
		p.enter(transfer{done: done, posted: posted + 1, queue: 3})
	}
	if got := p.share(heldUp{queue: 1, posted: posted, begin: posted, end: posted + 10*size, bytes: size}, rate, 0); got != 10*size {
		t.Errorf("%d ns, want %d", got, 10*size)
	}
}

// A walk ends at shareReach, also where what is there was stuck.
func TestShareEndsAtItsReach(t *testing.T) {
	const rate, size = 1 << perByteBits, 1000 // 1 ns a byte
	var p portTraffic
	p.enter(transfer{done: 1, bytes: 1, queue: 1})
	for i := range uint64(4 * shareReach) {
		// What follows the reach would be none: the walk would see it.
		t := transfer{done: size * (i + 1), bytes: size, queue: 2, stuck: i%(shareReach+1) == shareReach || i > shareReach}
		p.enter(t)
	}
	end := uint64(size * 4 * shareReach)
	if got := p.share(heldUp{queue: 1, posted: end, begin: 1, end: end, bytes: size}, rate, 0); got < end*9/10 {
		t.Errorf("%d ns, want about %d: extrapolated at the reach", got, end)
	}
}

// A transfer was overtaken if another queue pair posted when half of its time had passed,
// and was done before it, with as many bytes on the same way.
func TestOvertaken(t *testing.T) {
	way, other := new(floor), new(floor)
	for _, c := range []struct {
		name string
		by   transfer
		want bool
	}{
		{"by one posted late", transfer{posted: 2500, done: 2900, bytes: 8, floor: way, queue: 2}, true},
		{"by one of more bytes", transfer{posted: 2001, done: 3000, bytes: 9, floor: way, queue: 2}, true},
		{"not by one posted early", transfer{posted: 1900, done: 2900, bytes: 8, floor: way, queue: 2}, false},
		{"not by one that was done later", transfer{posted: 2500, done: 3100, bytes: 8, floor: way, queue: 2}, false},
		{"not by its own queue pair", transfer{posted: 2500, done: 2900, bytes: 8, floor: way, queue: 1}, false},
		{"not by a shorter one", transfer{posted: 2500, done: 2900, bytes: 7, floor: way, queue: 2}, false},
		{"not by one of a shorter way", transfer{posted: 2500, done: 2900, bytes: 8, floor: other, queue: 2}, false},
	} {
		var p portTraffic
		p.enter(transfer{posted: 1, done: 1500, bytes: 8, floor: way, queue: 1})
		p.enter(c.by)
		p.enter(transfer{posted: 1000, done: 3200, bytes: 8, floor: way, queue: 3})
		if got := p.overtaken(&transfer{posted: 500, done: 3000, bytes: 8, floor: way, queue: 1}, 1000); got != c.want {
			t.Errorf("%s: overtaken is %v", c.name, got)
		}
	}
}
