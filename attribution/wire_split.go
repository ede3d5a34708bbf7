package attribution

import "math/bits"

// wireStall is an interval in which a queue pair's wire took longer than its
// floor, with the cause it was given.
type wireStall struct {
	begin, end uint64
	cause      Cause
}

// wireSplitter cuts the wire segments of WRs by what their floors have taught.
type wireSplitter struct {
	segments []segment // scratch: the result
	pieces   []piece   // scratch: the cuts of the wire as a whole
	own      wireStall // the excess of the WR split last, empty: none
}

// split cuts the wire of m's segments into its causes. They still cover
// the same time without gap or overlap. stall is the stall of m's queue pair
// that its predecessors met, if it still matters; it is brought up to date.
//
// Service starts at max(post_end, done of the previous WR - base). Before that
// m waited: behind the job's own depth as long as the bytes in front of it,
// not yet on their way, take at the path's rate; then behind what other queue
// pairs of the port sent meanwhile, as far as their bytes explain it; the rest
// is what delayed its predecessors, and is theirs: the jitter of a long wire
// with completions in order is no queueing. What service takes beyond the floor
// is the port's share in the same way, and excess. Where inside the service
// these lie is not known; excess is shown last.
func (s *wireSplitter) split(d *delayed, port *portTraffic, history *sendHistory, stall *wireStall) {
	m, f := &d.m, d.floor
	s.own = wireStall{}
	waiting := history.enter(m, m.postEnd+f.fit.base)
	begin, end, found := wireBounds(m.segments)
	if !found || !waiting.known || !f.fit.known {
		return
	}
	f.split++
	if begin >= stall.end {
		*stall = wireStall{cause: Excess}
	}
	start, queued := f.fit.serviceStart(m, &waiting, begin, end)
	shared := queued + d.share(port, heldUp{begin: begin, end: start, bytes: waiting.ahead}, start-queued)
	s.pieces = appendPiece(s.pieces[:0], SendQueue, begin, queued)
	s.pieces = appendPiece(s.pieces, PortShare, queued, shared)
	s.pieces = appendPiece(s.pieces, stall.cause, shared, start)
	share := shared - queued + s.service(d, port, start, end)
	history.sentBy(max(begin, waiting.sent)+share+withSlack(f.fit.perByte.of(waiting.earlier+m.bytes)), f.fit.base)
	if s.own.end-s.own.begin > stall.end-stall.begin {
		*stall = s.own
	}
	s.segments = applyPieces(s.segments[:0], m.segments, s.pieces)
	s.segments, m.segments = m.segments, s.segments
}

// wireBounds are the first begin and the last end of the unsplit wire.
func wireBounds(segments []segment) (begin, end uint64, found bool) {
	for i := range segments {
		if segments[i].cause != WireUnsplit {
			continue
		}
		if !found {
			begin, found = segments[i].begin, true
		}
		end = segments[i].end
	}
	return begin, end, found
}

// serviceStart is when the NIC turned to m, and until when before that m
// waited for its own queue pair: until all in front of it had been sent, and no
// longer than those bytes take that were done more than a base after its post
// (w.ahead). The others were on their way already, and of these those that
// jitter alone delayed.
func (f *fit) serviceStart(m *measured, w *waiting, begin, end uint64) (start, queued uint64) {
	free := uint64(0)
	if w.prevDone > f.base {
		free = w.prevDone - f.base + f.perByte.of(w.earlier)
	}
	ahead := max(begin, min(w.sent+withSlack(f.perByte.of(w.earlier)), begin+withSlack(f.perByte.of(w.ahead))))
	if limit := uint64(m.qp.maxRDAtomic); isRead(m.opcode) && limit > 0 && limit <= readsMost {
		slot := w.readDone[readStep(limit)]
		free, ahead = max(free, slot), max(ahead, slot)
	}
	start = min(max(free, begin), end)
	return start, min(ahead, start)
}

// service cuts [start, end), and gives the port's share of it.
func (s *wireSplitter) service(d *delayed, port *portTraffic, start, end uint64) (share uint64) {
	fit, link := &d.floor.fit, d.queue.port.link
	left := end - start
	base := min(fit.base, left)
	left -= base
	transmit := min(fit.perByte.of(d.m.bytes), left)
	left -= transmit
	limit := uint64(0)
	if fit.fitted && link > 0 && fit.perByte > link+link/4 {
		limit = transmit - min(transmit, link.of(d.m.bytes))
		transmit -= limit
	}
	share = d.share(port, heldUp{begin: start, end: end - base, own: transmit + limit, bytes: d.m.bytes}, left)
	left -= share
	at := start
	for _, part := range [...]struct {
		cause Cause
		ns    uint64
	}{{PortShare, share}, {Transmit, transmit}, {PathLimit, limit}, {Base, base}} {
		s.pieces = appendPiece(s.pieces, part.cause, at, at+part.ns)
		at += part.ns
	}
	if left > 0 {
		s.own = wireStall{at, end, stallCause(left, fit.base+transmit+limit, d.m.qp)}
		s.pieces = appendPiece(s.pieces, s.own.cause, at, end)
	}
	return share
}

// withSlack: an eighth more, as the rate is fitted to the fastest tenth.
func withSlack(ns uint64) uint64 { return ns + ns/8 }

// share of the port in what held d up, at most so many ns.
func (d *delayed) share(port *portTraffic, s heldUp, most uint64) uint64 {
	fit := &d.floor.fit
	if most == 0 || fit.perByte == 0 {
		return 0
	}
	s.queue, s.posted = d.queue.index, d.m.postEnd
	return min(port.share(s, fit.perByte, fit.base), most)
}

// piece of the wire: what a segment needs that has no culprit.
type piece struct {
	begin, end uint64
	cause      Cause
}

func appendPiece(pieces []piece, cause Cause, begin, end uint64) []piece {
	if begin >= end {
		return pieces
	}
	return append(pieces, piece{begin, end, cause})
}

// applyPieces replaces the unsplit parts of segments by the pieces there.
func applyPieces(to, segments []segment, pieces []piece) []segment {
	for i := range segments {
		whole := &segments[i]
		if whole.cause != WireUnsplit {
			to = append(to, *whole)
			continue
		}
		for _, p := range pieces {
			begin, end := max(p.begin, whole.begin), min(p.end, whole.end)
			if begin < end {
				to = append(to, segment{begin: begin, end: end, cause: p.cause, cpu: -1})
			}
		}
	}
	return to
}

// readStep is the index of the smallest kept step not below limit: between two
// steps a WR shows a little more excess, never queueing that was not there.
func readStep(limit uint64) int { return bits.Len64(limit - 1) }
