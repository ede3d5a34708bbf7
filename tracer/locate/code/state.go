package code

// ValueKind says what is known of a word.
type ValueKind uint8

const (
	Unknown     ValueKind = iota
	ValueConst            // Off
	ValueArg              // argument Arg of the function, plus Off
	ValueLoaded           // the word at (argument Arg) + Table, plus Off
	ValueOther            // a word of memory, nothing known of where, plus Off
	ValueStack            // the stack pointer at entry, plus Off
	ValueChoice           // one of a few constants, see Func.Constants
	ValueIndex            // some number shifted left by Shift
	ValueEntry            // an entry of the table at Table (Size, Signed), not yet made an address
	ValueCase             // Off plus such an entry shifted left by Shift: where a jump goes
)

// Value is what is known of a word at one place in the code.
type Value struct {
	Kind   ValueKind
	Arg    uint8
	Size   uint8
	Shift  uint8
	Signed bool
	Off    int64
	Table  int64
}

func (v Value) plus(n int64) Value {
	switch v.Kind {
	case ValueConst, ValueArg, ValueLoaded, ValueOther, ValueStack, ValueCase:
		v.Off += n
		return v
	}
	if n == 0 {
		return v
	}
	return Value{}
}

// State is what every register and every word of the function's own stack
// frame holds before an instruction.
type State struct {
	regs  [regs]Value
	frame map[int64]Value
	// bound is the constant of the latest comparison, -1 if paths differ: the
	// largest case of a jump table that follows.
	bound int64
}

func entryState(m Machine) *State {
	s := &State{bound: -1}
	for i, r := range m.Args() {
		s.regs[r] = Value{Kind: ValueArg, Arg: uint8(i)}
	}
	s.regs[m.SP()] = Value{Kind: ValueStack}
	return s
}

// Reg is what register r holds.
func (s *State) Reg(r Reg) Value {
	if r >= regs {
		return Value{}
	}
	return s.regs[r]
}

// Clone is an independent copy.
func (s *State) Clone() *State {
	c := &State{}
	c.set(s)
	return c
}

// set makes s a copy of o in the memory it has.
func (s *State) set(o *State) {
	s.regs, s.bound = o.regs, o.bound
	clear(s.frame)
	if s.frame == nil && len(o.frame) > 0 {
		s.frame = make(map[int64]Value, len(o.frame))
	}
	for k, v := range o.frame {
		s.frame[k] = v
	}
}

// join keeps what both states agree on, and says whether s lost anything.
func (s *State) join(o *State, f *Func) bool {
	changed := false
	for i := range s.regs {
		if s.regs[i] == o.regs[i] {
			continue
		}
		if v := f.either(s.regs[i], o.regs[i]); v != s.regs[i] {
			s.regs[i] = v
			changed = true
		}
	}
	for k, v := range s.frame {
		if w := f.either(v, o.frame[k]); w.Kind == Unknown {
			delete(s.frame, k)
			changed = true
		} else if w != v {
			s.frame[k] = w
			changed = true
		}
	}
	if s.bound != o.bound && s.bound != -1 {
		s.bound = -1
		changed = true
	}
	return changed
}

// call forgets what a called function may change. It cannot reach the words of
// the frame whose address was not given away; compilers spill to those.
func (s *State) call(m Machine) {
	for i := range s.regs {
		if !m.Preserved(Reg(i)) {
			s.regs[i] = Value{}
		}
	}
	s.bound = -1
}

func (s *State) apply(i *Inst, f *Func) {
	for _, e := range i.Effects() {
		switch e.Kind {
		case Clobber:
			s.regs[e.Dst] = Value{}
		case Const:
			s.regs[e.Dst] = Value{Kind: ValueConst, Off: e.Imm}
		case Copy:
			s.regs[e.Dst] = s.Reg(e.Src).plus(e.Imm)
		case Add:
			s.regs[e.Dst] = s.sum(e)
		case Load:
			s.regs[e.Dst] = s.load(e, f)
		case Store:
			s.store(e)
		case Choose:
			s.regs[e.Dst] = f.either(s.Reg(e.Src), s.Reg(e.Index))
		case Extend:
			s.regs[e.Dst] = extend(s.Reg(e.Src), e.Size)
		case Scale:
			s.regs[e.Dst] = Value{Kind: ValueIndex, Shift: e.Scale}
		case Compare:
			s.bound = e.Imm
		}
	}
}

// sum adds two registers. One may be an entry of a jump table.
func (s *State) sum(e Effect) Value {
	a, b := s.Reg(e.Src), s.Reg(e.Index)
	if a.Kind == ValueEntry && e.Scale == 0 {
		a, b = b, a
	}
	switch {
	case a.Kind == ValueConst && b.Kind == ValueConst:
		return a.plus(b.Off << e.Scale)
	case a.Kind == ValueConst && b.Kind == ValueEntry:
		signed := b.Signed
		if e.Size < 8 {
			signed = e.Signed
		}
		return Value{Kind: ValueCase, Off: a.Off, Table: b.Table, Size: b.Size, Signed: signed, Shift: e.Scale}
	case b.Kind == ValueConst && e.Scale == 0:
		return a.plus(b.Off)
	}
	return Value{}
}

func (s *State) load(e Effect, f *Func) Value {
	base := Value{Kind: ValueConst}
	if e.Base != NoReg {
		base = s.Reg(e.Base)
	}
	if e.Index != NoReg {
		index, scale := s.Reg(e.Index), e.Scale
		if base.Kind == ValueIndex && scale == 0 { // the table's address is the other one
			base, index = index, base
		}
		if index.Kind == ValueIndex {
			scale += index.Shift
		}
		if base.Kind == ValueConst && 1<<scale == e.Size {
			return Value{Kind: ValueEntry, Table: base.Off + e.Imm, Size: e.Size, Signed: e.Signed}
		}
		return Value{}
	}
	if e.Size != 8 {
		return Value{}
	}
	at := base.Off + e.Imm
	switch base.Kind {
	case ValueStack:
		return s.frame[at]
	case ValueArg:
		return Value{Kind: ValueLoaded, Arg: base.Arg, Table: at}
	case ValueConst:
		if w, ok := f.word(uint64(at)); ok {
			return Value{Kind: ValueConst, Off: w}
		}
	}
	return Value{Kind: ValueOther}
}

// extend sign-extends the low size bytes of a word.
func extend(v Value, size uint8) Value {
	if v.Kind == ValueEntry && v.Size == size {
		v.Signed = true
		return v
	}
	return Value{}
}

func (s *State) store(e Effect) {
	if e.Base == NoReg || e.Index != NoReg {
		return
	}
	base := s.Reg(e.Base)
	if base.Kind != ValueStack {
		return
	}
	at := base.Off + e.Imm
	for n := at - 7; n < at+int64(max(e.Size, 1)); n++ {
		delete(s.frame, n)
	}
	if v := s.Reg(e.Src); e.Size == 8 && v.Kind != Unknown {
		if s.frame == nil {
			s.frame = map[int64]Value{}
		}
		s.frame[at] = v
	}
}

// Stored is a word that the function writes to memory through a register.
type Stored struct {
	Addr  uint64 // of the instruction
	Base  Value  // of the register, Unknown when nothing is known of it
	Disp  int64  // from the register
	Value Value  // never ValueChoice: each of its constants is a Stored
}

// Stores lists the 8-byte stores with a known value, except those into the
// function's own frame.
func (f *Func) Stores() []Stored {
	var out []Stored
	f.Each(func(i *Inst, s *State) {
		for _, e := range i.Effects() {
			// A vector's halves are stored by an instruction that does nothing
			// else; a push writes the frame.
			if e.Kind != Store || e.Size != 8 || e.Base == NoReg || e.Index != NoReg {
				continue
			}
			base, v := s.Reg(e.Base), s.Reg(e.Src)
			switch {
			case base.Kind == ValueStack || v.Kind == Unknown:
			case v.Kind == ValueChoice:
				for _, c := range f.Constants(v) {
					out = append(out, Stored{i.Addr, base, e.Imm, Value{Kind: ValueConst, Off: c}})
				}
			default:
				out = append(out, Stored{i.Addr, base, e.Imm, v})
			}
		}
	})
	return out
}

// word reads a word of the image that the code loads from a constant address:
// what the loader put there, if the image tells.
func (f *Func) word(vaddr uint64) (int64, bool) {
	r, ok := f.src.(interface {
		Word(vaddr uint64) (uint64, bool)
	})
	if !ok {
		return 0, false
	}
	w, ok := r.Word(vaddr)
	return int64(w), ok
}
