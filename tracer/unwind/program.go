package unwind

import "errors"

// columns is how many registers are followed: x86-64 has 0 to 16 (rip), arm64
// 0 to 31 (sp). Rules for others (vector registers) are read and dropped.
const columns = 32

// Register rules (DWARF 5, section 6.4.1).
type ruleKind uint8

const (
	ruleSame      ruleKind = iota // the caller's value is still in the register
	ruleUndefined                 // lost; for the return address: there is no caller
	ruleOffset                    // saved at CFA + offset
	ruleValue                     // is CFA + offset
	ruleRegister                  // is in another register
	ruleExpr                      // saved at the address the expression gives
	ruleValueExpr                 // is what the expression gives
)

type rule struct {
	kind   ruleKind
	reg    uint8
	offset int64
	expr   []byte
}

// row is the state of the table at one address: how to find the caller's
// registers from this function's.
type row struct {
	cfa       rule // ruleValue of reg + offset, or ruleValueExpr
	regs      [columns]rule
	returnReg uint64
	signal    bool
}

// maxRemember is the deepest nesting of DW_CFA_remember_state; compilers emit 1.
const maxRemember = 8

var errProgram = errors.New("a call frame program is malformed")

// rowAt runs the programs of an FDE and its CIE up to an address.
func (f *fde) rowAt(pc uint64) (*row, error) {
	p := interpreter{cie: f.cie, pc: pc, loc: f.begin}
	if err := p.run(f.cie.initialize); err != nil {
		return nil, err
	}
	p.initial = p.now.regs
	p.loc, p.done = f.begin, false
	if err := p.run(f.program); err != nil {
		return nil, err
	}
	if f.cie.returnReg >= columns || p.now.cfa.kind == ruleSame {
		return nil, errProgram
	}
	p.now.returnReg, p.now.signal = f.cie.returnReg, f.cie.signal
	return &p.now, nil
}

// interpreter executes call frame instructions (DWARF 5, section 6.4.2).
type interpreter struct {
	cie        *cie
	pc, loc    uint64
	done       bool // loc has passed pc
	now        row
	initial    [columns]rule
	remembered []row
}

// run executes a program; its length bounds the steps.
func (p *interpreter) run(program []byte) error {
	c := &cursor{b: program}
	for c.left() > 0 && !p.done {
		op := byte(c.fixed(1))
		low := uint64(op & 0x3f)
		var ok = true
		switch op >> 6 {
		case 1: // DW_CFA_advance_loc
			p.advance(low)
		case 2: // DW_CFA_offset
			p.set(low, rule{kind: ruleOffset, offset: int64(c.uleb()) * p.cie.dataAlign})
		case 3: // DW_CFA_restore
			p.restore(low)
		default:
			ok = p.extended(op, c)
		}
		if !ok || c.short {
			return errProgram
		}
	}
	return nil
}

func (p *interpreter) advance(delta uint64) {
	p.loc += delta * p.cie.codeAlign
	p.done = p.loc > p.pc
}

func (p *interpreter) set(reg uint64, r rule) {
	if reg < columns {
		p.now.regs[reg] = r
	}
}

func (p *interpreter) restore(reg uint64) {
	if reg < columns {
		p.now.regs[reg] = p.initial[reg]
	}
}

// Extended call frame instructions.
const (
	cfaNop             = 0x00
	cfaSetLoc          = 0x01
	cfaAdvance1        = 0x02
	cfaAdvance2        = 0x03
	cfaAdvance4        = 0x04
	cfaOffsetExt       = 0x05
	cfaRestoreExt      = 0x06
	cfaUndefined       = 0x07
	cfaSame            = 0x08
	cfaRegister        = 0x09
	cfaRemember        = 0x0a
	cfaRestoreState    = 0x0b
	cfaDef             = 0x0c
	cfaDefRegister     = 0x0d
	cfaDefOffset       = 0x0e
	cfaDefExpr         = 0x0f
	cfaExpr            = 0x10
	cfaOffsetExtSF     = 0x11
	cfaDefSF           = 0x12
	cfaDefOffsetSF     = 0x13
	cfaValOffset       = 0x14
	cfaValOffsetSF     = 0x15
	cfaValExpr         = 0x16
	cfaNegateRAPC      = 0x2c // arm64: with the PC as modifier
	cfaNegateRA        = 0x2d // arm64: the return address is (not) signed. Signatures are stripped anyway.
	cfaGNUArgsSize     = 0x2e
	cfaGNUNegOffsetExt = 0x2f
)

// extended executes an instruction whose opcode is in the low six bits.
func (p *interpreter) extended(op byte, c *cursor) bool {
	switch op {
	case cfaNop, cfaNegateRA, cfaNegateRAPC:
	case cfaSetLoc:
		// Relative to its own place, which nobody keeps: no compiler emits it.
		return false
	case cfaAdvance1:
		p.advance(c.fixed(1))
	case cfaAdvance2:
		p.advance(c.fixed(2))
	case cfaAdvance4:
		p.advance(c.fixed(4))
	case cfaRestoreExt:
		p.restore(c.uleb())
	case cfaRemember:
		if len(p.remembered) == maxRemember {
			return false
		}
		p.remembered = append(p.remembered, p.now)
	case cfaRestoreState:
		n := len(p.remembered)
		if n == 0 {
			return false
		}
		p.now, p.remembered = p.remembered[n-1], p.remembered[:n-1]
	case cfaGNUArgsSize:
		c.uleb()
	case cfaDef, cfaDefSF, cfaDefRegister, cfaDefOffset, cfaDefOffsetSF, cfaDefExpr:
		return p.define(op, c)
	default:
		return p.rule(op, c)
	}
	return true
}

// define executes the instructions that say what the CFA is.
func (p *interpreter) define(op byte, c *cursor) bool {
	cfa := &p.now.cfa
	switch op {
	case cfaDefExpr:
		*cfa = rule{kind: ruleValueExpr, expr: c.next(c.uleb())}
		return true
	case cfaDef, cfaDefSF:
		*cfa = rule{kind: ruleValue}
	}
	if cfa.kind != ruleValue {
		return false
	}
	if op == cfaDef || op == cfaDefSF || op == cfaDefRegister {
		reg := c.uleb()
		if reg >= columns {
			return false
		}
		cfa.reg = uint8(reg)
	}
	switch op {
	case cfaDef, cfaDefOffset:
		cfa.offset = int64(c.uleb())
	case cfaDefSF, cfaDefOffsetSF:
		cfa.offset = c.sleb() * p.cie.dataAlign
	}
	return true
}

// rule executes the instructions that say where a register is.
func (p *interpreter) rule(op byte, c *cursor) bool {
	reg := c.uleb()
	var r rule
	switch op {
	case cfaUndefined:
		r.kind = ruleUndefined
	case cfaSame:
		r.kind = ruleSame
	case cfaOffsetExt:
		r = rule{kind: ruleOffset, offset: int64(c.uleb()) * p.cie.dataAlign}
	case cfaOffsetExtSF:
		r = rule{kind: ruleOffset, offset: c.sleb() * p.cie.dataAlign}
	case cfaGNUNegOffsetExt:
		r = rule{kind: ruleOffset, offset: -int64(c.uleb()) * p.cie.dataAlign}
	case cfaValOffset:
		r = rule{kind: ruleValue, offset: int64(c.uleb()) * p.cie.dataAlign}
	case cfaValOffsetSF:
		r = rule{kind: ruleValue, offset: c.sleb() * p.cie.dataAlign}
	case cfaRegister:
		from := c.uleb()
		if from >= columns {
			r.kind = ruleUndefined
			break
		}
		r = rule{kind: ruleRegister, reg: uint8(from)}
	case cfaExpr:
		r = rule{kind: ruleExpr, expr: c.next(c.uleb())}
	case cfaValExpr:
		r = rule{kind: ruleValueExpr, expr: c.next(c.uleb())}
	default:
		return false
	}
	p.set(reg, r)
	return true
}
