package symbol

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/rdmatrace/rdmatrace/tracer/image"
	"github.com/ulikunitz/xz"
)

// module is what is known about the names of one file.
type module struct {
	tables []*table   // in the order to ask
	lines  *debugInfo // nil: none, or too large
	debug  *os.File   // the separate debug file, kept open for its names
}

// budget is what may still be read of all files together.
type budget struct {
	debug   uint64 // bytes of DWARF sections
	symbols int    // function symbols, 16 bytes each
}

// openModule gathers the symbol tables of a file: its own, or else the
// exported ones, those that Fedora's packages carry compressed
// (.gnu_debugdata), and those of a separate debug file. What is damaged or too
// large is left out and said in the error, which may come with a good module.
func openModule(f *image.File, left *budget) (*module, error) {
	m := &module{}
	errs := []error{m.add(f.ELF, elf.SHT_SYMTAB, left)}
	stripped := len(m.tables) == 0
	debug := f.ELF
	if stripped || f.ELF.Section(".debug_info") == nil {
		h, e, err := openDebugFile(f)
		errs = append(errs, err)
		if e != nil {
			m.debug, debug = h, e
		}
	}
	if stripped {
		if m.debug != nil {
			errs = append(errs, m.add(debug, elf.SHT_SYMTAB, left))
		}
		mini, err := embedded(f.ELF)
		errs = append(errs, err)
		if mini != nil {
			errs = append(errs, m.add(mini, elf.SHT_SYMTAB, left))
		}
		errs = append(errs, m.add(f.ELF, elf.SHT_DYNSYM, left))
	}
	var err error
	m.lines, err = openDebugInfo(debug, left)
	return m, errors.Join(append(errs, err)...)
}

// add reads one more symbol table.
func (m *module) add(e *elf.File, typ elf.SectionType, left *budget) error {
	t, err := readTable(e, typ, left)
	if t != nil {
		m.tables = append(m.tables, t)
	}
	return err
}

// find asks the tables; the symbol that begins last is the innermost.
func (m *module) find(vaddr, floor uint64) string {
	var name string
	var begin uint64
	for _, t := range m.tables {
		if n, b, ok := t.find(vaddr, floor); ok && (name == "" || b > begin) {
			name, begin = n, b
		}
	}
	return name
}

func (m *module) close() error {
	if m.debug == nil {
		return nil
	}
	return m.debug.Close()
}

// maxEmbedded bounds the unpacked .gnu_debugdata; 1 MiB is a large one.
const maxEmbedded = 32 << 20

// embedded unpacks .gnu_debugdata: an ELF file with nothing but a symbol table,
// compressed with xz ("MiniDebugInfo" in GDB's manual).
func embedded(e *elf.File) (mini *elf.File, err error) {
	s := e.Section(".gnu_debugdata")
	if s == nil || s.Size > maxEmbedded {
		return nil, nil
	}
	defer func() {
		if p := recover(); p != nil {
			mini, err = nil, fmt.Errorf("unpack .gnu_debugdata: %v", p)
		}
	}()
	r, err := xz.NewReader(io.NewSectionReader(s, 0, int64(s.Size)))
	if err != nil {
		return nil, fmt.Errorf("unpack .gnu_debugdata: %w", err)
	}
	b, err := io.ReadAll(io.LimitReader(r, maxEmbedded))
	if err != nil {
		return nil, fmt.Errorf("unpack .gnu_debugdata: %w", err)
	}
	mini, err = elf.NewFile(bytes.NewReader(b))
	if err != nil {
		return nil, fmt.Errorf("read .gnu_debugdata: %w", err)
	}
	return mini, nil
}
