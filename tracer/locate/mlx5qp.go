package locate

import "fmt"

// struct mlx5_wq (rdma-core providers/mlx5/mlx5.h, 28 to 64): byte offsets.
const (
	wqWRID    = 0  // u64 *
	wqHead    = 8  // unsigned *wqe_head
	wqCount   = 28 // wqe_cnt, basic blocks of 64 bytes
	wqMaxPost = 32
	wqPosted  = 36 // head: WRs
	wqDone    = 40 // tail
	wqCurPost = 44 // basic blocks
	wqBytes   = 80
)

// In struct mlx5_qp, around the sq's mlx5_wq: sq_signal_bits 15 and sq_start 8
// bytes before it, the doorbell record's address behind it. These distances are
// those of all releases since 28; where they begin is not, and is what is
// looked for.
const (
	sqSigBits = -15
	sqStart   = -8
	sqDB      = wqBytes
)

const wqeBlock = 64 // MLX5_SEND_WQE_BB

// qpLayout derives where libmlx5 keeps its QPs' fields, as cqLayout does.
func (p *Process) qpLayout(qps []QP) MLX5QPLayout {
	votes, proofs := map[uint32]int{}, map[uint32]string{}
	looked := 0
	why := "no live QP"
	for _, q := range qps {
		shapes := p.qpShapes(q)
		if len(shapes) == 0 {
			why = "no place in a live QP fits"
			continue
		}
		looked++
		for _, sq := range shapes {
			votes[sq]++
			if evidence, ok := p.proveQP(q, sq); ok {
				proofs[sq] = evidence
			} else {
				why = evidence
			}
		}
	}
	var found []uint32
	for sq := range proofs {
		if votes[sq] == looked {
			found = append(found, sq)
		} else {
			why = "live QPs contradict each other"
		}
	}
	if len(found) > 1 {
		why = "several places in a live QP fit"
	}
	if len(found) != 1 {
		return MLX5QPLayout{Evidence: why}
	}
	sq := found[0]
	return MLX5QPLayout{
		Verified: true, Evidence: proofs[sq], SigProven: p.proveSignals(qps, sq),
		SQSigBits: sq - 15, SQStart: sq - 8, SQWRID: sq + wqWRID, SQWQECnt: sq + wqCount, SQMaxPost: sq + wqMaxPost,
		SQHead: sq + wqPosted, SQTail: sq + wqDone, SQCurPost: sq + wqCurPost, DB: sq + sqDB,
	}
}

// qpShapes are the offsets, from the ibv_qp, at which a send queue's mlx5_wq
// fits: its arrays and the doorbell record in ordinary memory, its numbers in
// their relations, sq_signal_bits one of its two values.
func (p *Process) qpShapes(q QP) []uint32 {
	b, err := p.mem.some(q.Addr, privateBytes, int(p.layout().qpExEnd)+wqBytes)
	if err != nil {
		return nil
	}
	var out []uint32
	for o := p.layout().qpSize + 16; o+sqDB+8 <= uint64(len(b)); o += 8 {
		count, max := u32(b, o+wqCount), u32(b, o+wqMaxPost)
		posted, done := u32(b, o+wqPosted), u32(b, o+wqDone)
		fits := powerOfTwo(count) && count <= 1<<16 && max <= count && posted-done <= max &&
			(b[int(o)+sqSigBits] == 0 || b[int(o)+sqSigBits] == ctrlCQUpdate) &&
			p.mem.data(u64(b, o+wqWRID)) && p.mem.data(u64(b, o+wqHead)) &&
			p.mem.data(u64(b, o-8)) && p.mem.data(u64(b, o-8)+uint64(count)*wqeBlock-1) &&
			u64(b, o+sqDB)%8 == 0 && p.mem.data(u64(b, o+sqDB))
		if fits {
			out = append(out, uint32(o))
		}
	}
	return out
}

// queue is a look at a send queue.
type queue struct {
	qpn, count, cur uint32
	start           uint64
	sigBits         byte
}

// proveQP looks for contents that only the right place explains: the doorbell
// record's send half follows cur_post, and blocks before cur_post are requests of this QP with their very index.
func (p *Process) proveQP(q QP, sq uint32) (evidence string, ok bool) {
	for range tries {
		if evidence, ok = p.proveQPOnce(q, sq); ok {
			return evidence, true
		}
	}
	return evidence, false
}

func (p *Process) proveQPOnce(q QP, sq uint32) (string, bool) {
	before, b, err := p.queue(q, sq)
	if err != nil {
		return err.Error(), false
	}
	if before.cur == 0 {
		return "nothing was posted yet", false
	}
	var db [8]byte
	if err := p.mem.at(db[:], u64(b, uint64(sq)+sqDB)); err != nil {
		return err.Error(), false
	}
	s, _, err := p.queue(q, sq)
	if err != nil {
		return err.Error(), false
	}
	// Builders move cur_post before wr_complete rings the doorbell, and the
	// program runs on while we look.
	rung := be32(db[:], 4)
	if rung > 0xffff || (s.cur-rung)&0xffff > s.cur-before.cur+unrung {
		return "the doorbell record differs from cur_post", false
	}
	n, _ := p.requests(s)
	if n == 0 {
		return "the blocks before cur_post are no requests of the QP", false
	}
	return fmt.Sprintf("doorbell record follows cur_post; %d requests before it carry the QP's number and their index", n), true
}

// unrung is how many blocks may be built but not yet rung.
const unrung = 64

func (p *Process) queue(q QP, sq uint32) (queue, []byte, error) {
	b, err := p.mem.some(q.Addr, privateBytes, int(sq)+sqDB+8)
	if err != nil {
		return queue{}, nil, err
	}
	o := uint64(sq)
	return queue{q.Num, u32(b, o+wqCount), u32(b, o+wqCurPost), u64(b, o-8), b[int(o)+sqSigBits]}, b, nil
}

// requests counts the requests among the last blocks before cur_post, and
// those of them that ask for no completion. A request's first 16 bytes are its
// control segment: be32 of 8 bits, 16 bits of its index and 8 bits of opcode;
// be32 of the QP's number and 8 bits of its length; flags in byte 11.
func (p *Process) requests(s queue) (n, silent int) {
	for i := uint32(1); i <= min(s.cur, max(s.count/2, 1), 64); i++ {
		index := s.cur - i
		var c [16]byte
		if p.mem.at(c[:], s.start+uint64(index&(s.count-1))*wqeBlock) != nil {
			return n, silent
		}
		if be32(c[:], 4)>>8 == s.qpn && be32(c[:], 0)>>8&0xffff == index&0xffff {
			n++
			if c[11]&ctrlCQUpdate == 0 {
				silent++
			}
		}
	}
	return n, silent
}

// proveSignals says whether sq_signal_bits is where it is thought: on some QP
// it is 8 and every request asks for a completion, or it is 0 and some do not;
// and on none it is 8 while some do not.
func (p *Process) proveSignals(qps []QP, sq uint32) bool {
	proven := false
	for _, q := range qps {
		s, _, err := p.queue(q, sq)
		if err != nil {
			continue
		}
		n, silent := p.requests(s)
		switch {
		case s.sigBits != 0 && silent > 0:
			return false
		case n > 0 && (s.sigBits == ctrlCQUpdate || silent > 0):
			proven = true
		}
	}
	return proven
}
