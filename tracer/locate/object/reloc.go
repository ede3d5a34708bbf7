package object

import (
	"debug/elf"
	"encoding/binary"
	"fmt"
)

// Reloc is what the loader will write into one 8-byte word.
type Reloc struct {
	Symbol string // import or export by name; empty: Addend is an address of this file
	Addend uint64
}

// DT_RELR and its like are not in debug/elf (generic ABI, 2022).
const (
	dtRELRSZ elf.DynTag = 35
	dtRELR   elf.DynTag = 36
)

// maxRelocs bounds what a packed table can unfold to (libmlx5: 400).
const maxRelocs = 1 << 20

// Relocs returns the words that the loader fills with addresses, by vaddr:
// RELATIVE ones, those packed in DT_RELR, and those of symbols (JUMP_SLOT,
// GLOB_DAT and absolute words).
func (f *File) Relocs() (map[uint64]Reloc, error) {
	if f.relocs != nil {
		return f.relocs, nil
	}
	out := map[uint64]Reloc{}
	for _, t := range [][2]elf.DynTag{{elf.DT_RELA, elf.DT_RELASZ}, {elf.DT_JMPREL, elf.DT_PLTRELSZ}} {
		if err := f.rela(out, f.dyn[t[0]], f.dyn[t[1]]); err != nil {
			return nil, err
		}
	}
	if err := f.relr(out, f.dyn[dtRELR], f.dyn[dtRELRSZ]); err != nil {
		return nil, err
	}
	f.relocs = out
	return out, nil
}

// kinds of relocation that put an address into a whole word.
type relocKind uint8

const (
	relocOther relocKind = iota
	relocRelative
	relocSymbol
)

func (f *File) kind(typ uint32) relocKind {
	switch f.Arch {
	case ArchAMD64:
		switch elf.R_X86_64(typ) {
		case elf.R_X86_64_RELATIVE:
			return relocRelative
		case elf.R_X86_64_64, elf.R_X86_64_GLOB_DAT, elf.R_X86_64_JMP_SLOT:
			return relocSymbol
		}
	case ArchARM64:
		switch elf.R_AARCH64(typ) {
		case elf.R_AARCH64_RELATIVE:
			return relocRelative
		case elf.R_AARCH64_ABS64, elf.R_AARCH64_GLOB_DAT, elf.R_AARCH64_JUMP_SLOT:
			return relocSymbol
		}
	}
	return relocOther
}

func (f *File) rela(out map[uint64]Reloc, vaddr, size uint64) error {
	if vaddr == 0 || size == 0 {
		return nil
	}
	b, err := f.Bytes(vaddr, size)
	if err != nil {
		return fmt.Errorf("read relocations: %w", err)
	}
	syms, err := f.Symbols()
	if err != nil {
		return err
	}
	for ; len(b) >= 24; b = b[24:] {
		off := binary.LittleEndian.Uint64(b)
		info := binary.LittleEndian.Uint64(b[8:])
		addend := binary.LittleEndian.Uint64(b[16:])
		switch f.kind(uint32(info)) {
		case relocRelative:
			out[off] = Reloc{Addend: addend}
		case relocSymbol:
			i := info >> 32
			if i == 0 || i > uint64(len(syms)) {
				continue
			}
			// A symbol that this file defines may be another's in the end
			// (interposition), but a provider's tables name their own statics.
			if s := syms[i-1]; s.Import || s.Vaddr == 0 {
				out[off] = Reloc{Symbol: s.Name, Addend: addend}
			} else {
				out[off] = Reloc{Symbol: s.Name, Addend: s.Vaddr + addend}
			}
		}
	}
	return nil
}

// relr unpacks the relative relocations of DT_RELR: an even entry is the
// address of a word, an odd one a bitmap of the 63 words that follow the last.
// Their addends lie in the words themselves.
func (f *File) relr(out map[uint64]Reloc, vaddr, size uint64) error {
	if vaddr == 0 || size == 0 {
		return nil
	}
	b, err := f.Bytes(vaddr, size)
	if err != nil {
		return fmt.Errorf("read packed relocations: %w", err)
	}
	var where uint64
	for ; len(b) >= 8; b = b[8:] {
		entry := binary.LittleEndian.Uint64(b)
		if entry&1 == 0 {
			f.inPlace(out, entry)
			where = entry + 8
			continue
		}
		for i := uint64(0); i < 63; i++ {
			if entry>>(i+1)&1 != 0 {
				f.inPlace(out, where+i*8)
			}
		}
		if len(out) > maxRelocs {
			return fmt.Errorf("read packed relocations: more than %d", maxRelocs)
		}
		where += 63 * 8
	}
	return nil
}

func (f *File) inPlace(out map[uint64]Reloc, vaddr uint64) {
	if w, err := f.Bytes(vaddr, 8); err == nil {
		out[vaddr] = Reloc{Addend: binary.LittleEndian.Uint64(w)}
	}
}

// Word is what the loader puts into the word at vaddr, if that is an address
// of this file.
func (f *File) Word(vaddr uint64) (uint64, bool) {
	relocs, err := f.Relocs()
	if err != nil {
		return 0, false
	}
	r, ok := relocs[vaddr]
	if !ok || r.Symbol != "" && r.Addend == 0 {
		return 0, false
	}
	return r.Addend, true
}
