package attribution

// finishedWR is when a signalled WR of a queue pair was done and how many
// bytes the queue pair had finished by then.
type finishedWR struct {
	done, bytes uint64
}

const (
	historyStart = 16
	historyMost  = 256 // signalled WRs that can be counted in flight
	readsMost    = 16  // max_qp_rd_atom of ConnectX: READs and atomics in flight at most
)

// sendHistory is what is remembered of a send queue's recent completions. WRs
// enter in the order of the queue; done is kept from running backwards, which
// doubt about single completions could make it.
type sendHistory struct {
	ring      []finishedWR // a power of two long
	count     uint64       // ever entered
	lastDone  uint64
	sent      uint64 // when all had been sent: see sentBy
	bytes     uint64 // finished so far
	reads     [readsMost]uint64
	readCount uint64
}

// waiting describes what a WR found in front of it when it was posted.
type waiting struct {
	prevDone uint64 // done of the previous signalled WR, 0: none known
	ahead    uint64 // bytes posted before it and not done at its post_end, or later
	earlier  uint64 // bytes of unsignalled WRs of earlier calls, done with it
	// readDone[i] is done of the READ or atomic 1<<i places before, 0: none known.
	readDone  [readSteps]uint64
	readAhead uint64 // READs and atomics not done at its post_end, as far as remembered
	sent      uint64 // when the previous signalled WR had been sent, 0: not known
	known     bool   // ahead is: the history reaches back far enough
}

// readSteps are the limits of READs in flight that are told apart: 1, 2, 4, 8, 16.
const readSteps = 5

// enter a completed WR and say what had been in front of it. ahead is what was
// not done at since: bytesAhead of it.
func (h *sendHistory) enter(m *measured, since uint64) waiting {
	w := waiting{prevDone: h.lastDone, earlier: earlierBytes(m), sent: h.sent}
	w.ahead, w.known = h.bytesAhead(since)
	w.ahead += w.earlier
	done := max(m.done, h.lastDone)
	if isRead(m.opcode) {
		h.enterRead(&w, m.postEnd, done)
	}
	h.bytes += w.earlier + m.bytes
	h.lastDone = done
	h.push(finishedWR{done, h.bytes})
	return w
}

// sentBy takes when what entered last had been sent, as the split shows it: a
// base before it was done at the latest.
func (h *sendHistory) sentBy(t, base uint64) {
	h.sent = min(t, h.lastDone-min(base, h.lastDone))
}

func (h *sendHistory) enterRead(w *waiting, postEnd, done uint64) {
	kept := min(h.readCount, readsMost)
	// done does not fall from one to the next.
	for w.readAhead < kept && h.readBefore(w.readAhead+1) > postEnd {
		w.readAhead++
	}
	for i := range w.readDone {
		if back := uint64(1) << i; back <= kept {
			w.readDone[i] = h.readBefore(back)
		}
	}
	h.reads[h.readCount%readsMost] = done
	h.readCount++
}

// readBefore is done of the READ or atomic so many places back.
func (h *sendHistory) readBefore(back uint64) uint64 { return h.reads[(h.readCount-back)%readsMost] }

func (h *sendHistory) push(f finishedWR) {
	if h.ring == nil {
		h.ring = make([]finishedWR, historyStart)
	}
	h.ring[h.count&uint64(len(h.ring)-1)] = f
	h.count++
}

// at is the entry so many before the last one.
func (h *sendHistory) at(back uint64) *finishedWR {
	return &h.ring[(h.count-1-back)&uint64(len(h.ring)-1)]
}

// bytesAhead counts what was posted before t and done only after it. known is
// false where the ring does not reach back to t; then it grows.
func (h *sendHistory) bytesAhead(t uint64) (ahead uint64, known bool) {
	size := uint64(len(h.ring))
	kept := min(h.count, size)
	// The number of the last ones that were done after t: by doubling, then by
	// bisection.
	low, high := uint64(0), min(1, kept)
	for high < kept && h.at(high).done > t {
		low, high = high+1, min(2*high+1, kept)
	}
	for low < high {
		middle := (low + high) / 2
		if h.at(middle).done > t {
			low = middle + 1
		} else {
			high = middle
		}
	}
	if low < kept {
		return h.bytes - h.at(low).bytes, true
	}
	if kept == size && kept > 0 {
		h.grow()
	}
	return h.bytes, false
}

func (h *sendHistory) grow() {
	if len(h.ring) >= historyMost {
		return
	}
	ring := make([]finishedWR, 2*len(h.ring))
	for i := uint64(1); i <= uint64(len(h.ring)); i++ {
		ring[(h.count-i)&uint64(len(ring)-1)] = *h.at(i - 1)
	}
	h.ring = ring
}

// earlierBytes of the unsignalled WRs that m's completion retired and that do
// not belong to its chain.
func earlierBytes(m *measured) uint64 {
	inChain := max(m.chained, 1) - 1
	switch {
	case m.retired <= inChain:
		return 0
	case inChain == 0:
		return m.retBytes
	}
	// How the chain's bytes spread over its WRs is not kept: evenly.
	chain := m.bytes / uint64(m.chained) * uint64(inChain)
	return m.retBytes - min(chain, m.retBytes)
}

// isRead: READs and atomics share the limit of max_rd_atomic.
func isRead(opcode uint8) bool {
	return opcode == opRead || opcode == opCmpSwap || opcode == opFetchAdd
}
