// Package symbol names addresses of a target: functions from the symbol
// tables of the mapped files or of their separate debug files, source lines
// and inlined calls from DWARF where it is at hand and small.
package symbol

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/rdmatrace/rdmatrace/event"
	"github.com/rdmatrace/rdmatrace/tracer/image"
	"github.com/rdmatrace/rdmatrace/tracer/unwind"
)

// Bounds on what is kept.
const (
	maxDebug    = 32 << 20 // bytes of DWARF sections of all files
	maxSymbols  = 2 << 20  // function symbols of all files: 32 MiB
	maxResolved = 1 << 16  // addresses whose frames are remembered
	maxNotes    = 16
)

// Symbolizer names addresses. It is safe for concurrent use.
type Symbolizer struct {
	store    *image.Store
	extents  *unwind.Tables // where functions of stripped files begin
	mu       sync.Mutex
	names    map[string]map[uint64]string // build-id or path, offset of the function in the file
	modules  map[*image.File]*module
	resolved map[location][]event.Frame // Addr left 0
	left     budget
	notes    []string
}

type location struct {
	file  *image.File
	vaddr uint64
}

// New makes a Symbolizer over the files of a Store.
func New(store *image.Store) *Symbolizer {
	return &Symbolizer{
		store: store, extents: unwind.NewTables(), left: budget{debug: maxDebug, symbols: maxSymbols},
		names:    map[string]map[uint64]string{},
		modules:  map[*image.File]*module{},
		resolved: map[location][]event.Frame{},
	}
}

// Name gives the function that begins at an offset of a file a name, for
// providers without symbols: "mlx5: post_send". It is used where there is no symbol.
// buildID names the file; if it is empty, path does.
func (s *Symbolizer) Name(buildID, path string, offset uint64, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := nameKey(buildID, path)
	if s.names[key] == nil {
		s.names[key] = map[uint64]string{}
	}
	s.names[key][offset] = name
	clear(s.resolved)
}

func nameKey(buildID, path string) string {
	if buildID != "" {
		return "build-id " + buildID
	}
	return "path " + path
}

// Frames resolves addresses as Unwind gives them, innermost first, and appends
// to frames: one Frame for each address, preceded by the functions inlined
// there. An address that has no symbol keeps Func empty; Module and Offset say
// where it is; an address in no file has neither.
func (s *Symbolizer) Frames(pid uint32, addrs []uint64, frames []event.Frame) []event.Frame {
	space := s.store.Space(pid)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, addr := range addrs {
		first := len(frames)
		frames = s.append(frames, space, addr)
		for i := range frames[first:] {
			frames[first+i].Addr = addr
		}
	}
	return frames
}

// append resolves one address.
func (s *Symbolizer) append(frames []event.Frame, space *image.Space, addr uint64) []event.Frame {
	var region image.Region
	var ok bool
	if space != nil {
		region, ok = space.Find(addr)
	}
	if !ok || region.Path == "" {
		return append(frames, event.Frame{})
	}
	vaddr, ok := region.Vaddr(addr)
	if !ok {
		f := event.Frame{Module: strings.ToValidUTF8(region.Path, "\uFFFD")}
		if region.Inode != 0 {
			f.Offset = region.FileOffset(addr)
		}
		return append(frames, f)
	}
	at := location{region.File, vaddr}
	known, ok := s.resolved[at]
	if !ok {
		known = s.resolve(at, region.FileOffset(addr))
		if len(s.resolved) == maxResolved {
			clear(s.resolved)
		}
		s.resolved[at] = known
	}
	return append(frames, known...)
}

// resolve names an address of a file.
func (s *Symbolizer) resolve(at location, offset uint64) []event.Frame {
	base := event.Frame{Module: strings.ToValidUTF8(at.file.Path, "\uFFFD"), Offset: offset}
	begin, _, known := s.extents.Extent(at.file, at.vaddr)
	if !known {
		begin = at.vaddr
	}
	given := s.given(at.file, begin)
	if !known {
		begin = 0
	}
	m := s.module(at.file)
	symbol := readable(m.find(at.vaddr, begin))
	if symbol == "" {
		symbol = given
	}
	var places []place
	if m.lines != nil {
		places = m.lines.at(at.vaddr)
	}
	if len(places) == 0 {
		base.Func = symbol
		return []event.Frame{base}
	}
	frames := make([]event.Frame, len(places))
	for i, p := range places {
		f := base
		f.Func, f.File, f.Line = readable(p.name), strings.ToValidUTF8(p.file, "\uFFFD"), p.line
		f.Inline = i < len(places)-1
		// The symbol table has the qualified name; DWARF of C and of dwz-packed
		// files may have a short one or none.
		if !f.Inline && symbol != "" {
			f.Func = symbol
		}
		frames[i] = f
	}
	return frames
}

// given is the name that Name gave to the function that begins at vaddr.
func (s *Symbolizer) given(f *image.File, vaddr uint64) string {
	if len(s.names) == 0 {
		return ""
	}
	offset, _, ok := f.Offset(vaddr)
	if !ok {
		return ""
	}
	if f.BuildID != "" {
		if name := s.names[nameKey(f.BuildID, "")][offset]; name != "" {
			return name
		}
	}
	return s.names[nameKey("", f.Path)][offset]
}

// module returns the names of a file, reading them the first time.
func (s *Symbolizer) module(f *image.File) *module {
	if m, ok := s.modules[f]; ok {
		return m
	}
	m, err := openModule(f, &s.left)
	if err != nil {
		s.note(fmt.Sprintf("names of %s are incomplete: %v", f.Path, err))
	}
	s.modules[f] = m
	return m
}

func (s *Symbolizer) note(text string) {
	switch {
	case len(s.notes) < maxNotes:
		text = strings.ReplaceAll(text, "\n", "; ")
		s.notes = append(s.notes, strings.ToValidUTF8(text, "\uFFFD"))
	case len(s.notes) == maxNotes:
		s.notes = append(s.notes, "names of more files are incomplete")
	}
}

// Notes are sentences on what was left out: debug information too large, a
// symbol table that is damaged.
func (s *Symbolizer) Notes() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.notes)
}

// Close closes debug files.
func (s *Symbolizer) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, m := range s.modules {
		errs = append(errs, m.close())
	}
	s.modules = map[*image.File]*module{}
	return errors.Join(errs...)
}
