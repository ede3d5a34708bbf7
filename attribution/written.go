package attribution

import "github.com/rdmatrace/rdmatrace/event"

// The kernel writes the CQEs of software NICs. Where it was seen to, done needs
// no inference, once it is known which entry a completion is.

// writing is one entry that the kernel wrote.
type writing struct {
	begin, end uint64 // it became visible in between
	wrID       uint64
	qpNum      uint32
	status     uint32
	opcode     uint8
	taken      bool
	// Where in its ring it is: at one of so many places, as event.Verb has them,
	// but counted on from round to round.
	at      int64
	entries uint16
}

// writings are the entries of a completion queue that were not reaped yet.
// Entries are reaped as they were written, so the next completion is the first
// of them as soon as the queue was known to hold no other, or that of which the
// completion knows the place.
type writings struct {
	entries ring[writing]
	synced  bool
	// since: a poll that begins later reaps the first entry; 0: not known.
	since uint64
}

const (
	// writingsMost bounds the entries of a queue that is not read: max_cqe of rxe.
	writingsMost = 1 << 15
	// overtaken is how many entries may have been taken by other threads, whose
	// completions come later.
	overtaken = 256
)

// entryWritten takes a KindCQE; its Count are the entries before it.
func (e *Engine) entryWritten(r *verbRecord) {
	if r.time <= e.unwritten {
		return
	}
	w := &e.objects.cq(r.pid, r.CQ).writings
	if w.entries.len() == writingsMost {
		w.lose()
	}
	if !w.synced && r.Count == 0 {
		w.drop(r.time)
		if w.entries.len() == 0 {
			w.since = r.time
		}
	}
	if w.entries.full() {
		w.entries.grow()
	}
	w.entries.push(writing{r.time, r.End, r.WRID, r.QPNum, r.Status, r.Opcode, false, w.place(r.Entry), r.Entries})
}

// ringRound is how many places a ring has, in the units of event.Verb.Entry.
const ringRound = 1 << 16

// place counts a place on from the entry before, and drops what it is written over.
func (w *writings) place(entry uint16) int64 {
	n := w.entries.len()
	if n == 0 {
		return int64(entry)
	}
	last := w.entries.last().at
	at := last + int64(int16(entry-uint16(last)))
	for w.entries.len() > 0 && w.entries.at(w.entries.first).at+ringRound <= at {
		w.entries.pop()
	}
	return at
}

// lose forgets which entry is the next.
func (w *writings) lose() { *w = writings{} }

// drop forgets what was visible at t.
func (w *writings) drop(t uint64) {
	for w.entries.len() > 0 && w.entries.at(w.entries.first).end <= t {
		w.entries.pop()
	}
}

// emptyAt says that what was visible at t is reaped.
func (w *writings) emptyAt(t uint64) {
	w.drop(t)
	if w.entries.len() > 0 && w.entries.at(w.entries.first).begin >= t {
		w.synced = true
	}
}

// take gives the entry that a completion is.
func (w *writings) take(c *verbRecord) (it writing, ok bool) {
	if w.since != 0 && c.Begin >= w.since {
		w.synced = true
	}
	if c.flags&event.CompletionEntryValid != 0 {
		return w.takeAt(c)
	}
	for seq := w.entries.first; w.synced && seq != w.entries.next && seq < w.entries.first+overtaken; seq++ {
		p := w.entries.at(seq)
		if p.taken || p.begin > c.time || !p.is(c) {
			continue
		}
		return w.remove(p), true
	}
	w.lose()
	return it, false
}

// takeAt gives the entry at the place of a completion. All before it was reaped.
// Entries lie in the order of their places, but for those that two CPUs wrote at once.
func (w *writings) takeAt(c *verbRecord) (it writing, ok bool) {
	w.synced = false
	if w.entries.len() == 0 {
		return it, false
	}
	first := w.entries.at(w.entries.first).at
	near, found := search(&w.entries, placeOf(first+int64(c.Entry-uint16(first))), (*writing).place)
	if !found {
		near = w.entries.first
	}
	for seq := max(near, w.entries.first+overtaken) - overtaken; seq != w.entries.next && seq <= near+overtaken; seq++ {
		p := w.entries.at(seq)
		if p.taken || p.begin > c.time || !p.is(c) || c.Entry-uint16(p.at) >= p.entries {
			continue
		}
		place := p.at + int64(c.Entry-uint16(p.at))
		for s := w.entries.first; s != seq; s++ {
			before := w.entries.at(s)
			before.taken = before.taken || before.at+int64(before.entries) <= place
		}
		w.synced = true
		return w.remove(p), true
	}
	return it, false
}

func (w *writing) place() uint64 { return placeOf(w.at) }

// placeOf keeps the order of places that may lie before the first one seen.
func placeOf(at int64) uint64 { return uint64(at) + 1<<63 }

// remove takes one of the entries out.
func (w *writings) remove(p *writing) writing {
	it := *p
	p.taken = true
	for w.entries.len() > 0 && w.entries.at(w.entries.first).taken {
		w.entries.pop()
	}
	return it
}

// is compares what is defined: the opcode of an error is not.
func (w *writing) is(c *verbRecord) bool {
	return w.wrID == c.WRID && w.qpNum == c.QPNum && w.status == c.Status && (c.Status != 0 || w.opcode == c.Opcode)
}

// findWriting notes in c when the kernel wrote its entry.
func (e *Engine) findWriting(c *verbRecord, cq *completionQueue) {
	w := &cq.writings
	c.written, c.End = 0, 0
	if w.entries.len() == 0 && !w.synced {
		return
	}
	if e.provesEmpty(c) && c.LastEmpty > e.unwritten {
		w.emptyAt(c.LastEmpty)
	}
	if it, ok := w.take(c); ok {
		c.written, c.End = it.begin, it.end
	}
}

// loseWritings: records of entries or of completions until end are missing.
func (e *Engine) loseWritings(end uint64) {
	e.unwritten = max(e.unwritten, end)
	for _, cq := range e.objects.cqs {
		cq.writings.lose()
	}
}

// writtenByKernel uses when the kernel wrote the entry: soon after it began to.
func (m *measured) writtenByKernel(c *verbRecord, kind *flightKind) bool {
	if c.written == 0 || c.written > m.doneHigh || c.End < m.doneLow {
		return false
	}
	m.doneLow, m.doneHigh = max(m.doneLow, c.written), min(m.doneHigh, c.End)
	m.done, m.likelyLow, m.likelyHigh = m.doneLow, m.doneLow, m.doneLow
	m.doneSource = DoneKernel
	m.teach(kind, fromStamps)
	return true
}
