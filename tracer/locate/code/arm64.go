package code

import "encoding/binary"

// ARM64 decodes A64 code of the AAPCS64 calling convention. Encodings are from
// the Arm Architecture Reference Manual, chapter C4 ("A64 instruction set
// encoding").
type ARM64 struct{}

// Args: x0 to x7.
func (ARM64) Args() []Reg { return []Reg{0, 1, 2, 3, 4, 5, 6, 7} }

// SP is sp.
func (ARM64) SP() Reg { return 31 }

// Preserved: x19 to x29, sp, and the low halves of v8 to v15.
func (ARM64) Preserved(r Reg) bool {
	return r >= 19 && r <= 29 || r == 31 || r >= low(8) && r <= low(15)
}

// Decode reads one instruction.
func (ARM64) Decode(b []byte, addr uint64) (Inst, error) {
	if len(b) < 4 {
		return Inst{}, ErrUnknown
	}
	w := binary.LittleEndian.Uint32(b)
	if w>>16 == 0 { // udf
		return Inst{}, ErrUnknown
	}
	a := a64{Inst{Addr: addr, Len: 4}, w}
	for i := range a64Table {
		if e := &a64Table[i]; w&e.mask == e.value {
			e.translate(&a)
			return a.Inst, nil
		}
	}
	a.unknown()
	return a.Inst, nil
}

// a64 translates one instruction word.
type a64 struct {
	Inst
	w uint32
}

// bits returns w[hi:lo].
func (a *a64) bits(hi, lo uint) uint32 { return a.w >> lo & (1<<(hi-lo+1) - 1) }

// signed returns w[hi:lo] sign-extended.
func (a *a64) signed(hi, lo uint) int64 {
	n := hi - lo + 1
	return int64(int32(a.bits(hi, lo)<<(32-n)) >> (32 - n))
}

func (a *a64) rd() Reg { return Reg(a.bits(4, 0)) }
func (a *a64) rn() Reg { return Reg(a.bits(9, 5)) }
func (a *a64) rm() Reg { return Reg(a.bits(20, 16)) }

// set adds an effect on a general register; writes to xzr are none.
func (a *a64) set(e Effect) {
	if e.Dst != 31 {
		a.add(e)
	}
}

// from is a general register as a source: xzr holds nothing of interest.
func from(r Reg) Reg {
	if r == 31 {
		return NoReg
	}
	return r
}

type a64Entry struct {
	mask, value uint32
	translate   func(*a64)
}

var a64Table = []a64Entry{
	{0xfc000000, 0x14000000, func(a *a64) { a.jump(Jump, a.signed(25, 0)) }},    // b
	{0xfc000000, 0x94000000, func(a *a64) { a.jump(Call, a.signed(25, 0)) }},    // bl
	{0xff000010, 0x54000000, func(a *a64) { a.jump(Branch, a.signed(23, 5)) }},  // b.cond
	{0xff000010, 0x54000010, func(a *a64) { a.jump(Branch, a.signed(23, 5)) }},  // bc.cond
	{0x7e000000, 0x34000000, func(a *a64) { a.jump(Branch, a.signed(23, 5)) }},  // cbz, cbnz
	{0x7e000000, 0x36000000, func(a *a64) { a.jump(Branch, a.signed(18, 5)) }},  // tbz, tbnz
	{0xfffff000, 0xd61f0000, func(a *a64) { a.Flow, a.Via = Indirect, a.rn() }}, // br, braa(z)
	{0xfffff000, 0xd71f0000, func(a *a64) { a.Flow, a.Via = Indirect, a.rn() }}, // braa
	{0xfffff000, 0xd63f0000, func(a *a64) { a.Flow = Call }},                    // blr
	{0xfffff000, 0xd73f0000, func(a *a64) { a.Flow = Call }},                    // blraa
	{0xfffff000, 0xd65f0000, func(a *a64) { a.Flow = Return }},                  // ret, retaa
	{0xffe0001f, 0xd4200000, func(a *a64) { a.Flow = Stop }},                    // brk
	{0xffe0001f, 0xd4000001, func(a *a64) { a.clobber(0) }},                     // svc
	{0xfff00000, 0xd5300000, func(a *a64) { a.clobber(from(a.rd())) }},          // mrs
	{0xffc00000, 0xd5000000, func(*a64) {}},                                     // hint, barriers, msr

	{0x9f000000, 0x10000000, (*a64).adr},
	{0x9f000000, 0x90000000, (*a64).adrp},
	{0xff800000, 0x91000000, func(a *a64) { a.addImm(1) }},                                               // add
	{0xff800000, 0xd1000000, func(a *a64) { a.addImm(-1) }},                                              // sub
	{0x7f80001f, 0x7100001f, (*a64).compare},                                                             // cmp
	{0xffe0ffe0, 0xaa0003e0, func(a *a64) { a.set(Effect{Kind: Copy, Dst: a.rd(), Src: from(a.rm())}) }}, // mov
	{0x7f800000, 0x52800000, (*a64).movz},
	{0xffe00c00, 0x9a800000, func(a *a64) { // csel
		a.set(Effect{Kind: Choose, Dst: a.rd(), Src: from(a.rn()), Index: from(a.rm())})
	}},
	{0xfffffc00, 0x93407c00, func(a *a64) { a.set(Effect{Kind: Extend, Dst: a.rd(), Src: from(a.rn()), Size: 4}) }}, // sxtw
	{0xff200000, 0x8b000000, (*a64).addShifted},
	{0xffe00000, 0x8b200000, (*a64).addExtended},

	{0xff000000, 0x58000000, (*a64).loadLiteral},
	{0x3b000000, 0x39000000, (*a64).unsignedOffset},
	{0x3b200c00, 0x38000000, func(a *a64) { a.unscaled(offset) }},    // ldur, stur
	{0x3b200c00, 0x38000400, func(a *a64) { a.unscaled(postIndex) }}, // ldr x, [x], #imm
	{0x3b200c00, 0x38000c00, func(a *a64) { a.unscaled(preIndex) }},  // ldr x, [x, #imm]!
	{0x3b200c00, 0x38200800, (*a64).registerOffset},
	{0x3b800000, 0x28800000, func(a *a64) { a.pair(postIndex) }},
	{0x3b800000, 0x29000000, func(a *a64) { a.pair(offset) }},
	{0x3b800000, 0x29800000, func(a *a64) { a.pair(preIndex) }},

	{0xfffffc00, 0x9e670000, func(a *a64) { a.lane(low(uint8(a.rd())), from(a.rn()), true) }},                  // fmov d, x
	{0xfffffc00, 0x9e660000, func(a *a64) { a.set(Effect{Kind: Copy, Dst: a.rd(), Src: low(uint8(a.rn()))}) }}, // fmov x, d
	{0xfffffc00, 0x4e081c00, func(a *a64) { a.lane(low(uint8(a.rd())), from(a.rn()), false) }},                 // ins v.d[0], x
	{0xfffffc00, 0x4e181c00, func(a *a64) { a.lane(high(uint8(a.rd())), from(a.rn()), false) }},                // ins v.d[1], x
	{0xfffffc00, 0x6e180400, func(a *a64) { a.lane(high(uint8(a.rd())), low(uint8(a.rn())), false) }},          // ins v.d[1], v.d[0]
	{0xfffffc00, 0x4e080c00, (*a64).duplicate},
	{0xffe0fc00, 0x4ec03800, (*a64).zip},
	{0xffe0fc00, 0x4ea01c00, (*a64).moveVector}, // orr: mov when both sources are one
}

func (a *a64) jump(f Flow, words int64) {
	a.Flow = f
	a.Target = a.Addr + uint64(words*4)
}

func (a *a64) adr() {
	imm := a.signed(23, 5)<<2 | int64(a.bits(30, 29))
	a.set(Effect{Kind: Const, Dst: a.rd(), Imm: int64(a.Addr) + imm})
}

func (a *a64) adrp() {
	imm := a.signed(23, 5)<<2 | int64(a.bits(30, 29))
	a.set(Effect{Kind: Const, Dst: a.rd(), Imm: int64(a.Addr&^0xfff) + imm<<12})
}

// imm12 is an immediate that may be shifted by 12.
func (a *a64) imm12() int64 { return int64(a.bits(21, 10)) << (12 * a.bits(22, 22)) }

// addImm: register 31 is sp here, on both sides.
func (a *a64) addImm(sign int64) {
	a.add(Effect{Kind: Copy, Dst: a.rd(), Src: a.rn(), Imm: sign * a.imm12()})
}

func (a *a64) compare() { a.add(Effect{Kind: Compare, Src: a.rn(), Imm: a.imm12()}) }

func (a *a64) movz() {
	a.set(Effect{Kind: Const, Dst: a.rd(), Imm: int64(uint64(a.bits(20, 5)) << (16 * a.bits(22, 21)))})
}

func (a *a64) addShifted() {
	if a.bits(23, 22) != 0 { // only lsl
		a.set(Effect{Kind: Clobber, Dst: a.rd()})
		return
	}
	a.set(Effect{Kind: Add, Dst: a.rd(), Src: from(a.rn()), Index: from(a.rm()), Scale: uint8(a.bits(15, 10)), Size: 8})
}

func (a *a64) addExtended() {
	option := a.bits(15, 13)
	a.add(Effect{Kind: Add, Dst: a.rd(), Src: a.rn(), Index: from(a.rm()), Scale: uint8(a.bits(12, 10)),
		Size: 1 << (option & 3), Signed: option&4 != 0})
}

func (a *a64) loadLiteral() {
	a.set(Effect{Kind: Load, Dst: a.rd(), Base: NoReg, Index: NoReg, Size: 8, Imm: int64(a.Addr) + a.signed(23, 5)<<2})
}

// lane writes one half of a vector register; clear zeroes the other, which
// then is the high one.
func (a *a64) lane(dst, src Reg, clear bool) {
	a.add(Effect{Kind: Copy, Dst: dst, Src: src})
	if clear {
		a.add(Effect{Kind: Const, Dst: dst + (vectorHigh - vectorLow)})
	}
}

func (a *a64) duplicate() {
	a.lane(low(uint8(a.rd())), from(a.rn()), false)
	a.lane(high(uint8(a.rd())), from(a.rn()), false)
}

// zip: zip1 v.2d puts the low halves side by side.
func (a *a64) zip() {
	d, n, m := uint8(a.rd()), uint8(a.rn()), uint8(a.rm())
	a.lane(high(d), low(m), false)
	a.lane(low(d), low(n), false)
}

func (a *a64) moveVector() {
	d, n := uint8(a.rd()), uint8(a.rn())
	if a.rn() != a.rm() {
		a.clobber(low(d), high(d))
		return
	}
	a.lane(low(d), low(n), false)
	a.lane(high(d), high(n), false)
}

// unknown clobbers what an instruction of no entry may write, by its group
// (op0, bits 28 to 25). Too much rather than too little.
func (a *a64) unknown() {
	rd := uint8(a.rd())
	switch op0 := a.bits(28, 25); {
	case op0&0b0101 == 0b0100: // loads and stores: any register field may be written
		a.clobber(from(a.rd()), from(Reg(a.bits(14, 10))), from(a.rm()), a.rn())
		if a.bits(26, 26) != 0 {
			a.clobber(low(rd), high(rd))
		}
	case op0&0b0111 == 0b0111 || op0 == 0b0010: // vectors
		a.clobber(from(a.rd()), low(rd), high(rd))
	default:
		a.clobber(from(a.rd()))
	}
}
