package attribution

import (
	"math"
	"testing"

	"github.com/rdmatrace/rdmatrace/event"
)

// simCase is a history and what the split must make of it; limits in percent
// of the wire time. Where truth is set, send-queue and port-share must be what
// really happened, within so many percent of the wire time.
type simCase struct {
	name   string
	path   *simPath
	link   uint64 // bits per second; 0: not known
	queues []*simQueue
	most   map[Cause]float64
	least  map[Cause]float64
	truth  float64
}

func write(wrs, depth int, size uint64) *simQueue {
	return &simQueue{qp: testQP(5), wrs: wrs, depth: depth, size: fixed(size), think: 300}
}

func simCases() []simCase {
	quiet := map[Cause]float64{SendQueue: 1, PortShare: 1, Excess: 3}
	cases := []simCase{
		{
			name: "one at a time", path: newSimPath(20_000, 0.08),
			queues: []*simQueue{write(2000, 1, 64)},
			most:   quiet, least: map[Cause]float64{Base: 95},
		},
		{
			name: "long wire, deep queue of small writes", path: newSimPath(50_000, 0.08),
			queues: []*simQueue{write(4000, 16, 64)},
			most:   quiet,
		},
		{
			name: "long wire, deep queue posted in bursts", path: newSimPath(50_000, 0.08),
			queues: []*simQueue{{qp: testQP(5), wrs: 4000, depth: 16, batch: 8, size: fixed(64), think: 300}},
			most:   quiet, least: map[Cause]float64{Base: 90},
		},
		{
			name: "long wire that jitters, deep queue posted in bursts", path: jittering(newSimPath(50_000, 0.08), 10_000),
			queues: []*simQueue{{qp: testQP(5), wrs: 4000, depth: 16, batch: 8, size: fixed(64), think: 300}},
			most:   map[Cause]float64{SendQueue: 2, PortShare: 0, Excess: 25}, least: map[Cause]float64{Base: 75},
		},
		{
			name: "long wire that jitters, small and large writes", path: jittering(newSimPath(50_000, 0.08), 10_000),
			queues: []*simQueue{{qp: testQP(5), wrs: 4000, depth: 16, batch: 5, size: func(i int) uint64 { return 64 << (i * 7 % 11) }, think: 300}},
			most:   map[Cause]float64{SendQueue: 6, PortShare: 0, Excess: 25},
			truth:  4,
		},
		{
			name: "saturated path, depth varies", path: newSimPath(5_000, 0.8),
			queues: []*simQueue{{qp: testQP(5), wrs: 4000, depth: 64, batch: 50, size: fixed(65536), think: 300}},
			most:   map[Cause]float64{Excess: 2, PortShare: 0}, least: map[Cause]float64{SendQueue: 80},
			truth: 3,
		},
		{
			name: "saturated link, one in sixteen signalled", path: newSimPath(5_000, 0.8), link: 10e9,
			queues: []*simQueue{{qp: testQP(5), wrs: 64_000, depth: 128, batch: 16, signal: 16, size: fixed(65536), think: 300_000}},
			most:   map[Cause]float64{Excess: 4, PortShare: 0}, least: map[Cause]float64{SendQueue: 80},
			truth: 4,
		},
		{
			name: "long wire, one in sixteen signalled", link: 10e9, path: jittering(newSimPath(50_000, 0.08), 2000),
			queues: []*simQueue{{qp: testQP(5), wrs: 64_000, depth: 64, batch: 16, signal: 16, size: fixed(64), think: 300}},
			most:   map[Cause]float64{Excess: 5, PortShare: 0, SendQueue: 2},
		},
		{
			name: "one at a time, many sizes", path: newSimPath(10_000, 0.08),
			queues: []*simQueue{{qp: testQP(5), wrs: 4000, depth: 1, size: func(i int) uint64 { return 64 << (i % 14) }, think: 300}},
			most:   quiet, least: map[Cause]float64{Transmit: 30, Base: 30},
		},
		{
			name: "two queue pairs share the port", path: newSimPath(5_000, 0.8),
			queues: []*simQueue{
				{qp: testQP(5), wrs: 2000, depth: 1, size: func(i int) uint64 { return 8192 << (i % 4) }, think: 40_000},
				{qp: testQP(6), wrs: 2000, depth: 1, size: func(i int) uint64 { return 8192 << (i % 4) }, think: 10_000},
			},
			most: map[Cause]float64{Excess: 4, SendQueue: 1}, least: map[Cause]float64{PortShare: 2},
		},
		{
			name: "four queue pairs saturate the link", path: newSimPath(5_000, 0.8), link: 10e9,
			queues: []*simQueue{deepWriter(1, 10), deepWriter(2, 20), deepWriter(3, 50), deepWriter(4, 100)},
			most:   map[Cause]float64{Excess: 4}, least: map[Cause]float64{SendQueue: 15, PortShare: 50},
		},
		{
			name: "too few", path: newSimPath(5_000, 0.8),
			queues: []*simQueue{write(10, 1, 64)},
			least:  map[Cause]float64{WireUnsplit: 100},
		},
		{
			name: "saturated at one depth: base and queueing cannot be told apart", path: newSimPath(5_000, 0.8),
			queues: []*simQueue{write(2000, 16, 65536)},
			least:  map[Cause]float64{WireUnsplit: 95},
		},
		{
			name: "READs behind a limit that is known", path: newSimPath(20_000, 0.01),
			queues: []*simQueue{readQueue(4, 4000, true), readQueue(4, 300, false)},
			most:   map[Cause]float64{Excess: 3, PortShare: 1}, truth: 3,
		},
	}
	return cases
}

func jittering(p *simPath, ns int) *simPath {
	p.jitter = ns
	return p
}

// deepWriter keeps up to 128 writes in flight, and takes completions in batches.
func deepWriter(num uint32, batch int) *simQueue {
	return &simQueue{qp: testQP(num), wrs: 2000, depth: 128, batch: batch, size: fixed(65536), think: 300}
}

// readQueue keeps 16 READs posted, of which limit are in flight. deep false:
// one at a time, from which the base is learnt.
func readQueue(limit uint8, wrs int, deep bool) *simQueue {
	q := &simQueue{qp: testQP(7), opcode: opRead, wrs: wrs, depth: 1, size: fixed(64), think: 500}
	q.qp.maxRDAtomic = limit
	if deep {
		q.qp.num, q.depth, q.batch = 8, 32, 8
	}
	return q
}

func TestWireSplit(t *testing.T) {
	for _, c := range simCases() {
		t.Run(c.name, func(t *testing.T) {
			cfg := Config{Devices: []event.Device{{Name: "mlx5_0", Ports: []event.Port{{Number: 1, RateBPS: c.link}}}}}
			r := splitWith(t, cfg, c.path.run(c.queues...))
			r.blame(t)
			for cause, limit := range c.most {
				causes := []Cause{cause}
				if cause == Excess {
					causes = []Cause{Excess, RNR, Retransmit} // not yet renamed
				}
				if got := r.share(causes...); got > limit {
					t.Errorf("%s takes %.2f %%, at most %.2f %% is right", cause, got, limit)
				}
			}
			for cause, limit := range c.least {
				if got := r.share(cause); got < limit {
					t.Errorf("%s takes %.2f %%, at least %.2f %% is right", cause, got, limit)
				}
			}
			if c.truth > 0 {
				want := 100 * float64(r.queued) / float64(r.wire)
				if got := r.share(SendQueue); math.Abs(got-want) > c.truth {
					t.Errorf("send-queue takes %.2f %%, truth is %.2f %%", got, want)
				}
			}
		})
	}
}

// TestJitterIsNoSendQueue: on a wire that jitters with a long tail and keeps its
// completions in order, WRs wait for those in front of them at any depth, and
// behind none of their bytes: the path is idle nearly all the time.
func TestJitterIsNoSendQueue(t *testing.T) {
	const base = 20_000
	for _, jitter := range []float64{0.3, 1, 3} {
		for _, depth := range []int{2, 4, 16, 64, 128} {
			for _, batch := range []int{1, depth / 2, depth} {
				path := newSimPath(base, 0.08)
				path.tail = jitter * base
				q := &simQueue{qp: testQP(5), wrs: 4000, depth: depth, batch: batch, size: fixed(64), think: 300}
				r := splitAll(t, path.run(q))
				if got, truth := r.share(SendQueue), 100*float64(r.queued)/float64(r.wire); got > truth+9 {
					t.Errorf("jitter of %v bases, depth %d, %d at a time: send-queue takes %.1f %%, truth is %.1f %%", jitter, depth, batch, got, truth)
				}
			}
		}
	}
}

// Base and rate are found from WRs of several sizes, one at a time.
func TestFloorFindsBaseAndRate(t *testing.T) {
	for _, c := range []struct {
		base    uint64
		perByte float64
		jitter  int
	}{{2_000, 0.04, 50}, {5_000, 0.08, 200}, {20_000, 0.8, 2000}, {100_000, 8, 5000}} {
		path := newSimPath(c.base, c.perByte)
		path.jitter = c.jitter
		q := &simQueue{qp: testQP(5), wrs: 5000, depth: 1, size: func(i int) uint64 { return 1024 << (i % 11) }, think: 300}
		r := splitAll(t, path.run(q))
		fit := r.agg.lines[0].fit
		if !fit.known || !fit.fitted {
			t.Fatalf("no fit: %+v", fit)
		}
		if got := float64(fit.perByte) / (1 << perByteBits); math.Abs(got-c.perByte) > 0.05*c.perByte {
			t.Errorf("%v ns a byte, truth is %v", got, c.perByte)
		}
		if off := math.Abs(float64(fit.base) - float64(c.base)); off > 0.05*float64(c.base)+0.2*float64(c.jitter) {
			t.Errorf("base %d, truth is %d", fit.base, c.base)
		}
	}
}

// A WR that is stuck for long is not waiting for the port because others send
// meanwhile: the port was idle most of that time.
func TestStallBesideBusyQueuePairs(t *testing.T) {
	const every, stuck, size = 100, 1_000_000, 4096
	stalled := func(i int) bool { return i%every == every-1 }
	path := newSimPath(5_000, 0.08)
	path.jitter = 300
	sizes := func(i int) uint64 { return size << (i % 3) }
	queues := []*simQueue{{
		qp: testQP(1), wrs: 3000, depth: 4, size: sizes, think: 2_000,
		late: func(i int) uint64 {
			if stalled(i) {
				return stuck
			}
			return 0
		},
	}}
	for num := range uint32(3) {
		queues = append(queues, &simQueue{qp: testQP(2 + num), wrs: 20_000, depth: 4, size: sizes, think: 1_500 + uint64(num)*300})
	}
	r := splitAll(t, path.run(queues...))
	right, injected := 0, 0
	for _, w := range r.wrs {
		if w.m.qp.num != 1 || !stalled(int(w.m.index)) {
			continue
		}
		injected++
		above := w.parts.causes[Excess] + w.parts.causes[RNR] + w.parts.causes[Retransmit]
		if math.Abs(float64(above)-stuck) < 2000 && w.parts.causes[PortShare] < 20_000 { // which others took when it was posted
			right++
		} else if injected < 5 {
			t.Logf("WR %d: %d ns above the floor, %d of port-share", w.m.index, above, w.parts.causes[PortShare])
		}
	}
	if injected < 20 || right < injected*95/100 {
		t.Errorf("%d of %d stalls found with the right amount", right, injected)
	}
}

// A stall is excess of the WR it met, to the amount, and of those behind it as
// far as they waited for it: not send-queue. They are one incident.
func TestStallIsNotCalledSendQueue(t *testing.T) {
	const every, stuck = 200, 3_000_000
	for _, depth := range []int{1, 16} {
		path := newSimPath(50_000, 0.08)
		q := &simQueue{qp: testQP(5), wrs: 4000, depth: depth, batch: max(depth/2, 1), size: fixed(64), think: 300}
		q.stall = func(i int) uint64 {
			if i%every == every-1 {
				return stuck
			}
			return 0
		}
		r := splitAll(t, path.run(q))
		r.blame(t)
		right, injected := 0, 0
		for _, w := range r.wrs {
			if w.stuck == 0 {
				continue
			}
			injected++
			if got := w.parts.causes[Excess] + w.parts.causes[RNR] + w.parts.causes[Retransmit]; math.Abs(float64(got)-stuck) < 2000 {
				right++
			}
		}
		if right < injected*95/100 {
			t.Errorf("depth %d: %d of %d stalls found with the right amount", depth, right, injected)
		}
		if got := r.share(SendQueue); got > 2 {
			t.Errorf("depth %d: send-queue takes %.2f %%", depth, got)
		}
		incidents := r.report.Incidents
		if len(incidents) < 20 {
			t.Fatalf("depth %d: %d incidents of 20 stalls", depth, len(incidents))
		}
		for _, in := range incidents[:20] {
			if in.Worst.Index == int64(q.wrs-1) {
				continue // nobody is behind the last WR
			}
			if in.Cause != Excess || in.End-in.Begin < stuck-2000 || in.End-in.Begin > stuck+60_000 || in.WRs < int64(depth/2) || in.WRs > int64(2*depth) {
				t.Errorf("depth %d: incident %s of %d ns with %d WRs", depth, in.Cause, in.End-in.Begin, in.WRs)
			}
		}
	}
}

// NCCL's message: an unsignalled WRITE of 1 MiB and a signalled WRITE_WITH_IMM
// of 0 bytes in one call. Size, transmit and base are those of the chain.
func TestNotificationIsPartOfItsChain(t *testing.T) {
	path := newSimPath(5_000, 0.08)
	sizes := func(i int) uint64 { return 65536 << (i % 5) }
	q := &simQueue{qp: testQP(5), opcode: 1, wrs: 3000, depth: 1, size: sizes, think: 2000}
	q.alter = func(m *measured) { m.chained, m.retired, m.retBytes = 2, 1, m.bytes }
	r := splitAll(t, path.run(q))
	r.blame(t)
	if got := r.share(Transmit, Base); got < 97 {
		t.Errorf("transmit and base take %.2f %%", got)
	}
	if got := r.share(Excess, SendQueue); got > 2 {
		t.Errorf("excess and send-queue take %.2f %%", got)
	}
}

// A path slower than link and PCIe is said to be so, but not for a software
// device, and not without knowing them.
func TestPathLimit(t *testing.T) {
	device := event.Device{Name: "mlx5_0", PCIeBPS: 256e9, Ports: []event.Port{{Number: 1, RateBPS: 100e9}}}
	software := device
	software.Software = true
	for _, c := range []struct {
		name    string
		devices []event.Device
		perByte float64
		want    bool
	}{
		{"full rate", []event.Device{device}, 0.08, false},
		{"a quarter of the rate", []event.Device{device}, 0.32, true},
		{"software device", []event.Device{software}, 0.32, false},
		{"rates not known", nil, 0.32, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			q := &simQueue{qp: testQP(5), wrs: 3000, depth: 1, size: func(i int) uint64 { return 4096 << (i % 9) }, think: 300}
			r := splitWith(t, Config{Devices: c.devices}, newSimPath(3000, c.perByte).run(q))
			r.blame(t)
			got, transmit := r.share(PathLimit), r.share(Transmit)
			if c.want && math.Abs(got-3*transmit) > 0.1*got {
				t.Errorf("path-limit %.2f %%, transmit %.2f %%: three quarters of the time are the path's", got, transmit)
			}
			if !c.want && got > 0 {
				t.Errorf("path-limit %.2f %%", got)
			}
		})
	}
}

// Without doubt about done there is nothing to learn from; with it, what is
// undecided stays so and only the certain part of the wire is split.
func TestDoubtfulWRsTeachNothing(t *testing.T) {
	q := write(2000, 1, 64)
	q.alter = func(m *measured) {
		m.doneLow, m.uncertain = m.done-15_000, true
		m.segments[1].end = m.doneLow
		m.segments = append(m.segments[:2:2], segment{begin: m.doneLow, end: m.done, cause: CauseUndecided, cpu: -1}, m.segments[2])
	}
	r := splitAll(t, newSimPath(20_000, 0.08).run(q))
	if r.share(WireUnsplit) < 100 {
		t.Errorf("split by WRs that are in doubt: %v", r.causes)
	}
	if r.causes[CauseUndecided] != 2000*15_000 {
		t.Errorf("undecided is %d ns", r.causes[CauseUndecided])
	}
}
