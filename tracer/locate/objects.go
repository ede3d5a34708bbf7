package locate

import (
	"context"
	"encoding/binary"
	"slices"
)

// Offsets in struct ibv_qp, ibv_cq and ibv_comp_channel, all before the first
// mutex and so the same on all architectures (rdma-core 17 to 64).
const (
	qpContext = 0
	qpPD      = 16
	qpSendCQ  = 24
	qpRecvCQ  = 32
	qpSRQ     = 40
	qpNum     = 52
	qpState   = 56
	qpType    = 60

	cqChannel = 8
	cqEntries = 28
	cqMutex   = 32

	channelFD     = 8
	channelRefcnt = 12
)

// qpTypes are the values of enum ibv_qp_type.
var qpTypes = []uint32{2, 3, 4, 8, 9, 10, 0xff}

const qptXRCRecv = 10

// objects are the things in a process's memory that belong to its contexts.
type objects struct {
	contexts []found
	of       map[uint64]uint64 // address: the ibv_context its first word points to
	qps      []QP
	cqs      []CQ
	// destroyed counts queue pairs that were left out: their memory is free.
	destroyed int
}

// members finds all objects of the contexts: every QP, CQ, PD, MR and so on
// begins with a pointer to its ibv_context.
func (p *Process) members(ctx context.Context, s *sweep, contexts []found) (objects, error) {
	o := objects{contexts: contexts, of: map[uint64]uint64{}}
	if len(contexts) == 0 {
		return o, nil
	}
	wanted := map[uint64]bool{}
	lo, hi := ^uint64(0), uint64(0)
	for _, c := range contexts {
		wanted[c.Addr] = true
		lo, hi = min(lo, c.Addr), max(hi, c.Addr)
	}
	err := s.each(ctx, func(addr uint64, words []uint64) bool {
		for i, w := range words {
			if w >= lo && w <= hi && wanted[w] {
				o.of[addr+uint64(i)*8] = w
			}
		}
		return len(o.of) > maxObjects
	})
	if err != nil {
		return o, err
	}
	for _, addr := range sortedKeys(o.of) {
		if q, err := p.qp(addr, o.of); err == nil {
			o.qps = append(o.qps, q)
		}
		if c, err := p.cq(addr, o.of); err == nil {
			o.cqs = append(o.cqs, c)
		}
	}
	return o, nil
}

// maxObjects bounds how many words that point to a context are considered;
// memory regions are the many (one for each buffer a job registers).
const maxObjects = 1 << 20

// owner is the context that the object at addr belongs to; of, where given,
// holds what a sweep saw, else memory is asked.
func (p *Process) owner(addr uint64, of map[uint64]uint64) uint64 {
	if of != nil {
		return of[addr]
	}
	w, err := p.mem.word(addr)
	if err != nil {
		return 0
	}
	return w
}

// qp reads what may be an ibv_qp. Its PD, CQs and SRQ must be objects of the
// same context, its CQs must pass as CQs, its numbers be in their ranges.
func (p *Process) qp(addr uint64, of map[uint64]uint64) (QP, error) {
	b, err := p.mem.some(addr, int(p.layout().qpExEnd), int(p.layout().qpSize))
	if err != nil {
		return QP{}, err
	}
	q := QP{Addr: addr, Context: u64(b, qpContext), SendCQ: u64(b, qpSendCQ), RecvCQ: u64(b, qpRecvCQ),
		SRQ: u64(b, qpSRQ), Num: u32(b, qpNum), Type: u32(b, qpType), State: u32(b, qpState), SigAll: 2}
	pd := u64(b, qpPD)
	if q.Num >= 1<<24 || q.State > 7 || !slices.Contains(qpTypes, q.Type) {
		return QP{}, errNot
	}
	for _, ref := range []struct {
		addr     uint64
		optional bool
	}{
		{pd, q.Type == qptXRCRecv},
		{q.SendCQ, true}, {q.RecvCQ, true}, {q.SRQ, true},
	} {
		if ref.addr == 0 && ref.optional {
			continue
		}
		if p.owner(ref.addr, of) != q.Context {
			return QP{}, errNot
		}
	}
	if q.SendCQ == 0 && q.RecvCQ == 0 && q.Type != qptXRCRecv {
		return QP{}, errNot
	}
	for _, cq := range []uint64{q.SendCQ, q.RecvCQ} {
		if cq == 0 {
			continue
		}
		if _, err := p.cq(cq, of); err != nil {
			return QP{}, err
		}
	}
	q.Ex = p.functionsIn(b, p.layout().qpEx, []Verb{WRStart, WRComplete, WRAbort})
	return q, nil
}

// cq reads what may be an ibv_cq: a number of entries, an unlocked or properly
// held default mutex, and no channel or a channel of the same context.
func (p *Process) cq(addr uint64, of map[uint64]uint64) (CQ, error) {
	b, err := p.mem.some(addr, int(p.layout().cqExEnd), int(p.layout().cqSize))
	if err != nil {
		return CQ{}, err
	}
	c := CQ{Addr: addr, Context: u64(b, qpContext), Channel: u64(b, cqChannel), ChannelFD: -1, CQE: u32(b, cqEntries)}
	// pthread_mutex_t: lock 0 to 2, count 0, owner a thread, users few, kind 0.
	lock, count, owner, kind := u32(b, cqMutex), u32(b, cqMutex+4), u32(b, cqMutex+8), u32(b, cqMutex+16)
	if c.CQE == 0 || c.CQE >= 1<<24 || lock > 2 || count > 1 || owner > 1<<22 || kind > 3 {
		return CQ{}, errNot
	}
	if c.Channel != 0 {
		var ch [16]byte
		if p.owner(c.Channel, of) != c.Context || p.mem.at(ch[:], c.Channel) != nil {
			return CQ{}, errNot
		}
		c.ChannelFD = int32(binary.LittleEndian.Uint32(ch[channelFD:]))
		if c.ChannelFD < 0 || u32(ch[:], channelRefcnt) == 0 {
			return CQ{}, errNot
		}
	}
	c.Ex = p.functionsIn(b, p.layout().cqEx, []Verb{StartPoll, NextPoll, EndPoll})
	return c, nil
}

// functionsIn says whether the members of key, as far as b has them, point to
// beginnings of functions. Plain QPs and CQs have zeros there, or end before.
func (p *Process) functionsIn(b []byte, members map[Verb]int64, key []Verb) bool {
	for _, v := range key {
		off := uint64(members[v])
		if off+8 > uint64(len(b)) || !p.begins(u64(b, off)) {
			return false
		}
	}
	return true
}

// begins says whether a function of some library begins at an address.
func (p *Process) begins(addr uint64) bool {
	at, ok := p.code(addr)
	if !ok {
		return false
	}
	l := p.at(at)
	if l == nil {
		return false
	}
	frames, err := l.file.Frames()
	if err == nil && len(frames) == 0 {
		return true // the file does not say where functions begin; the pointer does
	}
	f, ok := l.file.FrameAt(at.vaddr)
	return ok && f.Begin == at.vaddr
}

// memberFunctions adds the functions that the members of an ibv_qp_ex or
// ibv_cq_ex at addr point to; members that are empty or lie behind the end of
// an older release's structure are passed over.
func (p *Process) memberFunctions(addr uint64, members map[Verb]int64, end uint64, source string, c *collector) error {
	b, err := p.mem.some(addr, int(end), 8)
	if err != nil {
		return err
	}
	for v, off := range members {
		if uint64(off)+8 <= uint64(len(b)) && p.begins(u64(b, uint64(off))) {
			p.pointer(v, u64(b, uint64(off)), source, c)
		}
	}
	return nil
}
