package attribution

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/rdmatrace/rdmatrace/event"
	"pgregory.net/rapid"
)

func anySim() *rapid.Generator[simConfig] {
	return rapid.Custom(func(t *rapid.T) simConfig {
		c := simConfig{
			seed:      rapid.Uint64().Draw(t, "seed"),
			qps:       rapid.IntRange(1, 3).Draw(t, "qps"),
			depth:     rapid.SampledFrom([]int{1, 2, 8, 32}).Draw(t, "depth"),
			threads:   rapid.IntRange(1, 2).Draw(t, "threads"),
			poller:    rapid.Bool().Draw(t, "poller"),
			list:      rapid.SampledFrom([]int{1, 1, 4}).Draw(t, "list"),
			signal:    rapid.SampledFrom([]int{1, 1, 3}).Draw(t, "signal"),
			sigAll:    rapid.Bool().Draw(t, "sigAll"),
			wqe:       rapid.Bool().Draw(t, "wqe"),
			wrID:      rapid.SampledFrom([]string{"constant", "counter", "slot"}).Draw(t, "wrID"),
			builder:   rapid.Bool().Draw(t, "builder"),
			overfill:  rapid.Bool().Draw(t, "overfill"),
			latency:   rapid.SampledFrom([]uint64{3, 50, 2000}).Draw(t, "latency"),
			lazy:      rapid.SampledFrom([]uint64{1, 30, 3000}).Draw(t, "lazy"),
			gate:      rapid.SampledFrom([]uint64{0, 20_000}).Draw(t, "gate"),
			noEmpty:   rapid.Bool().Draw(t, "noEmpty"),
			fails:     rapid.SampledFrom([]int{0, 0, 100}).Draw(t, "fails"),
			resets:    rapid.Bool().Draw(t, "resets"),
			receives:  rapid.Bool().Draw(t, "receives"),
			shared:    rapid.Bool().Draw(t, "shared"),
			destroys:  rapid.SampledFrom([]int{0, 0, 50}).Draw(t, "destroys"),
			losses:    rapid.SampledFrom([]int{0, 0, 2}).Draw(t, "losses"),
			pauses:    rapid.SampledFrom([]int{0, 0, 1, 3}).Draw(t, "pauses"),
			knowSig:   rapid.Bool().Draw(t, "knowSig"),
			knowDepth: rapid.Bool().Draw(t, "knowDepth"),
		}
		c.end = c.gate + 20_000
		c.signal = min(c.signal, c.depth) // else the queue fills with none to reap
		c.target = rapid.IntRange(c.signal, c.depth).Draw(t, "target")
		return c
	})
}

// TestNeverMismatched: whatever is measured was paired with the completion that
// was its own, and truth about done lies inside what is said.
func TestNeverMismatched(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newSim(anySim().Draw(t, "sim"))
		e, rec := playEvents(t, s.run(), Config{})
		checkTruth(t, s, rec)
		checkBooks(t, e)
		// Where one thread posts and polls, what it knows is what we see.
		if most := int32(s.depth) - 1; s.threads == 1 && !s.poller && s.losses+s.pauses == 0 && rec.deepest > most {
			t.Fatalf("%d in flight before a post, where the queue has room for %d", rec.deepest, most)
		}
		if rec.posts != rec.retires || rec.bytes != 0 {
			t.Fatalf("posts %d, retired %d, bytes left %d", rec.posts, rec.retires, rec.bytes)
		}
	})
}

// checkTruth of all that was measured.
func checkTruth(t reporter, s *sim, rec *recorder) {
	for i := range rec.wrs {
		m := &rec.wrs[i]
		if m.status != 0 {
			continue
		}
		checkCut(t, m)
		w := s.truth[m.stack]
		if m.unmatched {
			w = s.truth[uint64(m.reapCPU)]
		}
		if w == nil {
			t.Fatalf("measured %d, which was never posted", m.stack)
		}
		if w.receive != m.receive {
			t.Fatalf("WR %d is measured as a receive: %t", w.id, m.receive)
		}
		if uint16(w.id) != m.reapCPU {
			t.Fatalf("WR %d is paired with the completion of %d", w.id, m.reapCPU)
		}
		if w.done < m.doneLow || w.done > m.doneHigh {
			t.Fatalf("WR %d done at %d, said to be in [%d, %d]", w.id, w.done, m.doneLow, m.doneHigh)
		}
	}
}

// TestMeasuresAllItCan: doubt must not be an excuse. What is seen from the
// beginning is measured without exception, and what is attached to within about
// a queue's depth if WQE indices are known.
func TestMeasuresAllItCan(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := anySim().Draw(t, "sim")
		c.losses, c.pauses, c.fails, c.resets, c.destroys = 0, 0, 0, false, 0
		attached := rapid.Bool().Draw(t, "attached")
		if attached {
			c.gate, c.wqe = 20_000, true
		} else {
			c.gate = 0
			if !c.wqe {
				c.threads, c.poller = 1, false
			}
		}
		c.end = c.gate + 20_000
		s := newSim(c)
		events := s.run()
		e, rec := playEvents(t, events, Config{})
		checkTruth(t, s, rec)
		checkBooks(t, e)
		b := e.ledger.books[side(false)]
		most := int64(0)
		if attached {
			most = int64(c.qps * (c.depth + c.list))
		}
		if b.Excluded > most || b.Lost > 0 {
			t.Fatalf("excluded %d, lost %d of %+v", b.Excluded, b.Lost, b)
		}
		// A receive whose post is not known, or not which of several, is measured only if it cannot have been
		// there before the window.
		receives := !attached && !c.shared && c.threads == 1 && !c.poller
		seen, measured := 0, 0
		for i := range rec.wrs {
			if !rec.wrs[i].receive || receives {
				measured++
			}
		}
		for _, ev := range events {
			if ev.Kind == event.KindCompletion && (ev.Verb.Opcode != simRecv || receives) {
				seen++
			}
		}
		// One whose post call is under way at the end is not measured either.
		if missing := int64(seen - measured); missing > most+int64(c.threads*c.list) {
			t.Fatalf("%d completions, %d measured", seen, measured)
		}
	})
}

// TestShuffled: inside the watermark the order of arrival does not matter.
func TestShuffled(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newSim(anySim().Draw(t, "sim"))
		s.end = s.gate + 5_000
		events := s.run()
		e1, want := playEvents(t, events, Config{})
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "shuffle"), 2))
		rng.Shuffle(len(events), func(i, j int) { events[i], events[j] = events[j], events[i] })
		e2, got := playEvents(t, events, Config{})
		if e1.ledger.books != e2.ledger.books {
			t.Fatalf("books %+v, shuffled %+v", e1.ledger.books, e2.ledger.books)
		}
		if len(want.wrs) != len(got.wrs) {
			t.Fatalf("%d WRs, shuffled %d", len(want.wrs), len(got.wrs))
		}
		for i := range want.wrs {
			a, b := &want.wrs[i], &got.wrs[i]
			if a.qp.num != b.qp.num || !slices.Equal(a.segments, b.segments) {
				t.Fatalf("WR %d: %s, shuffled %s", i, describe(a.segments, 0, 1), describe(b.segments, 0, 1))
			}
			x, y := *a, *b
			x.qp, y.qp, x.segments, y.segments = nil, nil, nil, nil
			if !reflect.DeepEqual(x, y) {
				t.Fatalf("WR %d: %+v, shuffled %+v", i, x, y)
			}
		}
	})
}
