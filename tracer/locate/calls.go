package locate

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/rdmatrace/rdmatrace/tracer/locate/code"
	"github.com/rdmatrace/rdmatrace/tracer/locate/object"
)

// call is one place that calls a function, with what is known there.
type call struct {
	addr  uint64
	fn    *code.Func
	args  []code.Reg
	state *code.State
}

func (c call) arg(i int) code.Value { return c.state.Reg(c.args[i]) }

// callsTo finds the calls (and tail calls) of the named function, which the
// file may import or define. A search of the bytes proposes functions to
// follow; only instructions reached from a function's entry count.
func callsTo(im *object.File, name string) ([]call, error) {
	m, err := machine(im)
	if err != nil {
		return nil, err
	}
	dest, err := destinations(im, name)
	if err != nil {
		return nil, err
	}
	frames, err := im.Frames()
	if err != nil {
		return nil, err
	}
	if len(frames) == 0 {
		return nil, fmt.Errorf("find calls of %s: the file has no .eh_frame to tell where functions begin", name)
	}
	var calls []call
	var done []uint64
	for _, site := range dest.sites(im) {
		frame, ok := im.FrameAt(site)
		if !ok || slices.Contains(done, frame.Begin) {
			continue
		}
		done = append(done, frame.Begin)
		f, err := code.Follow(m, im, frame.Begin, frame.End)
		if err != nil {
			return nil, fmt.Errorf("follow the function at %#x: %w", frame.Begin, err)
		}
		f.Each(func(i *code.Inst, s *code.State) {
			if (i.Flow == code.Call || i.Flow == code.Jump) && dest.is(i) {
				calls = append(calls, call{i.Addr, f, m.Args(), s.Clone()})
			}
		})
	}
	return calls, nil
}

// destination is everything through which a function may be called: its own
// address, the linkage stubs for it, and the words that hold its address.
type destination struct {
	addrs map[uint64]bool
	slots map[uint64]bool
	stubs map[uint64]bool // the jumps of the linkage stubs: not calls themselves
}

func (d destination) is(i *code.Inst) bool {
	return i.Target != 0 && d.addrs[i.Target] || i.Slot != 0 && d.slots[i.Slot]
}

func destinations(im *object.File, name string) (destination, error) {
	d := destination{map[uint64]bool{}, map[uint64]bool{}, map[uint64]bool{}}
	if s, err := im.Export(name); err == nil {
		d.addrs[s.Vaddr] = true
	}
	relocs, err := im.Relocs()
	if err != nil {
		return d, err
	}
	for at, r := range relocs {
		if r.Symbol == name {
			d.slots[at] = true
		}
	}
	eachCode(im, func(b []byte, at uint64) {
		if im.Arch == object.ArchARM64 {
			d.arm64Stubs(b, at)
		} else {
			d.amd64Stubs(b, at)
		}
	})
	return d, nil
}

// eachCode calls fn with the bytes of every executable segment.
func eachCode(im *object.File, fn func(b []byte, at uint64)) {
	for _, r := range im.Code() {
		if b, err := im.Bytes(r.Begin, r.End-r.Begin); err == nil {
			fn(b, r.Begin)
		}
	}
}

// amd64Stubs finds "jmp *slot(%rip)", with the endbr64 or the bnd prefix that
// may stand before it.
func (d destination) amd64Stubs(b []byte, at uint64) {
	for i := 0; i+6 <= len(b); i++ {
		if b[i] != 0xff || b[i+1] != 0x25 || !d.slots[relative(b, i+2, at)] {
			continue
		}
		start := i
		if start >= 1 && b[start-1] == 0xf2 {
			start--
		}
		if start >= 4 && [4]byte(b[start-4:start]) == [4]byte{0xf3, 0x0f, 0x1e, 0xfa} {
			start -= 4
		}
		d.addrs[at+uint64(start)] = true
		d.stubs[at+uint64(i)] = true
	}
}

// arm64Stubs finds "adrp x16, page; ldr x17, [x16, #offset]", with the bti
// that may stand before it.
func (d destination) arm64Stubs(b []byte, at uint64) {
	for i := 0; i+8 <= len(b); i += 4 {
		first, second := binary.LittleEndian.Uint32(b[i:]), binary.LittleEndian.Uint32(b[i+4:])
		if first&0x9f00001f != 0x90000010 || second&0xffc003ff != 0xf9400211 {
			continue
		}
		page := int64(int32(first>>5&0x7ffff<<13)>>13)<<2 | int64(first>>29&3)
		slot := (at+uint64(i))&^0xfff + uint64(page<<12) + uint64(second>>10&0xfff)*8
		if !d.slots[slot] {
			continue
		}
		start := i
		const btiC = 0xd503245f
		if i >= 4 && binary.LittleEndian.Uint32(b[i-4:]) == btiC {
			start -= 4
		}
		d.addrs[at+uint64(start)] = true
	}
}

// relative is the address that the 4 bytes at b[i], the last of their
// instruction, name.
func relative(b []byte, i int, at uint64) uint64 {
	return at + uint64(i) + 4 + uint64(int64(int32(binary.LittleEndian.Uint32(b[i:]))))
}

// sites are addresses whose bytes look like a call of the destination.
func (d destination) sites(im *object.File) []uint64 {
	var out []uint64
	eachCode(im, func(b []byte, at uint64) {
		if im.Arch == object.ArchARM64 {
			for i := 0; i+4 <= len(b); i += 4 {
				w := binary.LittleEndian.Uint32(b[i:])
				rel := uint64(int64(int32(w<<6)>>6) << 2)
				if w&0x7c000000 == 0x14000000 && d.addrs[at+uint64(i)+rel] {
					out = append(out, at+uint64(i))
				}
			}
			return
		}
		for i := 0; i+6 <= len(b); i++ {
			switch {
			case (b[i] == 0xe8 || b[i] == 0xe9) && d.addrs[relative(b, i+1, at)],
				b[i] == 0xff && (b[i+1] == 0x15 || b[i+1] == 0x25) && d.slots[relative(b, i+2, at)] && !d.stubs[at+uint64(i)]:
				out = append(out, at+uint64(i))
			}
		}
	})
	return out
}
