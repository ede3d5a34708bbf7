package locate

import "slices"

// struct mlx5_context holds tables by which a completion's QP is looked up:
// arrays of {address of a second-level table of 4096 pointers; int refcnt}.
// A QP is entered when it is made and taken out when it is destroyed
// (rdma-core providers/mlx5/qp.c: mlx5_store_uidx, mlx5_store_qp). The pointer
// is to the struct mlx5_qp, in which the ibv_qp is the second member, at 8.
const (
	resourceEntries = 4096
	contextReach    = 512 << 10 // more than any release's struct mlx5_context
	qpInResource    = 8
)

// dropDestroyed takes out QPs that linger in freed memory: where libmlx5's
// tables hold some of a context's QPs, those that they do not hold are gone.
func (p *Process) dropDestroyed(o *objects) error {
	for _, f := range o.contexts {
		if !p.isMLX5(f) {
			continue
		}
		live, err := p.entered(f, o.qps)
		if err != nil {
			return err
		}
		if len(live) == 0 {
			continue
		}
		before := len(o.qps)
		o.qps = slices.DeleteFunc(o.qps, func(q QP) bool { return q.Context == f.Addr && !live[q.Addr] })
		o.destroyed += before - len(o.qps)
	}
	return nil
}

func (p *Process) isMLX5(f found) bool {
	return f.Provider != nil && f.Provider.Role&RoleMLX5 != 0
}

// entered are the QPs of a context that its tables hold.
func (p *Process) entered(f found, qps []QP) (map[uint64]bool, error) {
	mine := map[uint64]bool{}
	for _, q := range qps {
		if q.Context == f.Addr {
			mine[q.Addr] = true
		}
	}
	live := map[uint64]bool{}
	if len(mine) == 0 {
		return live, nil
	}
	tables := map[uint64]bool{}
	err := p.eachWord(f.Addr, contextReach, func(words []uint64) {
		for i := 0; i+1 < len(words); i++ {
			if n := words[i+1]; n > 0 && n <= resourceEntries && words[i]%8 == 0 && p.mem.data(words[i]) {
				tables[words[i]] = true
			}
		}
	})
	if err != nil {
		return nil, err
	}
	for t := range tables {
		err := p.eachWord(t, resourceEntries*8, func(words []uint64) {
			for _, w := range words {
				if q := w + qpInResource; mine[q] {
					live[q] = true
				}
			}
		})
		if err != nil {
			return nil, err
		}
	}
	return live, nil
}

// eachWord calls fn with what is present of n bytes from addr to the end of
// its mapping.
func (p *Process) eachWord(addr, n uint64, fn func([]uint64)) error {
	r := p.mem.mapping(addr)
	if r == nil {
		return nil
	}
	first := addr &^ (p.mem.page - 1)
	end := min((addr+n+p.mem.page-1)&^(p.mem.page-1), r.End)
	_, err := newSweep(p.mem, n+2*p.mem.page).piece(first, end-first, func(at uint64, words []uint64) bool {
		if at < addr {
			words = words[(addr-at)/8:]
		}
		fn(words)
		return false
	})
	return err
}
