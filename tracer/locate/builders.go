package locate

import (
	"cmp"
	"encoding/binary"
	"slices"

	"github.com/rdmatrace/rdmatrace/tracer/locate/code"
	"github.com/rdmatrace/rdmatrace/tracer/locate/object"
)

// builder is a function that the provider's code puts into a member of an
// ibv_qp_ex or ibv_cq_ex.
type builder struct {
	verb  Verb
	vaddr uint64
}

// stored is a function's address that the code of a function stores.
type stored struct {
	by    uint64 // the function that stores
	disp  int64  // into the structure it was given, or from the register
	vaddr uint64 // what
}

// builders finds the functions behind ibv_wr_* and ibv_start_poll that the
// provider's code, not its data, names: create_qp_ex stores their addresses
// one by one into the new QP.
func builders(im *object.File) ([]builder, error) {
	stores, err := functionStores(im)
	if err != nil {
		return nil, err
	}
	l := layoutOf(im.Arch)
	byFunc := map[uint64]filled{}
	for _, s := range stores {
		if byFunc[s.by] == nil {
			byFunc[s.by] = filled{}
		}
		if !slices.Contains(byFunc[s.by][s.disp], s.vaddr) {
			byFunc[s.by][s.disp] = append(byFunc[s.by][s.disp], s.vaddr)
		}
	}
	out := meaning(byFunc, structure{l.qpEx, []Verb{WRStart, WRComplete, WRAbort}, l.qpSize, 24, WRComplete, 64})
	out = append(out, meaning(byFunc, structure{l.cqEx, []Verb{StartPoll, NextPoll, EndPoll}, l.cqSize, 16, VerbNone, 0})...)
	slices.SortFunc(out, func(a, b builder) int {
		return cmp.Or(cmp.Compare(a.verb, b.verb), cmp.Compare(a.vaddr, b.vaddr))
	})
	return slices.Compact(out), nil
}

// structure is what makes ibv_qp_ex and ibv_cq_ex known by the stores into it.
type structure struct {
	members map[Verb]int64
	// key are members that one function fills together, each with one
	// function whatever the type of the QP.
	key []Verb
	// plain are the bytes at base that hold no function: comp_mask, wr_id and
	// wr_flags of a QP; comp_mask, status and wr_id of a CQ.
	base, plain uint64
	// alone is the member that may be stored by itself: libmlx5 has another
	// wr_complete until the QP is ready to send.
	alone Verb
	// maxShift is how far from the beginning of its own structure a provider
	// may keep it: libmlx5 has the ibv_qp at 8, all others at 0. Every one
	// begins with the ibv_cq, whose further members (read_opcode ...) would
	// look like the first three at another place.
	maxShift int64
}

// meaning gives verbs to stores, if they tell one place of the structure. The
// functions that it understood are taken out of byFunc.
func meaning(byFunc map[uint64]filled, st structure) []builder {
	var shifts []int64
	for shift := int64(0); shift <= st.maxShift; shift += 8 {
		for _, at := range byFunc {
			if at.is(st, shift) {
				shifts = append(shifts, shift)
				break
			}
		}
	}
	if len(shifts) != 1 {
		return nil
	}
	var out []builder
	for fn, at := range byFunc {
		if got := at.members(st, shifts[0]); len(got) > 0 {
			out = append(out, got...)
			delete(byFunc, fn)
		}
	}
	return out
}

// filled are the functions that one function stores, by displacement.
type filled map[int64][]uint64

// is says whether the function fills in the structure at shift.
func (at filled) is(st structure, shift int64) bool {
	var seen []uint64
	for _, v := range st.key {
		a := at[st.members[v]+shift]
		if len(a) != 1 || slices.Contains(seen, a[0]) {
			return false
		}
		seen = append(seen, a[0])
	}
	for off := uint64(0); off < st.plain; off += 8 {
		if len(at[int64(st.base+off)+shift]) > 0 {
			return false
		}
	}
	return true
}

// members gives verbs to the stores of a function that fills in several
// members, or only the one that may be alone.
func (at filled) members(st structure, shift int64) []builder {
	var got []builder
	n := 0
	for v, off := range st.members {
		a := at[off+shift]
		if len(a) > 0 {
			n++
		}
		for _, f := range a {
			got = append(got, builder{v, f})
		}
	}
	for off := uint64(0); off < st.plain; off += 8 {
		if len(at[int64(st.base+off)+shift]) > 0 {
			return nil // some other structure
		}
	}
	alone := st.alone != VerbNone && len(at) == 1 && len(at[st.members[st.alone]+shift]) > 0
	if n >= len(st.key) || alone {
		return got
	}
	return nil
}

// functionStores finds the stores of functions' addresses in the whole file.
func functionStores(im *object.File) ([]stored, error) {
	m, err := machine(im)
	if err != nil {
		return nil, err
	}
	frames, err := im.Frames()
	if err != nil {
		return nil, err
	}
	begins := make(map[uint64]bool, len(frames))
	for _, f := range frames {
		begins[f.Begin] = true
	}
	var out []stored
	for _, frame := range frames {
		b, err := im.Bytes(frame.Begin, frame.End-frame.Begin)
		if err != nil || !namesFunction(im.Arch, b, frame.Begin, begins) {
			continue
		}
		f, err := code.Follow(m, im, frame.Begin, frame.End)
		if err != nil {
			continue // its builders are found on live queue pairs
		}
		for _, s := range f.Stores() {
			if s.Value.Kind != code.ValueConst || !begins[uint64(s.Value.Off)] {
				continue
			}
			disp := s.Disp
			if s.Base.Kind == code.ValueArg || s.Base.Kind == code.ValueLoaded || s.Base.Kind == code.ValueOther {
				disp += s.Base.Off
			}
			out = append(out, stored{frame.Begin, disp, uint64(s.Value.Off)})
		}
	}
	return out, nil
}

// namesFunction says whether the bytes may hold the address of a function: a
// cheap sieve before they are followed.
func namesFunction(a object.Arch, b []byte, at uint64, begins map[uint64]bool) bool {
	if a == object.ArchARM64 {
		return namesFunctionARM64(b, at, begins)
	}
	for i := 0; i+6 <= len(b); i++ {
		if b[i] == 0x8d && b[i+1]&0xc7 == 0x05 && begins[relative(b, i+2, at)] { // lea disp32(%rip)
			return true
		}
	}
	return false
}

// namesFunctionARM64 looks for adr, or adrp and an add to its register.
func namesFunctionARM64(b []byte, at uint64, begins map[uint64]bool) bool {
	var page [32]uint64
	for i := 0; i+4 <= len(b); i += 4 {
		w := binary.LittleEndian.Uint32(b[i:])
		rel := uint64(int64(int32(w>>5<<13)>>13)<<2) | uint64(w>>29&3)
		switch {
		case w&0x9f000000 == 0x10000000:
			if begins[at+uint64(i)+rel] {
				return true
			}
		case w&0x9f000000 == 0x90000000:
			page[w&31] = (at+uint64(i))&^0xfff + rel<<12
		case w&0xffc00000 == 0x91000000:
			if begins[page[w>>5&31]+uint64(w>>10&0xfff)] {
				return true
			}
		}
	}
	return false
}
