package attribution

import (
	"math"
	"testing"

	"github.com/rdmatrace/rdmatrace/event"
)

func (t *tape) pause(begin, end uint64) {
	t.add(event.Event{Time: begin, Kind: event.KindPause, Flags: event.PauseBegin})
	t.add(event.Event{Time: end, Kind: event.KindPause, Flags: event.PauseEnd})
}

// What is pending as a pause begins is not measured, even if its completion is
// seen after it; what is posted after it is, once its queue is proven anew. The
// books balance, and nothing is lost.
func TestPause(t *testing.T) {
	tp := newTape()
	tp.made()
	for i, at := range []uint64{1000, 2000, 12_000, 13_000} {
		tp.post(worker, at, at+50, wr{id: uint64(i), bytes: 64, wqe: i + 1})
	}
	tp.reap(worker, 1500, 1510, event.Verb{WRID: 0, WQE: 1}, event.CompletionWQEValid)
	tp.pause(3000, 10_000)
	tp.post(worker, 4000, 4050, wr{id: 9, bytes: 64, wqe: 9}) // as probes went
	tp.reap(worker, 11_000, 11_010, event.Verb{WRID: 1, WQE: 2}, event.CompletionWQEValid)
	tp.reap(worker, 12_500, 12_510, event.Verb{WRID: 2, WQE: 3}, event.CompletionWQEValid)
	tp.reap(worker, 13_500, 13_510, event.Verb{WRID: 3, WQE: 4}, event.CompletionWQEValid)
	e, rec := playEvents(t, tp.events, Config{})
	checkBooks(t, e)
	if b := e.ledger.books[side(false)]; b.Posted != 4 || b.Completed != 3 || b.Excluded != 1 || b.Lost != 0 {
		t.Errorf("books: %+v", b)
	}
	if len(rec.wrs) != 3 || rec.wrs[1].postBegin != 12_000 {
		t.Errorf("measured: %+v", rec.wrs)
	}
}

// A call that a thread was in as the pause began is over when it makes the next.
func TestPauseInCall(t *testing.T) {
	tp := newTape()
	tp.made()
	tp.post(worker, 1000, 0, wr{id: 1, bytes: 64})
	tp.pause(1010, 5000)
	tp.post(worker, 6000, 6050, wr{id: 2, bytes: 64})
	e, _ := playEvents(t, tp.events, Config{})
	checkBooks(t, e)
	if b := e.ledger.books[side(false)]; b.Posted != 2 || b.Excluded != 2 || b.Lost != 0 || e.met.missedReturns != 0 {
		t.Errorf("books: %+v, %d returns missed", b, e.met.missedReturns)
	}
}

// Of a post that began before the probes were in again, which takes a moment, it is not
// known whether all was seen: it does not count.
func TestPauseEndsInCall(t *testing.T) {
	tp := newTape()
	tp.made()
	tp.pause(1010, 5000)
	tp.post(worker, 4990, 5050, wr{id: 1, bytes: 64, wqe: 1})
	tp.reap(worker, 5100, 5110, event.Verb{WRID: 1, WQE: 1}, event.CompletionWQEValid)
	tp.post(worker, 6000, 6050, wr{id: 2, bytes: 64, wqe: 2})
	tp.reap(worker, 6100, 6110, event.Verb{WRID: 2, WQE: 2}, event.CompletionWQEValid)
	e, rec := playEvents(t, tp.events, Config{})
	checkBooks(t, e)
	if b := e.ledger.books[side(false)]; b.Posted != 1 || b.Completed != 1 || b.Lost != 0 {
		t.Errorf("books: %+v", b)
	}
	if len(rec.wrs) != 1 || rec.wrs[0].postBegin != 6000 {
		t.Errorf("measured: %+v", rec.wrs)
	}
}

// The rate is that of the time observed, and its error that of the sample.
func TestSampled(t *testing.T) {
	var p pauses
	p.start(0)
	const second = 1_000_000_000
	for i := range 100 { // 10 ms of each 100 ms are observed, with 90 or 110 posts
		for range 90 + 20*(i%2) {
			p.count(1000)
		}
		at := uint64(i) * second / 10
		p.begin(at + second/100)
		p.end(at + second/10)
	}
	s := p.report(0, 10*second)
	if s.ObservedNS != second || s.Stretches != 101 || s.LongestUnobservedNS != 90e6 {
		t.Errorf("%+v", s)
	}
	// The standard deviation of a stretch is 10 of 100 posts.
	want := 1.96 * 10_000 * 0.1 / 10 * math.Sqrt(0.9)
	if math.Abs(s.WRsPerSec-10_000) > 1e-6 || math.Abs(s.WRsPerSecError-want) > want/20 || math.Abs(s.BytesPerSec-1e7) > 1e-3 {
		t.Errorf("%+v, wanted an error of %.0f", s, want)
	}
	if (&pauses{}).report(0, second) != nil {
		t.Error("a window without a pause is sampled")
	}
}

// A long run keeps what its stretches tell in bounded memory.
func TestPausesAreBounded(t *testing.T) {
	var p pauses
	p.start(0)
	const n = 3 * pausesMost
	for i := range uint64(n) {
		p.count(1)
		p.begin(i*100 + 25)
		p.end(i*100 + 100)
	}
	s := p.report(0, n*100)
	if len(p.counts) > pausesMost || len(p.closed) > pausesMost {
		t.Errorf("%d stretches, %d pauses are kept", len(p.counts), len(p.closed))
	}
	if observed := float64(s.ObservedNS) / (n * 100); math.Abs(observed-0.25) > 0.001 || math.Abs(s.WRsPerSec/4e7-1) > 0.001 {
		t.Errorf("%+v", s)
	}
}
