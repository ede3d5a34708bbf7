package attribution

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/rdmatrace/rdmatrace/event"
)

// Records of the scheduler that come late, as nothing else came for a while, or that
// tell of an older time than those before them, leave cuts without overlap: what the
// thread did is not known from then on, until all that came in time was told.
func TestLateSwitchesInSilence(t *testing.T) {
	const ms = 1_000_000
	tape := newTape()
	tape.made()
	tape.cq(2, -1)
	tape.runs(10, 0, worker, 0)
	call := tape.post(worker, 100, 110*ms, wr{id: 1, wqe: 1})
	returned := *call
	tape.events = tape.events[:len(tape.events)-1]
	// Nothing for 100 ms, in which the thread slept: that comes late.
	tape.arm(worker, 100*ms)
	tape.sleeps(50*ms, 0, worker, amd64Futex, 0)
	tape.sleeps(20*ms, 0, helper, amd64Futex, 0)
	tape.sleeps(60*ms, 0, helper, amd64Futex, 0)
	tape.add(returned)
	tape.reap(worker, 110*ms, 111*ms, event.Verb{WQE: 1, WRID: 1}, event.CompletionWQEValid)
	_, rec := tape.play(t, Config{Watermark: 1000})
	if len(rec.wrs) != 1 {
		t.Fatalf("%d work requests", len(rec.wrs))
	}
	m := &rec.wrs[0]
	checkCut(t, m)
	unknown := uint64(0)
	for _, s := range m.segments {
		if s.cause == CauseUndecided && s.tid == worker {
			unknown += s.length()
		}
	}
	if unknown < 70*ms || unknown > 80*ms {
		t.Errorf("%d ns are not known, not those from 20 to 100 ms: %s", unknown, describe(m.segments, 0, ms))
	}
}

// Whatever the order in which gaps are told, they are kept in that of time, and cover what
// all of them cover.
func TestGapsInAnyOrder(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		tl := newTimelines("")
		var missing [200]bool
		told := ""
		for range rng.IntN(40) {
			begin, length := rng.Uint64N(180), rng.Uint64N(8)
			end := begin + length
			for i := begin; i < end; i++ {
				missing[i] = true
			}
			if length == 0 {
				end = rng.Uint64N(begin + 1) // one that ends before it begins
			}
			told += fmt.Sprintf(" %d-%d", begin, end)
			tl.lost(begin, end)
		}
		var got [200]bool
		last := -1
		for seq := tl.gaps.first; seq != tl.gaps.next; seq++ {
			g := tl.gaps.at(seq)
			if int(g.begin) <= last || g.end < g.begin {
				t.Fatalf("gap %d-%d comes after %d, of%s", g.begin, g.end, last, told)
			}
			last = int(g.end)
			for i := g.begin; i < g.end; i++ {
				got[i] = true
			}
		}
		if got != missing {
			t.Fatalf("gaps cover other times than%s", told)
		}
	}
}

// Losses of impossible sizes leave books that balance, without negative numbers.
func TestLossOfDamagedCount(t *testing.T) {
	for _, of := range []event.Kind{event.KindWR, event.KindSwitch, 0} {
		tape := newTape()
		tape.made()
		for i := range uint64(20) {
			tape.loss(100+i, 200+i, of, 1<<64-1-i)
		}
		e, _ := tape.play(t, Config{})
		checkBooks(t, e)
		if n := e.met.dropped[of]; n < 1<<40 || n > 1<<60 {
			t.Errorf("%d records of kind %d were dropped", n, of)
		}
		for _, d := range e.doubts() {
			if strings.Contains(d, "-") {
				t.Errorf("a doubt of a negative number: %s", d)
			}
		}
	}
}

// An entry that the kernel had written before it began to is damage: it would put done
// after its own bound.
func TestWrittenBeforeItBegan(t *testing.T) {
	o := newOrderer(0, nil)
	for end, want := range map[uint64]arrival{99: arrivedBroken, 100: arrivedInTime, 101: arrivedInTime} {
		if got := o.add(&event.Event{Time: 100, Kind: event.KindCQE, Verb: event.Verb{End: end}}); got != want {
			t.Errorf("from 100 to %d: %d, want %d", end, got, want)
		}
	}
}
