package locate

import "fmt"

// struct mlx5_buf begins with the buffer's address and its length in bytes
// (rdma-core providers/mlx5/mlx5.h, all releases).
const (
	bufAddr   = 0
	bufLength = 8
)

// mlx5_cqe64, the hardware's completion entry (mlx5dv.h, public).
const (
	cqeQPN  = 56 // be32, low 24 bits: the local QP
	cqeOwn  = 63 // opcode << 4 | ... | owner
	cqeSize = 64
)

// cqeOpcodes are the opcodes of entries that the hardware wrote: requester,
// five responder kinds, resize, no packet, signature, requester and responder
// errors (MLX5_CQE_REQ ...); 15 is that of an entry never written.
var cqeOpcodes = [16]bool{0: true, 1: true, 2: true, 3: true, 4: true, 5: true, 6: true, 12: true, 13: true, 14: true}

// cqLayout derives where libmlx5 keeps its CQs' fields. A layout counts if some
// CQ's contents prove it, and no CQ contradicts its structure.
func (p *Process) cqLayout(cqs []CQ, qps []QP) MLX5CQLayout {
	nums := map[uint32]bool{}
	for _, q := range qps {
		nums[q.Num] = true
	}
	votes := map[MLX5CQLayout]int{}
	var proven []MLX5CQLayout
	why := "no live CQ"
	looked := 0
	for _, c := range cqs {
		shapes := p.cqShapes(c)
		if len(shapes) == 0 {
			why = "no place in a live CQ fits"
			continue
		}
		looked++
		for _, s := range shapes {
			votes[s]++
			evidence, ok := p.proveCQ(c, s, nums)
			if !ok {
				why = evidence
				continue
			}
			s.Evidence = evidence
			proven = append(proven, s)
		}
	}
	var out []MLX5CQLayout
	for _, s := range proven {
		bare := s
		bare.Evidence = ""
		if votes[bare] < looked {
			why = "live CQs contradict each other"
			continue
		}
		if len(out) == 0 || !sameCQ(out[0], s) {
			out = append(out, s)
		}
	}
	if len(out) != 1 {
		if len(out) > 1 {
			why = "several places in a live CQ fit"
		}
		return MLX5CQLayout{Evidence: why}
	}
	out[0].Verified = true
	return out[0]
}

func sameCQ(a, b MLX5CQLayout) bool {
	a.Evidence, b.Evidence = "", ""
	return a == b
}

// cqShapes are the layouts that fit a CQ's structure: active_buf points to one
// of the two mlx5_buf before it in the CQ itself, whose buffer is large enough
// for the CQ's entries; behind it come cqn, cons_index and the doorbell
// record's address side by side, then the entries' size.
func (p *Process) cqShapes(c CQ) []MLX5CQLayout {
	l := p.layout()
	b, err := p.mem.some(c.Addr, privateBytes, int(l.cqSize)+256)
	if err != nil {
		return nil
	}
	entries := c.CQE + 1
	if !powerOfTwo(entries) {
		return nil
	}
	var out []MLX5CQLayout
	end := uint64(len(b)) - 16
	for o := l.cqSize; o < end; o += 8 {
		buf := u64(b, o)
		if buf < c.Addr+l.cqSize || buf >= c.Addr+o || buf+bufLength+8 > c.Addr+o || buf%8 != 0 {
			continue
		}
		ring, length := u64(b, buf-c.Addr+bufAddr), u64(b, buf-c.Addr+bufLength)
		if ring%cqeSize != 0 || !p.mem.data(ring) || !p.mem.data(ring+length-1) || length < uint64(entries)*cqeSize {
			continue
		}
		for d := o + 16; d <= o+96 && d < end; d += 8 {
			db := u64(b, d)
			if db%8 != 0 || !p.mem.data(db) {
				continue
			}
			cqn := u32(b, d-12)
			if cqn == 0 || cqn >= 1<<24 {
				continue
			}
			for s := d + 8; s <= d+64 && s < end; s += 4 {
				if sz := u32(b, s); (sz == 64 || sz == 128) && uint64(entries)*uint64(sz) <= length {
					out = append(out, MLX5CQLayout{ActiveBuf: uint32(o), CQN: uint32(d - 12), ConsIndex: uint32(d - 8),
						DBRec: uint32(d), CQESize: uint32(s)})
					break
				}
			}
		}
	}
	return out
}

// proveCQ looks for contents that only the right layout explains: the doorbell
// record says what cons_index does, and the entries consumed last are the
// hardware's, in the generation of their index, of QPs that exist. evidence is
// what was seen, or what was missing.
func (p *Process) proveCQ(c CQ, s MLX5CQLayout, nums map[uint32]bool) (evidence string, ok bool) {
	for range tries {
		if evidence, ok = p.proveCQOnce(c, s, nums); ok {
			return evidence, true
		}
	}
	return evidence, false
}

func (p *Process) proveCQOnce(c CQ, s MLX5CQLayout, nums map[uint32]bool) (string, bool) {
	b, err := p.mem.some(c.Addr, privateBytes, int(s.CQESize)+4)
	if err != nil {
		return err.Error(), false
	}
	cons := u32(b, uint64(s.ConsIndex))
	if cons == 0 {
		return "no completion was consumed yet", false
	}
	var db [4]byte
	if err := p.mem.at(db[:], u64(b, uint64(s.DBRec))); err != nil {
		return err.Error(), false
	}
	if be32(db[:], 0)&0xffffff != cons&0xffffff {
		return "the doorbell record differs from cons_index", false
	}
	entries, size := c.CQE+1, uint64(u32(b, uint64(s.CQESize)))
	ring, err := p.mem.word(u64(b, uint64(s.ActiveBuf)) + bufAddr)
	if err != nil {
		return err.Error(), false
	}
	known := 0
	n := min(cons, max(entries/2, 1), 16)
	for i := cons - n; i != cons; i++ {
		var e [cqeSize]byte
		if err := p.mem.at(e[:], ring+uint64(i&(entries-1))*size+size-cqeSize); err != nil {
			return err.Error(), false
		}
		generation := byte(0)
		if i&entries != 0 {
			generation = 1
		}
		if !cqeOpcodes[e[cqeOwn]>>4] || e[cqeOwn]&1 != generation {
			return "an entry before cons_index is none that was consumed", false
		}
		if nums[be32(e[:], cqeQPN)&0xffffff] {
			known++
		}
	}
	if known == 0 {
		return "the entries before cons_index are of unknown QPs", false
	}
	return fmt.Sprintf("doorbell record equals cons_index; %d consumed entries of %d bytes, %d of live QPs", n, size, known), true
}
