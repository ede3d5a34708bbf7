package pollpath

import (
	"debug/elf"

	"github.com/rdmatrace/rdmatrace/tracer/locate/object"
)

// Image is code to be analysed, by virtual address.
type Image struct {
	Machine elf.Machine
	// Code gives the bytes at an address: at least one and at most n of them, or
	// none where nothing is mapped.
	Code func(addr uint64, n int) []byte
	// Extent gives the piece of code that addr is in, as .eh_frame describes it: a
	// function, or a part of one that the compiler put elsewhere (".cold"). Not ok:
	// none is known there.
	Extent func(addr uint64) (begin, end uint64, ok bool)
}

// ImageOf is that of a library, or a program.
func ImageOf(f *object.File) Image {
	im := Image{
		Code: func(addr uint64, n int) []byte {
			b, err := f.Rest(addr, uint64(n))
			if err != nil {
				return nil
			}
			return b
		},
		Extent: func(addr uint64) (begin, end uint64, ok bool) {
			frame, ok := f.FrameAt(addr)
			return frame.Begin, frame.End, ok
		},
	}
	switch f.Arch {
	case object.ArchAMD64:
		im.Machine = elf.EM_X86_64
	case object.ArchARM64:
		im.Machine = elf.EM_AARCH64
	}
	return im
}
