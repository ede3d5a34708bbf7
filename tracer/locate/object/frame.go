package object

import (
	"cmp"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sort"
)

// Frame is the range of one frame description entry of .eh_frame: a function,
// or a part of one that the compiler put elsewhere (".cold"). Begin is certain
// to be the beginning of an instruction.
type Frame = Range

// DWARF pointer encodings (LSB core specification, "DWARF Exception Header
// Encoding").
const (
	ehAbsptr = 0x00
	ehUdata2 = 0x02
	ehUdata4 = 0x03
	ehUdata8 = 0x04
	ehSdata2 = 0x0a
	ehSdata4 = 0x0b
	ehSdata8 = 0x0c
	ehPcrel  = 0x10
	ehOmit   = 0xff
)

var errFrame = errors.New("broken .eh_frame")

// Frames returns the ranges that .eh_frame describes, ordered by Begin. A file
// without .eh_frame has none.
func (f *File) Frames() ([]Frame, error) {
	if f.frames != nil {
		return f.frames, nil
	}
	sec := f.elf.Section(".eh_frame")
	if sec == nil || sec.Type == elf.SHT_NOBITS {
		f.frames = []Frame{}
		return f.frames, nil
	}
	b, err := f.fileBytes(sec.Offset, sec.FileSize)
	if err != nil {
		return nil, fmt.Errorf("read .eh_frame: %w", err)
	}
	frames := []Frame{}
	cies := map[uint64]byte{} // offset in section: encoding of its FDEs' addresses
	for off := uint64(0); off+4 <= uint64(len(b)); {
		n := uint64(binary.LittleEndian.Uint32(b[off:]))
		if n == 0 {
			break
		}
		body := off + 4
		if n == 0xffffffff || n < 4 || n > uint64(len(b))-body {
			return nil, fmt.Errorf("%w: entry at %#x", errFrame, off)
		}
		entry := b[body : body+n]
		if id := uint64(binary.LittleEndian.Uint32(entry)); id == 0 {
			cies[off] = cieEncoding(entry[4:])
		} else if enc, ok := cies[body-id]; ok {
			fr, ok := fde(entry[4:], enc, sec.Addr+body+4)
			if ok && fr.Begin != 0 && fr.End > fr.Begin {
				frames = append(frames, fr)
			}
		}
		off = body + n
	}
	slices.SortFunc(frames, func(a, b Frame) int { return cmp.Compare(a.Begin, b.Begin) })
	f.frames = slices.CompactFunc(frames, func(a, b Frame) bool { return a.Begin == b.Begin })
	return f.frames, nil
}

// FrameAt finds the frame that holds vaddr.
func (f *File) FrameAt(vaddr uint64) (Frame, bool) {
	frames, err := f.Frames()
	if err != nil {
		return Frame{}, false
	}
	i := sort.Search(len(frames), func(i int) bool { return frames[i].Begin > vaddr })
	if i == 0 || !frames[i-1].Has(vaddr) {
		return Frame{}, false
	}
	return frames[i-1], true
}

// cieEncoding returns how a common information entry's FDEs encode addresses.
func cieEncoding(b []byte) byte {
	if len(b) < 2 {
		return ehOmit
	}
	version := b[0]
	end := slices.Index(b[1:], 0)
	if end < 0 {
		return ehOmit
	}
	aug := string(b[1 : 1+end])
	b = b[1+end+1:]
	if aug == "" {
		return ehAbsptr
	}
	if aug[0] != 'z' {
		return ehOmit
	}
	_, b = uleb(b) // code alignment
	_, b = uleb(b) // data alignment: signed, the same length
	if version == 1 {
		b = skip(b, 1) // return address register
	} else {
		_, b = uleb(b)
	}
	_, b = uleb(b) // augmentation length
	for _, c := range aug[1:] {
		switch c {
		case 'R':
			if len(b) == 0 {
				return ehOmit
			}
			return b[0]
		case 'P':
			if len(b) == 0 {
				return ehOmit
			}
			n := width(b[0])
			if n == 0 {
				return ehOmit
			}
			b = skip(b, 1+n)
		case 'L':
			b = skip(b, 1)
		case 'S', 'B', 'G':
		default:
			return ehOmit
		}
	}
	return ehAbsptr
}

// fde reads the range of a frame description entry; at is its vaddr.
func fde(b []byte, enc byte, at uint64) (Frame, bool) {
	n := width(enc)
	if n == 0 || len(b) < 2*n || enc&0x70 != 0 && enc&0x70 != ehPcrel || enc&0x80 != 0 {
		return Frame{}, false
	}
	begin := value(b[:n], enc)
	if enc&0x70 == ehPcrel {
		begin += at
	}
	// The length has the same width, but is never relative or signed.
	length := value(b[n:2*n], enc&0x07)
	if begin+length < begin {
		return Frame{}, false
	}
	return Frame{begin, begin + length}, true
}

func width(enc byte) int {
	switch enc & 0x0f {
	case ehAbsptr, ehUdata8, ehSdata8:
		return 8
	case ehUdata4, ehSdata4:
		return 4
	case ehUdata2, ehSdata2:
		return 2
	}
	return 0
}

func value(b []byte, enc byte) uint64 {
	switch enc & 0x0f {
	case ehUdata2:
		return uint64(binary.LittleEndian.Uint16(b))
	case ehSdata2:
		return uint64(int16(binary.LittleEndian.Uint16(b)))
	case ehUdata4:
		return uint64(binary.LittleEndian.Uint32(b))
	case ehSdata4:
		return uint64(int32(binary.LittleEndian.Uint32(b)))
	}
	return binary.LittleEndian.Uint64(b)
}

func uleb(b []byte) (uint64, []byte) {
	var v uint64
	for i := 0; i < len(b); i++ {
		if i < 9 {
			v |= uint64(b[i]&0x7f) << (7 * i)
		}
		if b[i]&0x80 == 0 {
			return v, b[i+1:]
		}
	}
	return 0, nil
}

func skip(b []byte, n int) []byte {
	if n > len(b) {
		return nil
	}
	return b[n:]
}
