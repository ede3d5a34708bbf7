package pollpath

import "debug/elf"

// reg is a general register: its number in the machine's encoding, plus one.
type reg uint8

const noReg reg = 0

// location is the register's in a Snapshot.
func (r reg) location() Location { return Location(r - 1) }

// loc is where a value lives: a register, or a slot off the stack or frame pointer.
type loc struct {
	reg  reg
	disp int64
	mem  bool
	neg  bool // the value is the negative of the count: clang counts down from zero and negates
}

// flow says where control goes after an instruction.
type flow uint8

const (
	flowNext   flow = iota // falls through
	flowCond               // falls through or jumps to target
	flowJump               // jumps to target
	flowCall               // calls, then falls through
	flowReturn             // ret
	flowTable              // an indirect jump whose table was decoded
	flowStop               // an unresolved indirect jump, a trap
)

// inst is one instruction, as far as the analysis asks what it does.
type inst struct {
	size     int
	flow     flow
	target   uint64 // flowCond, flowJump, flowCall with a direct target
	indirect bool   // flowStop: a jump
	via      reg    // to the address in here, if it is in a register
	// does is what it does to registers and to slots of the stack. It writes no other
	// register if whole is set, which says nothing of a call.
	does    []effect
	whole   bool
	flags   bool  // it may set flags
	compare below // its flags tell whether the low bits of a register are below, or at most, the max
	// taken and passed are what a conditional jump tells of those compared.
	taken, passed order
	// zeroTaken and zeroPassed are a register that holds 0 where it was taken, or not.
	zeroTaken, zeroPassed reg
}

// effect is that dst becomes one of the values. Of a register it writes some bits.
type effect struct {
	dst    loc
	bits   uint
	values []value
}

type valueKind uint8

const (
	valueUnknown valueKind = iota
	valueConst             // by
	valueOf                // from + by; from negated
	valueShifted           // from >> by
	valueSum               // from + index << by
	valueLoad              // index-th of a table of by bytes each at from
)

// value is what an instruction makes.
type value struct {
	kind   valueKind
	from   loc
	bits   uint // of from that count: the low ones, extended
	signed bool // by their sign; valueSum: the index; valueLoad: what is loaded
	neg    bool
	by     int64
	index  operand
}

// operand is the low bits of a register.
type operand struct {
	reg  reg
	bits uint
}

// on is the effect on a register or a slot, nil if there is none. A value of 32 bits
// is followed: parts of a register are no such place.
func (in *inst) on(p loc) *effect {
	p.neg = false
	for i := range in.does {
		if e := &in.does[i]; e.dst == p && (p.mem || e.bits >= 32) {
			return e
		}
	}
	return nil
}

// writes is the effect on any part of a register, nil if there is none.
func (in *inst) writes(r reg) *effect {
	for i := range in.does {
		if e := &in.does[i]; !e.dst.mem && e.dst.reg == r {
			return e
		}
	}
	return nil
}

// only is the value that the effect gives, if it can be but one.
func (e *effect) only() value {
	if len(e.values) != 1 {
		return value{}
	}
	return e.values[0]
}

// moved says that the register becomes what another, or itself, held, plus by.
func (e *effect) moved() (from reg, by int64, ok bool) {
	v := e.only()
	if e.dst.mem || v.kind != valueOf || v.from.mem || v.neg {
		return noReg, 0, false
	}
	return v.from.reg, v.by, true
}

// isa is what the analysis knows of a machine.
type isa struct {
	longest int // bytes of an instruction
	decode  func(b []byte, addr uint64) (inst, error)
	text    func(b []byte, addr uint64) string
	result  reg // a function returns in it
	// scratch are the registers that a call may change by the calling convention, returned
	// those that it makes. Another one that is read after it has kept what it held: the
	// compiler may know which of them a function leaves alone (gcc's -fipa-ra).
	scratch, returned map[reg]bool
}

var isas = map[elf.Machine]*isa{elf.EM_X86_64: &x86, elf.EM_AARCH64: &arm64}

func regs(numbers ...int) map[reg]bool {
	set := map[reg]bool{}
	for _, n := range numbers {
		set[reg(n+1)] = true
	}
	return set
}
