package pollpath

import "math/bits"

// is says that the word has these bits where the mask has ones.
func (a *a64) is(mask, word uint32) bool { return a.w&mask == word }

func (a *a64) isOne(patterns []patternARM64) bool {
	for _, p := range patterns {
		if a.is(p.mask, p.word) {
			return true
		}
	}
	return false
}

// bits returns w[hi:lo].
func (a *a64) bits(hi, lo uint) uint32 { return a.w >> lo & (1<<(hi-lo+1) - 1) }

// width is that of the registers, by the bit that most encodings have for it.
func (a *a64) width() uint { return 32 << a.bits(31, 31) }

// Registers in the fields of the encoding; number 31 is xzr, or sp.
func (a *a64) rd() reg   { return general(a.bits(4, 0)) }
func (a *a64) rdSP() reg { return reg(a.bits(4, 0)) + 1 }
func (a *a64) rn() reg   { return general(a.bits(9, 5)) }
func (a *a64) rnSP() reg { return reg(a.bits(9, 5)) + 1 }
func (a *a64) rm() reg   { return general(a.bits(20, 16)) }

func general(n uint32) reg {
	if n == 31 {
		return noReg
	}
	return reg(n) + 1
}

type patternARM64 struct{ mask, word uint32 }

// keepFlagsARM64 are encodings that set no flag; others may.
var keepFlagsARM64 = []patternARM64{
	{0x0a000000, 0x08000000}, // loads and stores
	{0xfffff01f, 0xd503201f}, // hints
	{0x1f000000, 0x10000000}, // adr, adrp
	{0x3f000000, 0x11000000}, // add, sub, of an immediate
	{0x3f000000, 0x0b000000}, // of a register
	{0x3f800000, 0x12000000}, // and, eor, of an immediate
	{0x5f800000, 0x12000000}, // and, orr
	{0x3f000000, 0x0a000000}, // and, eor, of a register
	{0x5f000000, 0x0a000000}, // and, orr
	{0x1f800000, 0x12800000}, // movn, movz, movk
	{0x1f000000, 0x13000000}, // bitfields, extr
	{0x1fe00000, 0x1a800000}, // csel, csinc, csinv, csneg
	{0x3fe00000, 0x1ac00000}, // shifts, divisions, rev, clz
	{0x1f000000, 0x1b000000}, // madd
}

// valuesARM64 translates what makes values.
var valuesARM64 = []struct {
	patternARM64
	translate func(*a64)
}{
	{patternARM64{0x1f800000, 0x11000000}, (*a64).addImmediate},
	{patternARM64{0x1f800000, 0x12000000}, (*a64).logicalImmediate},
	{patternARM64{0x1f800000, 0x12800000}, (*a64).moveWide},
	{patternARM64{0x1f800000, 0x13000000}, (*a64).bitfield},
	{patternARM64{0x1f000000, 0x0a000000}, (*a64).logicalRegister},
	{patternARM64{0x1f200000, 0x0b000000}, (*a64).addRegister},
	{patternARM64{0x1fe00000, 0x0b200000}, (*a64).addExtended},
	{patternARM64{0x1fe00000, 0x1a800000}, (*a64).choose},
	{patternARM64{0xfffff01f, 0xd503201f}, (*a64).hint},
}

// tells takes what a conditional jump tells: cbz and cbnz of a register, the unsigned
// conditions of b.cond of what was compared.
func (a *a64) tells() {
	switch {
	case a.is(0x7f000000, 0x34000000):
		a.zeroTaken = a.rd()
	case a.is(0x7f000000, 0x35000000):
		a.zeroPassed = a.rd()
	}
	if !a.is(0xff000000, 0x54000000) {
		return
	}
	switch a.bits(3, 0) {
	case 0b0010: // hs
		a.passed = orderLess
	case 0b0011: // lo
		a.taken = orderLess
	case 0b1000: // hi
		a.passed = orderAtMost
	case 0b1001: // ls
		a.taken = orderAtMost
	}
}

func (a *a64) addImmediate() {
	by := int64(a.bits(21, 10)) << (12 * a.bits(22, 22))
	subtract, flags := a.bits(30, 30) != 0, a.bits(29, 29) != 0
	if subtract && flags {
		a.compare = below{operand{a.rnSP(), a.width()}, by}
	}
	if subtract {
		by = -by
	}
	dst := a.rdSP()
	if flags {
		dst = a.rd()
	}
	a.set(dst, a.width(), a.held(a.rnSP(), by))
}

func (a *a64) logicalImmediate() {
	mask, ok := a.bitmask()
	op := a.bits(30, 29)
	dst, v := a.rdSP(), value{}
	if op == 0b11 { // ands
		dst = a.rd()
	}
	low := uint(bits.OnesCount64(mask))
	switch {
	case !ok:
	case op == 0b01 && a.rn() == noReg: // orr: mov
		v = value{kind: valueConst, by: int64(mask)}
	case op&1 == op>>1 && mask == 1<<low-1: // and, ands, of the low bits
		if v = a.held(a.rn(), 0); v.kind == valueOf {
			v.bits = low
		}
	}
	a.set(dst, a.width(), v)
}

// bitmask decodes the immediate of logical instructions: ones, rotated in an element
// that is repeated.
func (a *a64) bitmask() (uint64, bool) {
	n, immr, imms := a.bits(22, 22), a.bits(21, 16), a.bits(15, 10)
	log := bits.Len32(n<<6|^imms&0x3f) - 1
	if log < 1 || 1<<log > a.width() {
		return 0, false
	}
	size := uint(1) << log
	ones := uint(imms)&(size-1) + 1
	if ones == size {
		return 0, false
	}
	e, r := uint64(1)<<ones-1, uint(immr)&(size-1)
	e = (e>>r | e<<(size-r)) & (1<<size - 1)
	for ; size < a.width(); size *= 2 {
		e |= e << size
	}
	return e, true
}

func (a *a64) moveWide() {
	imm := int64(a.bits(20, 5)) << (16 * a.bits(22, 21))
	v := value{kind: valueConst, by: imm}
	switch a.bits(30, 29) {
	case 0b00: // movn
		v.by = ^imm
	case 0b10:
	default: // movk
		v = value{}
	}
	a.set(a.rd(), a.width(), v)
}

// bitfield: uxtb, ubfx, lsr and sxtw among them.
func (a *a64) bitfield() {
	op, from, to := a.bits(30, 29), a.bits(21, 16), a.bits(15, 10)
	v := a.held(a.rn(), 0)
	switch {
	case v.kind == valueConst:
	case op > 2 || op == 1 || to < from || op == 0 && from != 0:
		v = value{}
	default:
		v.signed, v.bits = op == 0, uint(to)+1
		if from != 0 {
			v.kind, v.by = valueShifted, int64(from)
		}
	}
	a.set(a.rd(), a.width(), v)
}

func (a *a64) logicalRegister() {
	v := value{}
	if a.is(0x7f20ffe0, 0x2a0003e0) { // orr with xzr, of what is not shifted: mov
		v = a.held(a.rm(), 0)
	}
	a.set(a.rd(), a.width(), v)
}

func (a *a64) addRegister() {
	v := value{}
	subtract, flags, shift := a.bits(30, 30) != 0, a.bits(29, 29) != 0, a.bits(15, 10)
	switch {
	case a.bits(23, 22) != 0: // not lsl
	case subtract && a.rn() == noReg && shift == 0: // neg
		if v = a.held(a.rm(), 0); v.kind == valueOf {
			v.neg = true
		}
	case !subtract && !flags && a.rn() != noReg && a.rm() != noReg:
		v = value{kind: valueSum, from: loc{reg: a.rn()}, bits: a.width(), by: int64(shift), index: operand{a.rm(), a.width()}}
	}
	a.set(a.rd(), a.width(), v)
}

func (a *a64) addExtended() {
	v := value{}
	option, flags := a.bits(15, 13), a.bits(29, 29) != 0
	if a.bits(30, 30) == 0 && !flags && a.rm() != noReg {
		v = value{kind: valueSum, from: loc{reg: a.rnSP()}, bits: a.width(), signed: option&4 != 0, by: int64(a.bits(12, 10)),
			index: operand{a.rm(), 8 << (option & 3)}}
	}
	dst := a.rdSP()
	if flags {
		dst = a.rd()
	}
	a.set(dst, a.width(), v)
}

// choose: a condition says whether it is one register, or another: as it is, plus one,
// inverted or negated.
func (a *a64) choose() {
	one, other := a.held(a.rn(), 0), a.held(a.rm(), 0)
	switch a.bits(30, 30)<<1 | a.bits(10, 10) {
	case 0b01: // csinc
		other.by++
	case 0b10: // csinv
		other = value{}
	case 0b11: // csneg
		other.neg = true
	}
	if one == other {
		a.set(a.rd(), a.width(), one)
		return
	}
	a.set(a.rd(), a.width(), one, other)
}

// hint: some sign or check an address in place.
func (a *a64) hint() {
	a.set(18, 64, value{}) // x17
	a.set(31, 64, value{}) // x30
}
