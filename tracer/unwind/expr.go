package unwind

import "errors"

// Bounds on one DWARF expression: PLT entries and signal trampolines, where
// they occur, need a dozen steps.
const (
	maxExprSteps = 256
	maxExprStack = 32
)

var errExpr = errors.New("a DWARF expression is malformed or not supported")

// Operations of DWARF expressions (DWARF 5, section 7.7.1) that call frame
// information may use.
const (
	opDeref      = 0x06
	opConst1u    = 0x08 // to opConst8s 0x0f: unsigned and signed in turn, 1, 2, 4, 8 bytes
	opConst8s    = 0x0f
	opConstu     = 0x10
	opConsts     = 0x11
	opDup        = 0x12
	opDrop       = 0x13
	opOver       = 0x14
	opPick       = 0x15
	opSwap       = 0x16
	opRot        = 0x17
	opAnd        = 0x1a
	opMinus      = 0x1c
	opMul        = 0x1e
	opNeg        = 0x1f
	opNot        = 0x20
	opOr         = 0x21
	opPlus       = 0x22
	opPlusUconst = 0x23
	opShl        = 0x24
	opShr        = 0x25
	opShra       = 0x26
	opXor        = 0x27
	opBra        = 0x28
	opEq         = 0x29
	opGe         = 0x2a
	opGt         = 0x2b
	opLe         = 0x2c
	opLt         = 0x2d
	opNe         = 0x2e
	opSkip       = 0x2f
	opLit0       = 0x30 // to 0x4f
	opLit31      = 0x4f
	opBreg0      = 0x70 // to 0x8f
	opBreg31     = 0x8f
	opBregx      = 0x92
	opNop        = 0x96
)

// evaluator runs one expression.
type evaluator struct {
	regs  *registers
	mem   *Snapshot
	stack []uint64
}

// eval runs an expression on an initial stack of the given values.
func eval(expr []byte, regs *registers, mem *Snapshot, initial ...uint64) (uint64, error) {
	e := evaluator{regs: regs, mem: mem, stack: make([]uint64, 0, maxExprStack)}
	e.stack = append(e.stack, initial...)
	c := &cursor{b: expr}
	for steps := 0; c.left() > 0; steps++ {
		if steps == maxExprSteps || !e.step(c) || c.short || len(e.stack) > maxExprStack {
			return 0, errExpr
		}
	}
	if len(e.stack) == 0 {
		return 0, errExpr
	}
	return e.stack[len(e.stack)-1], nil
}

func (e *evaluator) push(v uint64) bool {
	e.stack = append(e.stack, v)
	return true
}

// pop takes the topmost value; ok is false if there is none.
func (e *evaluator) pop() (v uint64, ok bool) {
	n := len(e.stack)
	if n == 0 {
		return 0, false
	}
	v, e.stack = e.stack[n-1], e.stack[:n-1]
	return v, true
}

// peek is the value n below the top.
func (e *evaluator) peek(n uint64) (uint64, bool) {
	if n >= uint64(len(e.stack)) {
		return 0, false
	}
	return e.stack[uint64(len(e.stack))-1-n], true
}

// step executes one operation.
func (e *evaluator) step(c *cursor) bool {
	op := byte(c.fixed(1))
	switch {
	case op >= opLit0 && op <= opLit31:
		return e.push(uint64(op - opLit0))
	case op >= opConst1u && op <= opConst8s:
		size := uint64(1) << ((op - opConst1u) / 2)
		if (op-opConst1u)%2 == 1 {
			return e.push(uint64(c.signed(size)))
		}
		return e.push(c.fixed(size))
	case op >= opBreg0 && op <= opBreg31:
		return e.register(uint64(op-opBreg0), c)
	case op == opBregx:
		return e.register(c.uleb(), c)
	case op == opSkip || op == opBra:
		return e.jump(op, c)
	case op == opConstu:
		return e.push(c.uleb())
	case op == opConsts:
		return e.push(uint64(c.sleb()))
	case op == opNop:
		return true
	case op >= opDup && op <= opRot:
		return e.shuffle(op, c)
	}
	return e.compute(op, c)
}

func (e *evaluator) register(reg uint64, c *cursor) bool {
	v, ok := e.regs.get(reg)
	return ok && e.push(v+uint64(c.sleb()))
}

func (e *evaluator) jump(op byte, c *cursor) bool {
	to := c.signed(2)
	if op == opBra {
		if v, ok := e.pop(); !ok || v == 0 {
			return ok
		}
	}
	pos := int64(c.pos) + to
	if pos < 0 || pos > int64(len(c.b)) {
		return false
	}
	c.pos = int(pos)
	return true
}

// shuffle executes the operations that only move values of the stack.
func (e *evaluator) shuffle(op byte, c *cursor) bool {
	n := len(e.stack)
	switch op {
	case opDrop:
		_, ok := e.pop()
		return ok
	case opSwap:
		if n < 2 {
			return false
		}
		e.stack[n-1], e.stack[n-2] = e.stack[n-2], e.stack[n-1]
		return true
	case opRot:
		if n < 3 {
			return false
		}
		e.stack[n-1], e.stack[n-2], e.stack[n-3] = e.stack[n-2], e.stack[n-3], e.stack[n-1]
		return true
	}
	var depth uint64 // opDup
	switch op {
	case opOver:
		depth = 1
	case opPick:
		depth = c.fixed(1)
	}
	v, ok := e.peek(depth)
	return ok && e.push(v)
}

// compute executes the operations on one or two values.
func (e *evaluator) compute(op byte, c *cursor) bool {
	top, ok := e.pop()
	if !ok {
		return false
	}
	switch op {
	case opDeref:
		v, ok := e.mem.Word(top)
		return ok && e.push(v)
	case opNeg:
		return e.push(-top)
	case opNot:
		return e.push(^top)
	case opPlusUconst:
		return e.push(top + c.uleb())
	}
	second, ok := e.pop()
	if !ok {
		return false
	}
	v, ok := arithmetic(op, second, top)
	return ok && e.push(v)
}

// arithmetic computes second op top.
func arithmetic(op byte, second, top uint64) (uint64, bool) {
	a, b := int64(second), int64(top)
	switch op {
	case opAnd:
		return second & top, true
	case opOr:
		return second | top, true
	case opXor:
		return second ^ top, true
	case opPlus:
		return second + top, true
	case opMinus:
		return second - top, true
	case opMul:
		return second * top, true
	case opShl:
		return second << min(top, 64), true
	case opShr:
		return second >> min(top, 64), true
	case opShra:
		return uint64(a >> min(top, 64)), true
	case opEq:
		return truth(a == b), true
	case opNe:
		return truth(a != b), true
	case opGe:
		return truth(a >= b), true
	case opGt:
		return truth(a > b), true
	case opLe:
		return truth(a <= b), true
	case opLt:
		return truth(a < b), true
	}
	return 0, false
}

func truth(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}
