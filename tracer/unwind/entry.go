package unwind

import (
	"errors"
	"fmt"

	"github.com/rdmatrace/rdmatrace/tracer/image"
)

// cie is a Common Information Entry: what many functions share (DWARF 5,
// section 6.4.1, with the .eh_frame variations of the Linux Standard Base).
type cie struct {
	codeAlign  uint64
	dataAlign  int64
	returnReg  uint64
	encoding   byte // of the addresses in its FDEs
	augmented  bool // its FDEs have augmentation data
	signal     bool // its functions are signal trampolines
	initialize []byte
}

// fde is a Frame Description Entry: one function or a part of one.
type fde struct {
	begin, size uint64 // virtual addresses in the file
	program     []byte
	cie         *cie
}

// maxEntry bounds one entry; the largest seen in distributions are some KiB.
const maxEntry = 64 << 10

var (
	errCutShort = errors.New("an entry is cut short")
	errTooLarge = fmt.Errorf("an entry is longer than %d bytes", maxEntry)
	errEncoding = errors.New("a pointer encoding is not supported")
)

// record is the raw body of a CIE or FDE.
type record struct {
	body   []byte // after the length
	vaddr  uint64 // of body
	isCIE  bool
	cieVA  uint64 // of the FDE's CIE
	length uint64 // of the whole record
	end    bool   // the zero that ends the section
}

// readRecord reads the record at a virtual address.
func readRecord(f *image.File, vaddr uint64) (record, error) {
	var head [512]byte
	n, err := f.ReadVaddr(head[:], vaddr)
	if n < 4 {
		return record{}, errors.Join(errCutShort, err)
	}
	c := cursor{b: head[:n]}
	length := c.fixed(4)
	if length == 0xffffffff {
		length = c.fixed(8)
	}
	skip := uint64(c.pos)
	switch {
	case c.short:
		return record{}, errCutShort
	case length == 0:
		return record{end: true, length: skip}, nil
	case length > maxEntry:
		return record{length: skip + length}, errTooLarge
	case length < 4:
		return record{}, errCutShort
	}
	body := make([]byte, length)
	if m := copy(body, head[skip:n]); m < len(body) {
		if k, err := f.ReadVaddr(body[m:], vaddr+skip+uint64(m)); k < len(body)-m {
			return record{}, errors.Join(errCutShort, err)
		}
	}
	r := record{body: body, vaddr: vaddr + skip, length: skip + length}
	// The CIE pointer counts back from where it stands; 0 marks a CIE.
	delta := uint64(le32(body))
	r.isCIE, r.cieVA = delta == 0, r.vaddr-delta
	return r, nil
}

func le32(b []byte) uint32 {
	return uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16 | uint32(b[3])<<24
}

// parseCIE parses the body of a CIE.
func parseCIE(r record) (*cie, error) {
	if !r.isCIE {
		return nil, errors.New("an FDE names something that is no CIE")
	}
	c := cursor{b: r.body, pos: 4}
	version := c.fixed(1)
	if version != 1 && version != 3 && version != 4 {
		return nil, fmt.Errorf("CIE version %d is not supported", version)
	}
	augmentation := c.text()
	if version == 4 {
		c.next(2) // sizes of an address and of a segment selector
	}
	e := &cie{codeAlign: c.uleb(), dataAlign: c.sleb()}
	if version == 1 {
		e.returnReg = c.fixed(1)
	} else {
		e.returnReg = c.uleb()
	}
	if err := e.augment(&c, augmentation, r.vaddr); err != nil {
		return nil, err
	}
	if c.short {
		return nil, errCutShort
	}
	e.initialize = c.b[c.pos:]
	return e, nil
}

// augment parses the augmentation data that the string announces.
func (e *cie) augment(c *cursor, augmentation string, vaddr uint64) error {
	if augmentation == "" {
		return nil
	}
	if augmentation[0] != 'z' {
		return fmt.Errorf("CIE augmentation %.8q is not supported", augmentation)
	}
	e.augmented = true
	size := c.uleb()
	start := c.pos
	if size > uint64(c.left()) {
		return errCutShort
	}
	for _, letter := range augmentation[1:] {
		switch letter {
		case 'R':
			e.encoding = byte(c.fixed(1))
		case 'P': // personality routine
			enc := byte(c.fixed(1)) &^ encIndirect
			if _, ok := c.pointer(enc, vaddr, 0); !ok {
				return errEncoding
			}
		case 'L': // encoding of the language-specific data
			c.fixed(1)
		case 'S':
			e.signal = true
		case 'B', 'G': // arm64: signed with the B key; tagged stack. No data.
		default:
			return fmt.Errorf("CIE augmentation %.8q is not supported", augmentation)
		}
	}
	c.pos = start + int(size)
	return nil
}

// span parses the part of an FDE's body that says which addresses it covers.
func (e *cie) span(r record) (c cursor, begin, size uint64, err error) {
	c = cursor{b: r.body, pos: 4}
	begin, ok1 := c.pointer(e.encoding, r.vaddr, 0)
	size, ok2 := c.pointer(e.encoding&encFormat, r.vaddr, 0)
	if c.short {
		return c, 0, 0, errCutShort
	}
	if !ok1 || !ok2 {
		return c, 0, 0, errEncoding
	}
	return c, begin, size, nil
}

// parseFDE parses the body of an FDE.
func parseFDE(r record, e *cie) (*fde, error) {
	c, begin, size, err := e.span(r)
	if err != nil {
		return nil, err
	}
	if e.augmented {
		c.next(c.uleb())
	}
	if c.short {
		return nil, errCutShort
	}
	return &fde{begin: begin, size: size, program: c.b[c.pos:], cie: e}, nil
}
