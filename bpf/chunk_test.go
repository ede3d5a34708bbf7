//go:build amd64

package bpf

import (
	"fmt"
	"slices"
	"testing"
	"unsafe"
)

// As in event.h, post.bpf.h and thread.bpf.h.
const (
	wrReceive, wrBuilder, wrTruncated, wrUnreadable = 1, 2, 4, 8
	listMost, builtMost, chunk                      = 128, 64, 8
)

// posted takes the records of a call apart, and checks that they are as few as can be.
func (p *poster) posted(call uint32, qp uint64, flags uint32) (all []RdmaWrEntry) {
	p.Helper()
	records := p.records(RdmaRecordKindRECORD_WR)
	for i, raw := range records {
		head := (*RdmaWrRecord)(unsafe.Pointer(&raw[0]))
		size := int(unsafe.Sizeof(*head)) + int(head.Count)*int(unsafe.Sizeof(RdmaWrEntry{}))
		if head.Qp != qp || head.Call != call || head.H.Flags != flags || int(head.First) != len(all) || head.Begin == 0 || len(raw) != size {
			p.Fatalf("record %d of %d bytes of call %d, %d behind others: %+v", i, len(raw), call, len(all), *head)
		}
		if i < len(records)-1 && head.Count != chunk {
			p.Errorf("record %d of %d has %d work requests", i, len(records), head.Count)
		}
		entries := unsafe.Slice((*RdmaWrEntry)(unsafe.Pointer(&raw[unsafe.Sizeof(*head)])), head.Count)
		all = append(all, entries...)
	}
	return all
}

func (p *poster) compare(what string, got, want []RdmaWrEntry) {
	p.Helper()
	if slices.Equal(got, want) {
		return
	}
	for i := range min(len(got), len(want)) {
		if got[i] != want[i] {
			p.Errorf("%s: work request %d: %+v, want %+v", what, i, got[i], want[i])
			return
		}
	}
	p.Errorf("%s: %d work requests, want %d", what, len(got), len(want))
}

// TestPostedLists: each request of a list is there, in order, and so is one that cannot be read.
func TestPostedLists(t *testing.T) {
	p := newPoster(t, RdmaProgPostSendEnter, RdmaProgPostRecvEnter)
	call := uint32(0)
	both := func(program string, cookie uint64, address func() uint64, entry RdmaWrEntry) {
		defer p.attachTo(program, posts, cookie)()
		for _, cut := range []bool{false, true} {
			for _, n := range []int{1, 2, 7, 8, 9, 63, 64, 127, 128, 130} {
				p.list(n, cut)
				var want []RdmaWrEntry
				for i := range min(n, listMost) {
					entry.WrId, entry.Bytes = uint64(100+i), uint32(1000+i)
					want = append(want, entry)
				}
				switch {
				case n > listMost || n == listMost && cut:
					want[listMost-1].Flags = wrTruncated
				case cut:
					want = append(want, RdmaWrEntry{Flags: wrUnreadable})
				}
				call++
				p.post(address())
				what := fmt.Sprintf("%s, %d, cut %v", program, n, cut)
				p.compare(what, p.posted(call, address64(p.qp), uint32(cookie)), want)
			}
		}
		call++
		p.post(nowhere)
		p.compare(program, p.posted(call, address64(p.qp), uint32(cookie)), []RdmaWrEntry{{Flags: wrUnreadable}})
	}
	sends := func() uint64 { return address64(&p.sends[0]) }
	both(RdmaProgPostSendEnter, 0, sends, RdmaWrEntry{SendFlags: 3, NumSge: 1, Opcode: 2})
	p.qp.Type = typeUD
	both(RdmaProgPostSendEnter, 0, sends, RdmaWrEntry{SendFlags: 3, NumSge: 1, Opcode: 2, RemoteQpn: 99})
	both(RdmaProgPostRecvEnter, wrReceive, func() uint64 { return address64(&p.recvs[0]) }, RdmaWrEntry{NumSge: 1})
}

// TestPostedBrackets: each request of a bracket of builders is there, in order.
func TestPostedBrackets(t *testing.T) {
	const send, setSGE = 2, 1
	p := newPoster(t, RdmaProgBuildStart, RdmaProgBuildWr, RdmaProgBuildData, RdmaProgBuildCompleteEnter)
	hit := func(program string) {
		defer p.attachTo(program, posts, 0)()
		p.post(0)
	}
	for call, n := range []int{0, 1, 2, 7, 8, 9, 63, 64, 70} {
		hit(RdmaProgBuildStart)
		detach, detachData := p.attachTo(RdmaProgBuildWr, posts, send), p.attachTo(RdmaProgBuildData, takes, setSGE)
		var want []RdmaWrEntry
		for i := range n {
			p.qp.ID = uint64(100 + i)
			p.post(0)
			p.taken = takes(0, 0, uintptr(1000+i), uintptr(unsafe.Pointer(p.qp)))
			if i < builtMost {
				want = append(want, RdmaWrEntry{WrId: p.qp.ID, Bytes: uint32(1000 + i), NumSge: 1, Opcode: send, Flags: wrBuilder})
			}
		}
		detach()
		detachData()
		if n > builtMost {
			want[builtMost-1].Flags |= wrTruncated
		}
		hit(RdmaProgBuildCompleteEnter)
		p.compare(fmt.Sprint(n), p.posted(uint32(call+1), address64(p.qp), wrBuilder), want)
	}
}

// dropped is how many work requests were, so far.
func (p *poster) dropped() (n int) {
	p.Helper()
	var stats []RdmaStats
	if err := p.coll.Maps[RdmaMapStats].Lookup(uint32(0), &stats); err != nil {
		p.Fatal(err)
	}
	for cpu := range stats {
		n += int(stats[cpu].Dropped[RdmaRecordKindRECORD_WR].Count)
	}
	return n
}

// TestDroppedChunks: what finds a ring full is counted by work requests.
func TestDroppedChunks(t *testing.T) {
	p := newPoster(t, RdmaProgPostSendEnter)
	defer p.attachTo(RdmaProgPostSendEnter, posts, 0)()
	const each = 11
	p.list(each, false)
	posted, written := 0, 0
	for more := 20; more > 0; posted += each {
		p.post(address64(&p.sends[0]))
		if p.dropped() > 0 {
			more--
		}
	}
	for _, raw := range p.records(RdmaRecordKindRECORD_WR) {
		written += int((*RdmaWrRecord)(unsafe.Pointer(&raw[0])).Count)
	}
	if written+p.dropped() != posted || written == 0 {
		t.Errorf("%d work requests written, %d dropped, of %d", written, p.dropped(), posted)
	}
}

// TestDropsKeepTheirTimes: of drops the greatest time stays, which one that is counted
// later may be before, and how long before its drop the time of one was.
func TestDropsKeepTheirTimes(t *testing.T) {
	const later = 1 << 62
	p := newPoster(t, RdmaProgPostSendEnter)
	defer p.attachTo(RdmaProgPostSendEnter, posts, 0)()
	p.list(1, false)
	fill := func() {
		for before := p.dropped(); p.dropped() == before; {
			p.post(address64(&p.sends[0]))
		}
	}
	stats := func() (all []RdmaStats) {
		if err := p.coll.Maps[RdmaMapStats].Lookup(uint32(0), &all); err != nil {
			t.Fatal(err)
		}
		return all
	}
	fill()
	all := stats()
	for cpu := range all {
		if l := all[cpu].Dropped[RdmaRecordKindRECORD_WR]; l.Begun != l.Count || (l.Lag == 0) != (l.Count == 0) || (l.Last == 0) != (l.Count == 0) {
			t.Errorf("%+v", l)
		}
		all[cpu].Dropped[RdmaRecordKindRECORD_WR].Last = later
	}
	if err := p.coll.Maps[RdmaMapStats].Put(uint32(0), all); err != nil {
		t.Fatal(err)
	}
	fill()
	for cpu, s := range stats() {
		if l := s.Dropped[RdmaRecordKindRECORD_WR]; l.Last != later {
			t.Errorf("CPU %d: %+v", cpu, l)
		}
	}
}
