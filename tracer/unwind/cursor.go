package unwind

import "encoding/binary"

// cursor reads little-endian DWARF from bytes. Reading past the end sets short
// and gives zero, so that a parser checks once.
type cursor struct {
	b     []byte
	pos   int
	short bool
}

// left is how many bytes follow.
func (c *cursor) left() int { return len(c.b) - c.pos }

// next takes n bytes.
func (c *cursor) next(n uint64) []byte {
	if n > uint64(c.left()) {
		c.short = true
		c.pos = len(c.b)
		return nil
	}
	b := c.b[c.pos : c.pos+int(n)]
	c.pos += int(n)
	return b
}

// fixed takes a fixed-size unsigned number of 1, 2, 4 or 8 bytes.
func (c *cursor) fixed(size uint64) uint64 {
	b := c.next(size)
	if b == nil {
		return 0
	}
	switch size {
	case 1:
		return uint64(b[0])
	case 2:
		return uint64(binary.LittleEndian.Uint16(b))
	case 4:
		return uint64(binary.LittleEndian.Uint32(b))
	}
	return binary.LittleEndian.Uint64(b)
}

// signed is fixed with its sign extended.
func (c *cursor) signed(size uint64) int64 {
	shift := 64 - 8*size
	return int64(c.fixed(size)<<shift) >> shift
}

// uleb takes a ULEB128; bits beyond 64 are lost.
func (c *cursor) uleb() uint64 {
	v, _ := c.leb()
	return v
}

// sleb takes an SLEB128; bits beyond 64 are lost.
func (c *cursor) sleb() int64 {
	v, bits := c.leb()
	if bits < 64 && bits > 0 && v>>(bits-1)&1 != 0 {
		v |= ^uint64(0) << bits
	}
	return int64(v)
}

// leb takes a LEB128 and says how many bits it had.
func (c *cursor) leb() (v uint64, bits uint) {
	for {
		b := c.next(1)
		if b == nil {
			return 0, 0
		}
		if bits < 64 {
			v |= uint64(b[0]&0x7f) << bits
		}
		bits += 7
		if b[0]&0x80 == 0 {
			return v, bits
		}
	}
}

// text takes a NUL-terminated string.
func (c *cursor) text() string {
	for i, b := range c.b[c.pos:] {
		if b == 0 {
			s := string(c.b[c.pos : c.pos+i])
			c.pos += i + 1
			return s
		}
	}
	c.short = true
	c.pos = len(c.b)
	return ""
}

// Pointer encodings (Linux Standard Base, DWARF Extensions): the low four bits
// are the format, the next three what the value is relative to.
const (
	encAbsolute = 0x00
	encULEB     = 0x01
	encU2       = 0x02
	encU4       = 0x03
	encU8       = 0x04
	encSLEB     = 0x09
	encS2       = 0x0a
	encS4       = 0x0b
	encS8       = 0x0c
	encFormat   = 0x0f
	encPCRel    = 0x10
	encDataRel  = 0x30
	encBase     = 0x70
	encIndirect = 0x80
	encOmit     = 0xff
)

// pointer takes an encoded pointer. addr is the virtual address of the cursor's
// first byte, data that of the section a data-relative value counts from. ok is
// false for encodings that no compiler uses there.
func (c *cursor) pointer(enc byte, addr, data uint64) (v uint64, ok bool) {
	here := addr + uint64(c.pos)
	switch enc & encFormat {
	case encAbsolute, encU8, encS8:
		v = c.fixed(8)
	case encULEB:
		v = c.uleb()
	case encU2:
		v = c.fixed(2)
	case encU4:
		v = c.fixed(4)
	case encSLEB:
		v = uint64(c.sleb())
	case encS2:
		v = uint64(c.signed(2))
	case encS4:
		v = uint64(c.signed(4))
	default:
		return 0, false
	}
	switch enc & encBase {
	case 0:
	case encPCRel:
		v += here
	case encDataRel:
		v += data
	default:
		return 0, false
	}
	return v, !c.short
}
