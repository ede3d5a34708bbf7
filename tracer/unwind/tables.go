package unwind

import (
	"sync"

	"github.com/rdmatrace/rdmatrace/tracer/image"
)

// Tables are the call frame information of files, opened when first asked for.
// They are safe for concurrent use.
type Tables struct {
	mu    sync.Mutex
	files map[*image.File]*table // nil: the file has none
}

// NewTables makes empty Tables.
func NewTables() *Tables { return &Tables{files: map[*image.File]*table{}} }

// Extent returns the function, or the part of one, that covers a virtual
// address of a file, as its call frame information has it: known for stripped
// files too.
func (t *Tables) Extent(f *image.File, vaddr uint64) (begin, size uint64, ok bool) {
	e, err := t.find(f, vaddr)
	if err != nil {
		return 0, 0, false
	}
	return e.begin, e.size, true
}

// find returns the FDE that covers a virtual address of a file; errNoTable or
// errNoFDE if there is none.
func (t *Tables) find(f *image.File, vaddr uint64) (*fde, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	tab, known := t.files[f]
	if !known {
		tab, _ = newTable(f) // a file without is nothing to report: the caller falls back
		t.files[f] = tab
	}
	if tab == nil {
		return nil, errNoTable
	}
	return tab.find(vaddr)
}
