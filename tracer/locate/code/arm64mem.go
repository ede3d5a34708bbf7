package code

// addressing says when a load or store changes its base register.
type addressing uint8

const (
	offset addressing = iota
	preIndex
	postIndex
)

// access describes a load or store of one register.
type access struct {
	size   uint8 // bytes
	load   bool
	signed bool
	vector bool
}

// access decodes the size, V and opc fields that single-register loads and
// stores share. prefetches and 32-bit sign extensions count as clobbers.
func (a *a64) access() (access, bool) {
	size, vector, opc := a.bits(31, 30), a.bits(26, 26) != 0, a.bits(23, 22)
	if vector {
		bytes := uint8(1) << (size | opc>>1<<2)
		return access{bytes, opc&1 != 0, false, true}, bytes <= 16
	}
	if size == 3 && opc >= 2 {
		return access{}, false // prfm
	}
	return access{uint8(1) << size, opc != 0, opc >= 2, false}, true
}

// transfer loads or stores register rt at base+imm (or base+index).
func (a *a64) transfer(x access, rt Reg, base, index Reg, scale uint8, imm int64) {
	e := Effect{Base: base, Index: index, Scale: scale, Size: x.size, Signed: x.signed, Imm: imm}
	halves := []Reg{rt}
	if x.vector {
		halves = []Reg{low(uint8(rt))}
		if x.size == 16 {
			halves = append(halves, high(uint8(rt)))
			e.Size = 8
		}
	}
	if x.vector && x.load && x.size < 16 {
		a.clobber(high(uint8(rt)))
	}
	for _, r := range halves {
		if x.load {
			e.Kind, e.Dst = Load, r
			if x.vector {
				a.add(e)
			} else {
				a.set(e)
			}
		} else {
			e.Kind, e.Src = Store, r
			if !x.vector {
				e.Src = from(r)
			}
			a.add(e)
		}
		e.Imm += 8
	}
}

func (a *a64) unsignedOffset() {
	x, ok := a.access()
	if !ok {
		return
	}
	a.transfer(x, a.rd(), a.rn(), NoReg, 0, int64(a.bits(21, 10))*int64(x.size))
}

func (a *a64) unscaled(mode addressing) {
	x, ok := a.access()
	if !ok {
		return
	}
	imm := a.signed(20, 12)
	a.indexed(mode, imm, func(imm int64) { a.transfer(x, a.rd(), a.rn(), NoReg, 0, imm) })
}

// indexed makes an access around a change of the base register.
func (a *a64) indexed(mode addressing, imm int64, access func(imm int64)) {
	bump := Effect{Kind: Copy, Dst: a.rn(), Src: a.rn(), Imm: imm}
	switch mode {
	case offset:
		access(imm)
	case preIndex:
		a.add(bump)
		access(0)
	case postIndex:
		access(0)
		a.add(bump)
	}
}

func (a *a64) registerOffset() {
	x, ok := a.access()
	if !ok {
		return
	}
	scale := uint8(0)
	if a.bits(12, 12) != 0 {
		for 1<<scale < x.size {
			scale++
		}
	}
	a.transfer(x, a.rd(), a.rn(), from(a.rm()), scale, 0)
}

// pair: ldp, stp, ldpsw, and those of vectors.
func (a *a64) pair(mode addressing) {
	opc, vector := a.bits(31, 30), a.bits(26, 26) != 0
	x := access{load: a.bits(22, 22) != 0, vector: vector}
	switch {
	case vector && opc < 3:
		x.size = 4 << opc
	case opc == 0 || opc == 1:
		x.size, x.signed = 4, opc == 1
	case opc == 2:
		x.size = 8
	default:
		a.unknown()
		return
	}
	rt2 := Reg(a.bits(14, 10))
	imm := a.signed(21, 15) * int64(x.size)
	a.indexed(mode, imm, func(imm int64) {
		a.transfer(x, a.rd(), a.rn(), NoReg, 0, imm)
		a.transfer(x, rt2, a.rn(), NoReg, 0, imm+int64(x.size))
	})
}
