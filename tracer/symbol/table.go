package symbol

import (
	"cmp"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"io"
	"slices"
	"strings"
)

// entry is one function symbol in 16 bytes: tables of a million are met, so
// the names stay in the file.
type entry struct {
	key  uint64 // address<<rankBits | rank
	size uint32 // bytes, at most 4 GiB; 0: unknown
	name uint32 // offset in the string table
}

const rankBits = 3

func (e entry) addr() uint64 { return e.key >> rankBits }

// Ranks of symbols at one address: the lowest is preferred.
const (
	rankGlobal = iota
	rankWeak
	rankLocal
	rankUnsized
	rankUntyped
)

// table is the function symbols of one symbol table section, by address.
type table struct {
	entries []entry
	names   io.ReaderAt
	limit   uint64 // size of the string table
}

const (
	symbolSize = 24   // Elf64_Sym
	chunk      = 2048 // symbols read at once
)

// readTable reads the function symbols of a section; nil if it has none. What
// it keeps is taken from the budget.
func readTable(e *elf.File, typ elf.SectionType, left *budget) (*table, error) {
	s := e.SectionByType(typ)
	if s == nil || s.Size < symbolSize || uint64(s.Link) >= uint64(len(e.Sections)) {
		return nil, nil
	}
	names := e.Sections[s.Link]
	if s.Flags&elf.SHF_COMPRESSED != 0 || names.Flags&elf.SHF_COMPRESSED != 0 {
		return nil, fmt.Errorf("section %s is compressed", s.Name)
	}
	t := &table{names: names, limit: names.Size}
	full := false
	var buf [chunk * symbolSize]byte
	for at := int64(0); at < int64(s.Size); {
		n, err := s.ReadAt(buf[:min(int64(len(buf)), int64(s.Size)-at)], at)
		for b := buf[:n]; len(b) >= symbolSize; b = b[symbolSize:] {
			en, ok := parseSymbol(b, e)
			if !ok {
				continue
			}
			if full = left.symbols == 0; full {
				break
			}
			left.symbols--
			t.entries = append(t.entries, en)
		}
		at += int64(n)
		if err != nil || n < symbolSize || full {
			break // a file cut short keeps what it has
		}
	}
	if len(t.entries) == 0 {
		return nil, nil
	}
	t.entries = slices.Clip(t.entries)
	slices.SortFunc(t.entries, func(a, b entry) int { return cmp.Compare(a.key, b.key) })
	if full {
		return t, fmt.Errorf("section %s: no more symbols are read, memory is bounded", s.Name)
	}
	return t, nil
}

// parseSymbol parses an Elf64_Sym (elf(5)); ok if it is a function's.
func parseSymbol(b []byte, e *elf.File) (en entry, ok bool) {
	name := binary.LittleEndian.Uint32(b)
	info, section := b[4], elf.SectionIndex(binary.LittleEndian.Uint16(b[6:]))
	value, size := binary.LittleEndian.Uint64(b[8:]), binary.LittleEndian.Uint64(b[16:])
	if name == 0 || value == 0 || value >= 1<<(64-rankBits) || section == elf.SHN_UNDEF {
		return entry{}, false
	}
	rank, ok := rankOf(elf.ST_TYPE(info), elf.ST_BIND(info), size, section, e)
	return entry{key: value<<rankBits | rank, size: uint32(min(size, 1<<32-1)), name: name}, ok
}

func rankOf(typ elf.SymType, bind elf.SymBind, size uint64, section elf.SectionIndex, e *elf.File) (uint64, bool) {
	switch {
	case typ == elf.STT_NOTYPE:
		// Hand-written assembly; local ones are labels inside functions and
		// arm64's mapping symbols.
		code := int(section) < len(e.Sections) && e.Sections[section].Flags&elf.SHF_EXECINSTR != 0
		return rankUntyped, code && bind != elf.STB_LOCAL
	case typ != elf.STT_FUNC && typ != elf.STT_GNU_IFUNC:
		return 0, false
	case size == 0:
		return rankUnsized, true
	case bind == elf.STB_LOCAL:
		return rankLocal, true
	case bind == elf.STB_WEAK:
		return rankWeak, true
	}
	return rankGlobal, true
}

// Bounds of a look-up: functions that lie inside others, and aliases.
const (
	maxBack    = 64
	maxAliases = 64
)

// find returns the innermost symbol that covers an address. A symbol without a
// size reaches to the next symbol, but not below floor, the begin of the
// function as far as that is known otherwise.
func (t *table) find(addr, floor uint64) (name string, begin uint64, ok bool) {
	i, _ := slices.BinarySearchFunc(t.entries, addr+1, func(e entry, a uint64) int {
		return cmp.Compare(e.addr(), a)
	})
	nearest := true // nothing lies between the symbol and addr
	for back := 0; i > 0 && back < maxBack; back++ {
		begin = t.entries[i-1].addr()
		first := i - 1
		for first > 0 && t.entries[first-1].addr() == begin && i-first < maxAliases {
			first--
		}
		if name := t.name(t.entries[first:i], addr, nearest && begin >= floor); name != "" {
			return name, begin, true
		}
		i, nearest = first, false
	}
	return "", 0, false
}

// name chooses among symbols of one address that cover addr: by rank, then the
// plainest name.
func (t *table) name(same []entry, addr uint64, unsized bool) string {
	var best string
	var rank uint64
	for _, e := range same {
		if covers := addr-e.addr() < uint64(e.size) || (e.size == 0 && unsized); !covers {
			continue
		}
		r := e.key & (1<<rankBits - 1)
		if best != "" && r > rank {
			break
		}
		if n := t.text(e.name); n != "" && (best == "" || plainer(n, best)) {
			best, rank = n, r
		}
	}
	return best
}

// plainer prefers names without underscores in front, then short ones: write
// to __write, and a result that does not depend on the order of the table.
func plainer(a, b string) bool {
	lead := func(s string) int { return len(s) - len(strings.TrimLeft(s, "_")) }
	return cmp.Or(cmp.Compare(lead(a), lead(b)), cmp.Compare(len(a), len(b)), cmp.Compare(a, b)) < 0
}

// maxName bounds a mangled name; C++ templates reach some KiB.
const maxName = 16 << 10

// text reads a name from the string table; empty if it is damaged.
func (t *table) text(offset uint32) string {
	for size := uint64(256); ; size *= 8 {
		if uint64(offset) >= t.limit {
			return ""
		}
		b := make([]byte, min(size, t.limit-uint64(offset)))
		n, _ := t.names.ReadAt(b, int64(offset))
		if text, _, ok := strings.Cut(string(b[:n]), "\x00"); ok {
			return text
		}
		if uint64(n) < size || size >= maxName {
			return ""
		}
	}
}
