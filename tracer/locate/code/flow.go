package code

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
)

// Source gives the bytes of an image by address, before relocation.
type Source interface {
	Bytes(vaddr, n uint64) ([]byte, error)
}

// Func is a function whose code was followed from its entry.
type Func struct {
	Begin, End uint64
	// Insts are the instructions reached, by address.
	Insts map[uint64]*Inst
	// Unresolved are indirect jumps whose targets are not known: code may
	// have been missed.
	Unresolved []uint64
	// Undecoded are addresses whose instruction is not known.
	Undecoded []uint64

	m    Machine
	src  Source
	code []byte
	// leaders are the first instructions of straight pieces of code, with
	// what is known before them; nil until the piece is reached.
	leaders map[uint64]*State
	choices choices
	scratch State
}

// maxInsts bounds how much of one function is followed; libmlx5's largest has
// 4,000 instructions.
const maxInsts = 50_000

// maxRounds bounds how often a jump table may lead to another.
const maxRounds = 256

// Follow decodes the function in [begin, end) from its entry on, and works out
// what each register holds at each instruction.
func Follow(m Machine, src Source, begin, end uint64) (*Func, error) {
	b, err := src.Bytes(begin, end-begin)
	if err != nil {
		return nil, err
	}
	f := &Func{Begin: begin, End: end, m: m, src: src, code: b,
		Insts: map[uint64]*Inst{}, leaders: map[uint64]*State{}}
	targets := []uint64{begin}
	// Each jump table that is resolved may show code not seen before.
	for round := 0; len(targets) > 0; round++ {
		if round == maxRounds {
			return nil, fmt.Errorf("follow the function at %#x: more than %d rounds of jump tables", begin, maxRounds)
		}
		f.discover(targets)
		targets = f.propagate()
	}
	return f, nil
}

// discover decodes what can be reached from the given addresses by direct
// jumps, and makes the targets of those leaders.
func (f *Func) discover(work []uint64) {
	for len(work) > 0 {
		addr := work[len(work)-1]
		work = work[:len(work)-1]
		if _, seen := f.leaders[addr]; seen {
			continue
		}
		f.leaders[addr] = nil
		for {
			i, ok := f.inst(addr)
			if !ok {
				break
			}
			if (i.Flow == Jump || i.Flow == Branch) && f.has(i.Target) {
				work = append(work, i.Target)
			}
			if !i.falls() || !f.has(i.End()) {
				break
			}
			addr = i.End()
		}
	}
}

func (f *Func) has(addr uint64) bool { return addr >= f.Begin && addr < f.End }

// falls says whether control may go on behind the instruction.
func (i *Inst) falls() bool { return i.Flow == Next || i.Flow == Branch || i.Flow == Call }

func (f *Func) inst(addr uint64) (*Inst, bool) {
	if i, ok := f.Insts[addr]; ok {
		return i, true
	}
	if len(f.Insts) >= maxInsts {
		return nil, false
	}
	i, err := f.m.Decode(f.code[addr-f.Begin:], addr)
	if err != nil || i.Len == 0 {
		return nil, false
	}
	f.Insts[addr] = &i
	return &i, true
}

// propagate carries states along the edges of control flow until nothing
// changes; a value only goes from known to less known, so it ends. It returns
// targets of jump tables that are no leaders yet, having found any.
func (f *Func) propagate() []uint64 {
	for l := range f.leaders {
		f.leaders[l] = nil
	}
	f.leaders[f.Begin] = entryState(f.m)
	unresolved, undecoded := map[uint64]bool{}, map[uint64]bool{}
	work := []uint64{f.Begin}
	var fresh []uint64
	for len(work) > 0 {
		addr := work[len(work)-1]
		work = work[:len(work)-1]
		s := &f.scratch
		s.set(f.leaders[addr])
		to := func(target uint64) {
			if f.has(target) && f.merge(target, s) {
				work = append(work, target)
			}
		}
		last := f.walk(addr, s, nil)
		if last == nil {
			undecoded[addr] = true
			continue
		}
		switch last.Flow {
		case Jump:
			to(last.Target)
		case Branch:
			to(last.Target)
			to(last.End())
		case Next, Call:
			if _, leads := f.leaders[last.End()]; leads || !f.has(last.End()) {
				to(last.End())
			} else {
				undecoded[last.End()] = true
			}
		case Indirect:
			targets, known := f.table(s.Reg(last.Via), s.bound)
			if !known {
				unresolved[last.Addr] = true
			}
			for _, t := range targets {
				if _, leads := f.leaders[t]; !leads {
					fresh = append(fresh, t)
				} else {
					to(t)
				}
			}
		}
	}
	f.Unresolved, f.Undecoded = slices.Sorted(maps.Keys(unresolved)), slices.Sorted(maps.Keys(undecoded))
	return fresh
}

// walk applies the instructions from leader addr to the end of its straight
// piece to s, calling each (unless nil) before; it returns the last one.
func (f *Func) walk(addr uint64, s *State, each func(*Inst, *State)) *Inst {
	var last *Inst
	for {
		i, ok := f.Insts[addr]
		if !ok {
			return last
		}
		if each != nil {
			each(i, s)
		}
		s.apply(i, f)
		last = i
		if i.Flow == Call {
			s.call(f.m)
		}
		addr = i.End()
		if _, leads := f.leaders[addr]; leads || !i.falls() || i.Flow == Branch {
			return last
		}
	}
}

// Each calls fn for every instruction that is reached with what is known
// before it, in the order of addresses. The State is good for the call only.
func (f *Func) Each(fn func(*Inst, *State)) {
	for _, l := range slices.Sorted(maps.Keys(f.leaders)) {
		if s := f.leaders[l]; s != nil {
			f.scratch.set(s)
			f.walk(l, &f.scratch, fn)
		}
	}
}

// merge joins s into the state before leader addr, and says whether that
// changed.
func (f *Func) merge(addr uint64, s *State) bool {
	old := f.leaders[addr]
	if old == nil {
		f.leaders[addr] = s.Clone()
		return true
	}
	return old.join(s, f)
}

// maxCases bounds a jump table whose size no comparison told.
const maxCases = 1024

// table reads the targets of a jump table: entries relative to a base, as
// position-independent code has them.
func (f *Func) table(v Value, bound int64) ([]uint64, bool) {
	if v.Kind != ValueCase || v.Size == 0 {
		return nil, false
	}
	cases := int64(maxCases)
	if bound >= 0 && bound < maxCases {
		cases = bound + 1
	}
	var out []uint64
	for n := int64(0); n < cases; n++ {
		b, err := f.src.Bytes(uint64(v.Table)+uint64(n)*uint64(v.Size), uint64(v.Size))
		if err != nil {
			break
		}
		target := uint64(v.Off) + uint64(entry(b, v.Signed)<<v.Shift)
		if target < f.Begin || target >= f.End {
			if bound >= 0 {
				continue // the compiler may fill holes with a jump elsewhere
			}
			break
		}
		out = append(out, target)
	}
	return out, len(out) > 0
}

func entry(b []byte, signed bool) int64 {
	switch len(b) {
	case 1:
		if signed {
			return int64(int8(b[0]))
		}
		return int64(b[0])
	case 2:
		v := binary.LittleEndian.Uint16(b)
		if signed {
			return int64(int16(v))
		}
		return int64(v)
	case 4:
		v := binary.LittleEndian.Uint32(b)
		if signed {
			return int64(int32(v))
		}
		return int64(v)
	}
	return int64(binary.LittleEndian.Uint64(b))
}
