package locate

import (
	"context"
	"encoding/binary"
	"slices"
)

// MLX5 derives the private layouts again, from the objects given (and those
// of the latest Scan): for CQs and QPs made later, or used for the first time
// since.
func (p *Process) MLX5(ctx context.Context, qps, cqs []uint64) ([]MLX5Layout, error) {
	if _, err := p.Refresh(); err != nil {
		return nil, err
	}
	for _, a := range qps {
		if q, err := p.qp(a, nil); err == nil && !slices.ContainsFunc(p.seen.qps, func(o QP) bool { return o.Addr == a }) {
			p.seen.qps = append(p.seen.qps, q)
			p.adopt(q.Context)
		}
	}
	for _, a := range cqs {
		if q, err := p.cq(a, nil); err == nil && !slices.ContainsFunc(p.seen.cqs, func(o CQ) bool { return o.Addr == a }) {
			p.seen.cqs = append(p.seen.cqs, q)
			p.adopt(q.Context)
		}
	}
	return p.mlx5(ctx)
}

// adopt makes a context met later one of those seen.
func (p *Process) adopt(addr uint64) {
	if slices.ContainsFunc(p.seen.contexts, func(f found) bool { return f.Addr == addr }) {
		return
	}
	if f, err := p.context(addr); err == nil {
		p.seen.contexts = append(p.seen.contexts, f)
	}
}

// mlx5 derives the layouts of every libmlx5 that has live objects, and fills
// in what the layouts tell of the QPs seen. What was verified once stays.
func (p *Process) mlx5(ctx context.Context) ([]MLX5Layout, error) {
	var out []MLX5Layout
	for _, l := range p.libs {
		if l.Role&RoleMLX5 == 0 {
			continue
		}
		qps, cqs := p.objectsOf(l)
		if len(qps)+len(cqs) == 0 {
			continue
		}
		lay := p.layouts[l]
		if lay == nil {
			lay = &MLX5Layout{Library: &l.Library}
			p.layouts[l] = lay
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if !lay.CQ.Verified {
			lay.CQ = p.cqLayout(cqs, qps)
		}
		if !lay.QP.Verified || !lay.QP.SigProven {
			lay.QP = p.qpLayout(qps)
		}
		out = append(out, *lay)
	}
	for i := range p.seen.qps {
		p.fromLayout(&p.seen.qps[i])
	}
	if !p.mem.alive() {
		return nil, errGone
	}
	return out, nil
}

// objectsOf are the QPs and CQs of the contexts that l provides.
func (p *Process) objectsOf(l *library) (qps []QP, cqs []CQ) {
	for _, f := range p.seen.contexts {
		if f.Provider != &l.Library {
			continue
		}
		for _, q := range p.seen.qps {
			if q.Context == f.Addr {
				qps = append(qps, q)
			}
		}
		for _, c := range p.seen.cqs {
			if c.Context == f.Addr {
				cqs = append(cqs, c)
			}
		}
	}
	return qps, cqs
}

// fromLayout reads what a verified layout tells of a QP.
func (p *Process) fromLayout(q *QP) {
	i := slices.IndexFunc(p.seen.contexts, func(f found) bool { return f.Addr == q.Context })
	if i < 0 {
		return
	}
	for l, lay := range p.layouts {
		if !lay.QP.Verified || p.seen.contexts[i].Provider != &l.Library {
			continue
		}
		b, err := p.mem.some(q.Addr, privateBytes, int(lay.QP.DB)+8)
		if err != nil {
			return
		}
		q.MaxSendWR = u32(b, uint64(lay.QP.SQMaxPost))
		if lay.QP.SigProven {
			q.SigAll = b[lay.QP.SQSigBits] / ctrlCQUpdate
		}
	}
}

// privateBytes is how far into struct mlx5_cq and mlx5_qp is looked: past the
// fields of interest of every release of rdma-core so far (the farthest: 920).
const privateBytes = 1024

// ctrlCQUpdate is MLX5_WQE_CTRL_CQ_UPDATE: the request asks for a completion
// (mlx5dv.h, public).
const ctrlCQUpdate = 8

func be32(b []byte, off uint64) uint32 { return binary.BigEndian.Uint32(b[off:]) }

func powerOfTwo(n uint32) bool { return n != 0 && n&(n-1) == 0 }

// tries is how often a proof is attempted that traffic may disturb between two
// reads.
const tries = 32
