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
	got := p.share(1, 1, step*n, rate, 0, 0)
	if want := float64(step * n); float64(got) < 0.98*want || float64(got) > 1.02*want {
		t.Errorf("%d ns, want about %.0f", got, want)
	}
	if got := perByteAt(1).of(1 << 50); got != never {
		t.Errorf("a petabyte at 1 bit/s takes %d ns", got)
	}
}
