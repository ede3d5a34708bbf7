package object

import (
	"debug/elf"
	"errors"
	"fmt"
	"strings"
)

// Symbol is a function or object of the dynamic symbol table.
type Symbol struct {
	Name    string
	Version string // "IBVERBS_1.1"; empty: none
	// Hidden: not the default version of the name (name@VER, not name@@VER).
	// Programs linked today never call it.
	Hidden bool
	Import bool // defined elsewhere
	Vaddr  uint64
	Size   uint64
}

// Symbols returns the dynamic symbols, index i being the file's symbol i+1.
func (f *File) Symbols() ([]Symbol, error) {
	if f.symbols != nil {
		return f.symbols, nil
	}
	syms, err := f.elf.DynamicSymbols()
	if errors.Is(err, elf.ErrNoSymbols) {
		f.symbols = []Symbol{}
		return f.symbols, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read dynamic symbols: %w", err)
	}
	f.symbols = make([]Symbol, len(syms))
	for i, s := range syms {
		f.symbols[i] = Symbol{
			Name: s.Name, Version: s.Version, Vaddr: s.Value, Size: s.Size,
			Hidden: s.HasVersion && s.VersionIndex.IsHidden(),
			Import: s.Section == elf.SHN_UNDEF,
		}
	}
	return f.symbols, nil
}

// ErrNoSymbol: the name is not exported.
var ErrNoSymbol = errors.New("not exported")

// Export finds the default version of an exported name: name@@VERSION where
// there are several, which is what the dynamic linker gives to programs linked
// today. A hidden version is taken only if a name has one and no default (such
// as ibv_create_comp_channel@IBVERBS_1.0 of some builds).
func (f *File) Export(name string) (Symbol, error) {
	syms, err := f.Symbols()
	if err != nil {
		return Symbol{}, err
	}
	var hidden []Symbol
	for _, s := range syms {
		switch {
		case s.Name != name || s.Import || s.Vaddr == 0:
		case !s.Hidden:
			return s, nil
		default:
			hidden = append(hidden, s)
		}
	}
	if len(hidden) == 1 {
		return hidden[0], nil
	}
	return Symbol{}, fmt.Errorf("symbol %s: %w", name, ErrNoSymbol)
}

// Imports says whether an imported name begins with prefix.
func (f *File) Imports(prefix string) bool { return f.any(prefix, true) }

// Exports says whether an exported name begins with prefix.
func (f *File) Exports(prefix string) bool { return f.any(prefix, false) }

func (f *File) any(prefix string, imported bool) bool {
	syms, err := f.Symbols()
	if err != nil {
		return false
	}
	for _, s := range syms {
		if s.Import == imported && strings.HasPrefix(s.Name, prefix) {
			return true
		}
	}
	return false
}

// Versions returns the names of the symbol versions that the file needs of
// others and defines itself: a cheap way to see what it is about without
// reading its symbols, which in large libraries are many.
func (f *File) Versions() (needs, defines []string) {
	if n, err := f.elf.DynamicVersionNeeds(); err == nil {
		for _, lib := range n {
			for _, v := range lib.Needs {
				needs = append(needs, v.Dep)
			}
		}
	}
	if d, err := f.elf.DynamicVersions(); err == nil {
		for _, v := range d {
			defines = append(defines, v.Name)
		}
	}
	return needs, defines
}
