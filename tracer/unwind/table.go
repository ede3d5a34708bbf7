package unwind

import (
	"cmp"
	"debug/elf"
	"errors"
	"slices"

	"github.com/rdmatrace/rdmatrace/tracer/image"
)

// Bounds on what is kept of one file.
const (
	maxCIEs = 1024
	maxScan = 1 << 20 // functions indexed where a file has no .eh_frame_hdr: 16 MiB
)

// table finds the FDE of an address of one file. Nothing of .eh_frame is read
// but the entries asked for: the sorted table of .eh_frame_hdr is searched in
// the file. A libtorch has 300,000 functions.
type table struct {
	file *image.File
	cies map[uint64]*cie
	// The table of .eh_frame_hdr (Linux Standard Base): pairs of 32-bit
	// addresses relative to the header, of a function and of its FDE.
	header, pairs, count uint64
	index                []indexEntry // instead of it
}

type indexEntry struct{ begin, fde uint64 }

var (
	errNoFDE   = errors.New("no call frame information for this address")
	errNoTable = errors.New("the file has no call frame information")
)

// newTable opens the call frame information of a file.
func newTable(f *image.File) (*table, error) {
	t := &table{file: f, cies: map[uint64]*cie{}}
	for _, p := range f.ELF.Progs {
		if p.Type == elf.PT_GNU_EH_FRAME && t.openHeader(p.Vaddr) {
			return t, nil
		}
	}
	if err := t.scan(); err != nil {
		return nil, err
	}
	return t, nil
}

// pairEncoding is the only one linkers write: relative to the header, 4 bytes.
const pairEncoding = encDataRel | encS4

// openHeader reads .eh_frame_hdr; false if it has no table that can be searched.
func (t *table) openHeader(vaddr uint64) bool {
	var b [32]byte
	n, _ := t.file.ReadVaddr(b[:], vaddr)
	c := cursor{b: b[:n]}
	version, frameEnc, countEnc, tableEnc := c.fixed(1), byte(c.fixed(1)), byte(c.fixed(1)), byte(c.fixed(1))
	if version != 1 || countEnc == encOmit || tableEnc != pairEncoding {
		return false
	}
	if frameEnc != encOmit {
		if _, ok := c.pointer(frameEnc, vaddr, vaddr); !ok {
			return false
		}
	}
	count, ok := c.pointer(countEnc, vaddr, vaddr)
	if !ok || count == 0 {
		return false
	}
	t.header, t.pairs, t.count = vaddr, vaddr+uint64(c.pos), count
	return true
}

const (
	pairSize  = 8
	pairBlock = 512 // pairs that are read at once
)

// searchHeader finds the last pair at or before pc, by reading single pairs
// until few are left, and those together.
func (t *table) searchHeader(pc uint64) (fde uint64, err error) {
	var buf [pairBlock * pairSize]byte
	at := func(i, n uint64) ([]byte, error) {
		b := buf[:n*pairSize]
		if k, err := t.file.ReadVaddr(b, t.pairs+i*pairSize); k < len(b) {
			return nil, errors.Join(errCutShort, err)
		}
		return b, nil
	}
	lo, hi := uint64(0), t.count // the pair is in [lo, hi), if there is one
	for hi-lo > pairBlock {
		mid := lo + (hi-lo)/2
		b, err := at(mid, 1)
		if err != nil {
			return 0, err
		}
		if t.address(b) <= pc {
			lo = mid
		} else {
			hi = mid
		}
	}
	b, err := at(lo, hi-lo)
	if err != nil {
		return 0, err
	}
	for ; len(b) > 0 && t.address(b) <= pc; b = b[pairSize:] {
		fde = t.address(b[4:])
	}
	if fde == 0 {
		return 0, errNoFDE
	}
	return fde, nil
}

// address of a number in the header's table.
func (t *table) address(b []byte) uint64 { return t.header + uint64(int64(int32(le32(b)))) }

// scan indexes .eh_frame by walking it.
func (t *table) scan() error {
	s := t.file.ELF.Section(".eh_frame")
	if s == nil || s.Type == elf.SHT_NOBITS || s.Size == 0 {
		return errNoTable
	}
	for at := s.Addr; at < s.Addr+s.Size && len(t.index) < maxScan; {
		r, err := readRecord(t.file, at)
		if err != nil && !errors.Is(err, errTooLarge) {
			break // what came before is still good
		}
		if err == nil && !r.end && !r.isCIE {
			if e, err := t.cie(r.cieVA); err == nil {
				if _, begin, size, err := e.span(r); err == nil && size > 0 {
					t.index = append(t.index, indexEntry{begin, at})
				}
			}
		}
		at += r.length
	}
	if len(t.index) == 0 {
		return errNoTable
	}
	slices.SortFunc(t.index, func(a, b indexEntry) int { return cmp.Compare(a.begin, b.begin) })
	return nil
}

// searchIndex finds the last entry at or before pc.
func (t *table) searchIndex(pc uint64) (uint64, error) {
	i, found := slices.BinarySearchFunc(t.index, pc, func(e indexEntry, pc uint64) int {
		return cmp.Compare(e.begin, pc)
	})
	if !found {
		i--
	}
	if i < 0 {
		return 0, errNoFDE
	}
	return t.index[i].fde, nil
}

// cie returns the CIE at an address.
func (t *table) cie(vaddr uint64) (*cie, error) {
	if e, ok := t.cies[vaddr]; ok {
		return e, nil
	}
	r, err := readRecord(t.file, vaddr)
	if err != nil {
		return nil, err
	}
	e, err := parseCIE(r)
	if err != nil {
		return nil, err
	}
	if len(t.cies) == maxCIEs {
		clear(t.cies)
	}
	t.cies[vaddr] = e
	return e, nil
}

// find returns the FDE that covers a virtual address of the file; errNoFDE if
// none does.
func (t *table) find(pc uint64) (*fde, error) {
	search := t.searchHeader
	if t.index != nil {
		search = t.searchIndex
	}
	at, err := search(pc)
	if err != nil {
		return nil, err
	}
	r, err := readRecord(t.file, at)
	if err != nil {
		return nil, err
	}
	if r.end || r.isCIE {
		return nil, errors.New("the header's table names something that is no FDE")
	}
	e, err := t.cie(r.cieVA)
	if err != nil {
		return nil, err
	}
	f, err := parseFDE(r, e)
	if err != nil {
		return nil, err
	}
	if pc-f.begin >= f.size {
		return nil, errNoFDE
	}
	return f, nil
}
